"""No broker outlives the process that started it, and no fork takes it down."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import psutil  # type: ignore[import-untyped]
import pytest

from integration.kafka.folders import ClusterFolder
from integration.kafka.poll import until

ROOT = Path(__file__).resolve().parents[1]
PREAMBLE = """
import json, os, sys, threading, time
from integration.kafka.cluster import KafkaCluster
cluster = KafkaCluster()
def report():
    node = cluster.nodes[1]
    print(json.dumps([node.pid, str(node.log_dir.parent)]), flush=True)
"""


@pytest.fixture
def owner() -> Iterator[subprocess.Popen[str]]:
    """A Python process that owns a cluster, started by a thread that has ended, and waits for its standard input."""
    script = PREAMBLE + (
        "starter = threading.Thread(target=cluster.start); starter.start(); starter.join()\n"
        "while os.path.exists(f'/proc/self/task/{starter.native_id}'): time.sleep(0.01)\n"
        "cluster.admin.create_topic('served-after-the-starter-ended'); report()\n"
        "sys.stdin.readline()\n"
    )
    with _python(script) as process:
        yield process
        if process.poll() is None:
            process.kill()


def test_killed_owner_takes_its_broker_along(owner: subprocess.Popen[str]) -> None:
    """The JVM outlives the thread that started it but not its process, and the next cluster removes what was left."""
    pid, folder = _reported(owner)
    assert psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    owner.kill()
    owner.wait()
    until(lambda: not psutil.pid_exists(pid), "the JVM is gone", 10)
    next_one = ClusterFolder()
    next_one.remove()
    assert not folder.exists()


def test_normal_exit_without_close_cleans_up(owner: subprocess.Popen[str]) -> None:
    """A script that forgets to close its cluster leaves neither JVM nor data."""
    pid, folder = _reported(owner)
    owner.communicate("\n", timeout=30)
    assert owner.returncode == 0
    until(lambda: not psutil.pid_exists(pid), "the JVM is gone", 10)
    assert not folder.exists()


def test_forked_child_leaves_the_cluster_alone() -> None:
    """A child of fork that exits normally, with exit handlers, neither kills the broker nor deletes its data."""
    script = PREAMBLE + (
        "cluster.start()\n"
        "child = os.fork()\n"
        "if child == 0: cluster.close(); sys.exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "report(); sys.stdin.readline()\n"
    )
    with _python(script) as process:
        pid, folder = _reported(process)
        assert psutil.pid_exists(pid)
        assert folder.exists()
        process.communicate("\n", timeout=30)
    assert not psutil.pid_exists(pid)
    assert not folder.exists()


def test_living_owner_keeps_its_folder(tmp_path: Path) -> None:
    """Only folders whose owner is gone are swept."""
    living = ClusterFolder(tmp_path)
    abandoned = tmp_path / "cluster-abandoned"
    abandoned.mkdir()
    other = ClusterFolder(tmp_path)
    assert living.path.exists()
    assert not abandoned.exists()
    living.remove()
    other.remove()
    assert list(tmp_path.glob("cluster-*")) == []


def _python(script: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def _reported(process: subprocess.Popen[str]) -> tuple[int, Path]:
    output: IO[str] | None = process.stdout
    assert output is not None
    pid, folder = json.loads(output.readline())
    return pid, Path(folder)
