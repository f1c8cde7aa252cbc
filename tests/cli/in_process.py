"""The command in this process, where a rule of it can be broken on purpose."""

import io
import os
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from safeproducer.cli.main import main


class CommandHere:
    """In place of the fixture `command`, for tests that only run it to its end."""

    def __init__(self, scratch: Path) -> None:
        self.environment = {"HOME": str(scratch), "SAFEPRODUCER_CONFIG_FILE": ""}

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        """As a process would end."""
        streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
        environment = mock.patch.dict(os.environ, self.environment)
        with environment, redirect_stdout(streams[0]), redirect_stderr(streams[1]):
            try:
                status = main(arguments)
            except SystemExit as exited:  # of argparse
                status = exited.code  # type: ignore[assignment]
        written = [stream.detach().getvalue() for stream in streams]
        return subprocess.CompletedProcess(arguments, status, *written)
