"""Spark's own cluster on this machine: a master, and two workers that Spark takes for two hosts.

For speculation, which `local-cluster[2,1,1024]` has not: all its workers have one host name, and Spark runs no copy of
a task on the host where that task runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from integration.kafka.jars import java
from integration.kafka.node import LAUNCHER
from integration.kafka.poll import until
from integration.kafka.ports import LOOPBACK, free_ports
from integration.spark import QUICK_START, class_archive

HOSTS = ("127.0.0.2", "127.0.0.3")
"""Linux takes each of 127.0.0.0/8 for itself."""
HOME = Path(pyspark.__file__).parent


@contextmanager
def spark_cluster(folder: Path) -> Iterator[str]:
    """What Spark takes as master; two workers have an executor of one core each.

    All of them are killed in the end, and when this process ends in whatever way.
    """
    (port,) = free_ports(1)
    with ExitStack() as stack:
        master = f"spark://{LOOPBACK}:{port}"
        stack.enter_context(_node(folder, "master.Master", LOOPBACK, "--port", str(port)))
        until(lambda: "I have been elected leader" in _log(folder, LOOPBACK), "Spark's master runs", 60)
        for host in HOSTS:
            stack.enter_context(_node(folder, "worker.Worker", host, "--cores", "1", "--memory", "1g", master))
        for host in HOSTS:
            until(lambda: "Successfully registered with master" in _log(folder, host), f"worker {host}", 60)  # noqa: B023
        yield master


@contextmanager
def _node(folder: Path, kind: str, host: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", "--host", host]
    with _path(folder, host).open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(LAUNCHER), str(os.getpid()), *command, "--webui-port", "0", *arguments],
            cwd=folder,
            env={
                **os.environ,
                "JAVA_HOME": str(Path(java()).resolve().parent.parent),
                "SPARK_HOME": str(HOME),
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": " ".join((*QUICK_START, *class_archive())),
                "SPARK_LOCAL_DIRS": str(folder),
                "SPARK_WORKER_DIR": str(folder / "work"),
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield process
    finally:
        process.terminate()  # a worker ends its executors
        process.wait(30)


def _path(folder: Path, host: str) -> Path:
    return folder / f"spark-{host}.log"


def _log(folder: Path, host: str) -> str:
    return _path(folder, host).read_text(encoding="utf-8")
