"""Runs a PySpark script the way a person does, in a process of its own that leaves nothing behind."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil  # type: ignore[import-untyped]
import pyspark

from integration.kafka.folders import exclusive
from integration.kafka.jars import CONNECTOR, cache_folder, java

CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Hadoop runs `readlink` and `chmod` 28 times to write the checkpoint of a micro-batch. Without files of checksums
    # it does so less often, and a micro-batch costs a quarter less CPU.
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}

DAEMON = "integration.spark_daemon"
"""Forks the Python workers of run_script() and of RunningQuery."""
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For a JVM that lives for some seconds: it compiles at once, and to slower code."""
WARM_UP = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
rows = spark.range(0, 100, 1, 2).selectExpr("string(id) value").mapInArrow(lambda batches: batches, "value string")
rows.write.text(sys.argv[1] + "/rows")
lines = spark.readStream.text(sys.argv[1] + "/rows").writeStream.foreachBatch(lambda df, _: df.count())
lines.option("checkpointLocation", sys.argv[1] + "/checkpoint").trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


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


def class_archive() -> list[str]:
    """JVM options that use an archive of Spark's classes, which halves the CPU of a start.

    The first call makes it, beside the jars of Kafka's connector. A JVM that it does not fit ignores it.
    """
    command = Path(java()).resolve()
    made_of = f"{pyspark.__file__} {pyspark.__version__} {command} {command.stat().st_mtime_ns}"
    cache = cache_folder(CONNECTOR)
    kept = cache / f"spark-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.jsa"
    quietly = ["-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    with exclusive(cache), TemporaryDirectory() as scratch:
        if not kept.is_file():
            for stale in cache.glob("spark-*.jsa"):
                stale.unlink()
            partial, script = kept.with_suffix(".new"), Path(scratch) / "warm_up.py"
            script.write_text(WARM_UP)
            jvm = (*QUICK_START, *quietly, f"-XX:ArchiveClassesAtExit={partial}", f"-Djava.io.tmpdir={scratch}")
            subprocess.run(
                [sys.executable, str(script), scratch],
                cwd=scratch,
                env=_environment(Path(scratch), "local[2]", "1g", jvm, {}, {}),
                capture_output=True,
                check=True,
                timeout=240,
            )
            partial.rename(kept)
    return [f"-XX:SharedArchiveFile={kept}", *quietly]


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
            scratch,
            master=f"local[{cores}]",
            memory=memory,
            jvm=jvm,
            conf={"spark.python.daemon.module": DAEMON, **(conf or {})},
            environment=environment,
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
    archive = class_archive()
    of_executors = {"spark.executor.extraJavaOptions": " ".join((*QUICK_START, *archive))}
    options = (*jvm, *archive, f"-Djava.io.tmpdir={scratch}")
    return _environment(scratch, master, memory, options, of_executors | dict(conf or {}), environment or {})


def task_workers(root: psutil.Process) -> list[psutil.Process]:
    """The Python workers that run tasks, of the drivers that `root` is or has started. Each is a fork of a daemon."""
    found = []
    for one in root.children(recursive=True):
        with suppress(psutil.NoSuchProcess, AttributeError):
            line, of = one.cmdline()[-2:], one.parent().cmdline()[-2:]
            if line == of == [DAEMON, "pyspark.worker"]:
                found.append(one)
    return found


def _environment(
    scratch: Path,
    master: str,
    memory: str,
    jvm: Sequence[str],
    conf: Mapping[str, str],
    environment: Mapping[str, str],
) -> dict[str, str]:
    home = Path(java()).resolve().parent.parent
    java_options = " ".join(jvm)
    settings = {**CONF, "spark.local.dir": str(scratch), **conf}
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
        **environment,
    }
