"""Runs a PySpark script the way a person does, in a process of its own that leaves nothing behind."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration.kafka.jars import java

CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For a JVM that lives for some seconds: it compiles at once, and to slower code."""


@dataclass(frozen=True)
class Finished:
    """A script that ended by itself."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def tasks(self) -> list[dict[str, Any]]:
        """The JSON lines it printed."""
        return [json.loads(line) for line in self.stdout.splitlines() if line.startswith("{")]


def run_script(
    script: Path,
    arguments: Sequence[str],
    scratch: Path,
    *,
    cores: int | str = 2,
    memory: str = "1g",
    jvm: Sequence[str] = QUICK_START,
    conf: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float = 240,
) -> Finished:
    """Run `script` on Spark inside one JVM with `cores` task slots ("2,4": tasks have four attempts); everything
    Spark writes goes to `scratch`.

    `jvm`: options of Java. `conf` adds Spark settings and `environment` variables, which the Python workers see too.
    Raises JarsError when Java is missing and subprocess.TimeoutExpired after `timeout` seconds; the JVM ends with the
    script, also when that is killed, because it reads the end of its standard input.
    """
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=scratch,  # Spark makes folders where it is started
        env=spark_environment(
            scratch, master=f"local[{cores}]", memory=memory, jvm=jvm, conf=conf, environment=environment
        ),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def spark_environment(
    scratch: Path,
    *,
    master: str = "local[2]",
    memory: str = "1g",
    jvm: Sequence[str] = QUICK_START,
    conf: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The variables with which a PySpark script starts its JVM; see run_script()."""
    home = Path(java()).resolve().parent.parent
    java_options = " ".join((*jvm, f"-Djava.io.tmpdir={scratch}"))
    settings = {**CONF, "spark.local.dir": str(scratch), **(conf or {})}
    submit = ["--master", master, "--driver-memory", memory, "--driver-java-options", java_options]
    for name, value in settings.items():
        submit += ["--conf", f"{name}={value}"]
    return {
        **os.environ,
        "JAVA_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": shlex.join([*submit, "pyspark-shell"]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **(environment or {}),
    }
