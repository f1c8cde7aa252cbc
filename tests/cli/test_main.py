"""The command's outer shell."""

import subprocess
import sys
from typing import Any


def test_help_and_version_work_without_a_broker(command: Any) -> None:
    """Each help text has examples and the exit statuses; the version is that of the package."""
    assert command.run("--version").stdout.decode().startswith("safeproducer 0.")
    for subcommand in ("demo", "doctor", "replication"):
        text = command.run(subcommand, "--help").stdout.decode()
        assert "examples:" in text
        assert "exit status" in text
    bare = command.run()
    assert bare.returncode == 2
    assert bare.stderr.decode().count("\n") == 1


def test_what_the_command_line_refuses_has_a_way_out(command: Any) -> None:
    """The choices, or the kind of value; never the value itself, which may be a password."""
    for arguments, way_out in (
        (["s3cret"], "choose from 'demo', 'doctor'"),
        (["doctor", "--connect-timeout", "s3cret"], "it takes seconds"),
    ):
        done = command.run(*arguments)
        assert done.returncode == 2
        assert way_out in done.stderr.decode()
        assert b"s3cret" not in done.stderr


def test_commands_load_without_kafka_python() -> None:
    """It is an extra: help works without it, and a command that needs it says so in one sentence."""
    program = "import sys; sys.modules['kafka'] = None; from safeproducer.cli.main import main; sys.exit(main())"
    for arguments, status in ((["doctor", "--help"], 0), (["replication", "status"], 2)):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == status, done.stderr
        assert done.stderr.count("\n") == (1 if status else 0), done.stderr
