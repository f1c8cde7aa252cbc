"""The command as a person runs it."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.in_process import CommandHere

ROOT = Path(__file__).resolve().parents[2]


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
def here(tmp_path: Path) -> CommandHere:
    """The same, for tests that only run it to its end: a process takes a second to start."""
    return CommandHere(tmp_path)


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    """The command line program."""
    command = Command(tmp_path)
    yield command
    command.stop()
