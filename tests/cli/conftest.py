"""The command as a person runs it."""

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
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

    def on_terminal(
        self, *arguments: str, width: int = 120, stdout: int | None = None, read: Callable[..., object] | None = None
    ) -> tuple[int, str]:
        """The exit status, and what is written to a terminal, without colours and movements; `read` gets each part."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
        environment, text = {**self.environment, "TERM": "xterm"}, b""
        with (
            os.fdopen(ours, "rb", buffering=0) as terminal,
            subprocess.Popen(
                self.line(*arguments), stdout=stdout or theirs, stderr=theirs, cwd=ROOT, env=environment
            ) as process,
        ):
            os.close(theirs)
            with contextlib.suppress(OSError):  # how a terminal ends
                while part := terminal.read(65536):
                    text += part
                    if read is not None:
                        read(process, text)
        return process.returncode, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.decode())

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
