"""The command's outer shell."""

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
