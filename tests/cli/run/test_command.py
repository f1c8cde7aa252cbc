"""`safeproducer run`: what it starts, with which variables, and what it refuses."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from safeproducer.cli.run import command as run
from tests.cli.in_process import CommandHere

SHOW = "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:]]))"
FOLDER = str(Path(run.__file__).parents[2] / "takeover/path")


def shown(command: Any, *arguments: str, **environment: str) -> Any:
    """The variables and arguments of the command that it becomes."""
    done = command.run("run", *arguments, sys.executable, "-c", SHOW, "--mode", "x", "--", "-E", **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ((), 2, "there is no COMMAND"),
        (("--",), 2, "there is no COMMAND"),
        (("--mode",), 2, "--mode"),
        (("--mode", "fast", "true"), 2, "--mode fast: it must be one of observe, auto, held, passthrough"),
        (("--summary", "/no/folder/file", "true"), 2, "--summary /no/folder/file: No such file or directory"),
        (("--moody", "true"), 2, "unknown argument --moody"),
        (("no-such-command",), 127, "no-such-command: No such file or directory"),
        (("python", "-I", "app.py"), 2, "python -I ignores the environment"),
        (("/usr/bin/python3.12", "-W", "error", "-X", "dev", "-uE", "app.py"), 2, "python -E ignores the environment"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, arguments: tuple[str, ...], status: int, said: str) -> None:
    """Nothing is started."""
    done = CommandHere(tmp_path).run("run", *arguments)
    assert (done.returncode, done.stdout) == (status, b"")
    assert said in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1, done.stderr


@pytest.mark.parametrize("line", ["#!/usr/bin/python3 -Es", "#! /opt/python -I"])
def test_script_whose_first_line_ignores_the_environment_is_refused(tmp_path: Path, line: str) -> None:
    """As those that Debian installs."""
    script = tmp_path / "tool"
    script.write_text(f"{line}\n")
    script.chmod(0o755)
    done = CommandHere(tmp_path).run("run", str(script))
    assert done.returncode == 2
    assert b"ignores the environment" in done.stderr


@pytest.mark.parametrize(
    "words", [("-c", "x", "-E"), ("-m", "x", "-I"), ("app.py", "-E"), ("-WE", "app.py"), ("-", "-I")]
)
def test_flags_of_the_application_are_its_own(words: tuple[str, ...]) -> None:
    """Behind the script, module or text; and values of Python's own flags."""
    assert run._ignores_environment(["python3", *words]) is None


def test_arguments_and_status_are_those_of_the_command(command: Any) -> None:
    """Options behind the command are not ours, and the mode is observe by default."""
    variables, arguments = shown(command)
    assert arguments == ["--mode", "x", "--", "-E"]
    assert variables["SAFEPRODUCER_RUN_MODE"] == "observe"
    assert "SAFEPRODUCER_RUN_SUMMARY" not in variables
    assert command.run("run", "--mode=held", "--", sys.executable, "-c", "raise SystemExit(7)").returncode == 7


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", [FOLDER]),
        ("relative::/a b", [FOLDER, "relative", "", "/a b"]),
        (f"/other/{run._FOLDER}{os.pathsep}x{os.pathsep}{FOLDER}", [FOLDER, "x"]),
    ],
)
def test_other_folders_of_pythonpath_stay(before: str, after: list[str]) -> None:
    """Relative and empty ones, too; the folder of a `run` around this one goes."""
    assert run._python_path(before).split(os.pathsep) == after
    assert run._python_path(None) == FOLDER


def test_summary_may_be_relative_to_where_it_is_started(command: Any) -> None:
    """The application may go elsewhere."""
    variables, _ = shown(command, "--summary", os.path.relpath(command.environment["HOME"] + "/summary"))
    assert variables["SAFEPRODUCER_RUN_SUMMARY"] == str(Path(command.environment["HOME"]).resolve() / "summary")
