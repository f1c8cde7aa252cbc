"""A mock cluster in a process of its own, and the command as a person runs it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from safeproducer.kafka.native import KafkaException
from safeproducer.kafka.readback import LogRecord, read_topic

CLUSTER = """
import sys
from confluent_kafka import Producer
owner = Producer({"test.mock.num.brokers": 3, "log_level": 0})
print(",".join(f"{broker.host}:{broker.port}" for broker in owner.list_topics(timeout=10).brokers.values()), flush=True)
sys.stdin.read()
"""
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class MockCluster:
    """librdkafka's mock brokers in another process, which can be frozen as a hung broker is.

    They make a topic of four partitions on first use.
    """

    bootstrap: str
    process: "subprocess.Popen[str]"

    def freeze(self) -> None:
        """Returns once the process stands still: until its main thread has the signal, the others go on."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def log(self, topic: str) -> list[LogRecord]:
        """All records of a topic in partition and offset order; none while it does not exist."""
        try:
            return sorted(read_topic({"bootstrap.servers": self.bootstrap}, topic, 4), key=lambda r: r[:2])
        except KafkaException as error:
            if error.args[0].name() in {"_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART"}:
                return []
            raise


@pytest.fixture
def freezable() -> Iterator[MockCluster]:
    """A cluster for one test."""
    yield from start_cluster()


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    """A cluster for the tests of one module; each uses topics of its own."""
    yield from start_cluster()


def start_cluster() -> Iterator[MockCluster]:
    with subprocess.Popen(
        [sys.executable, "-c", CLUSTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        try:
            bootstrap = process.stdout.readline().strip()
            assert bootstrap, "the mock cluster did not start"
            yield MockCluster(bootstrap, process)
        finally:
            process.kill()


class Command:
    """Starts ``python -m safeproducer`` with an environment of its own."""

    def __init__(self, scratch: Path) -> None:
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if name not in {"SAFEPRODUCER_CONFIG_FILE", "NO_COLOR", "FORCE_COLOR", "COLUMNS"}
        } | {"HOME": str(scratch), "PYTHONIOENCODING": "utf-8"}
        self._started: list[subprocess.Popen[bytes]] = []

    def line(self, *arguments: str) -> list[str]:
        return [sys.executable, "-W", "error", "-m", "safeproducer", *arguments]

    def run(
        self, *arguments: str, stdin: bytes = b"", timeout: float = 60, **environment: str
    ) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            self.line(*arguments),
            input=stdin,
            capture_output=True,
            timeout=timeout,
            check=False,
            cwd=ROOT,
            env=self.environment | environment,
        )

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            self.line(*arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=self.environment,
        )
        self._started.append(process)
        return process

    def stop(self) -> None:
        """Leave no process behind, even of a test that failed."""
        for process in self._started:
            process.kill()
            process.wait(10)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    """The command line program."""
    command = Command(tmp_path)
    yield command
    command.stop()


def wait_until(condition: Callable[[], bool], what: str, timeout: float = 20.0) -> None:
    """Poll until the condition holds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        time.sleep(0.05)


@pytest.fixture
def until() -> Callable[..., None]:
    """``wait_until`` for tests, which cannot import this file."""
    return wait_until
