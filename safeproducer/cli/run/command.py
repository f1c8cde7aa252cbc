"""``safeproducer run [--mode MODE] [--summary FILE] [--] COMMAND ARGS``: becomes COMMAND, with its producers replaced.

It puts a folder in front of PYTHONPATH; `safeproducer/takeover` does the rest, in the processes of the application.
"""

import argparse
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from getopt import GetoptError, getopt
from itertools import takewhile
from pathlib import Path
from typing import get_args

from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.stop import Failure
from safeproducer.settings.own_settings import Mode

_MODES = ("observe", *get_args(Mode))
_MODE, _SUMMARY = "SAFEPRODUCER_RUN_MODE", "SAFEPRODUCER_RUN_SUMMARY"
"""Read by safeproducer/takeover, which this command must not import: an application may have another interpreter."""
_FOLDER = os.path.join("safeproducer", "takeover", "path")
_WITH_VALUE = ("--mode", "--summary")
_FLAGS, _LONG_FLAGS = "bBdEhiIOPqRsStuvVx?W:X:c:m:", ["check-hash-based-pycs="]
"""Python's own options, written as getopt takes them."""
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*w?(?:\.exe)?$", re.IGNORECASE)
PARSER = {
    "help": "start an application with its confluent_kafka producers replaced, or observed",
    "usage": "safeproducer run [--mode MODE] [--summary FILE] [--] COMMAND ARGS",
    "description": "Start an application with its confluent_kafka producers replaced, or observed.",
    "epilog": """\
modes:
  observe      the client stays as the application configured it; records, producer IDs and throttle times are counted
  auto, held, passthrough
               every producer is a SafeProducer with this safeproducer.mode

A setting safeproducer.* that the application does not set is taken from the environment: SAFEPRODUCER_MAX_BLOCK_MS.
Each process that made a producer writes a summary at its end, to stderr or as a line of JSON to FILE.

exit status:
  that of COMMAND
  2    wrong usage, or a Python that ignores the environment (-I, -E)
  127  there is no such command

examples:
  safeproducer run python app.py
  safeproducer run --mode auto --summary summary.json -- gunicorn --preload app:app
""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command and its arguments, but for those behind COMMAND: see `divided()`."""
    parser.add_argument("--mode", default=_MODES[0], help=f"one of {', '.join(_MODES)} (default: observe)")
    parser.add_argument("--summary", metavar="FILE", help="append summaries to FILE (default: stderr)")
    parser.set_defaults(json=False, quiet=False, program=[])


def divided(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of ours, and those of the application, of which the first is its command."""
    at = 1 if list(words[:1]) == ["run"] else len(words)
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        at += 2 if words[at] in _WITH_VALUE else 1
    return list(words[:at]), list(words[at + (list(words[at : at + 1]) == ["--"]) :])


def run(args: argparse.Namespace, _: Screen) -> int:
    """Become the application; its exit status."""
    if not args.program:
        raise Failure("run: there is no COMMAND: say what to start, as in safeproducer run python app.py")
    if args.mode not in _MODES:
        raise Failure(f"--mode {args.mode}: it must be one of {', '.join(_MODES)}")
    found = shutil.which(args.program[0])
    if flag := _ignores_environment(_shebang(found)) or _ignores_environment(args.program):
        raise Failure(f"python {flag} ignores the environment, so nothing can be replaced: start it without {flag}")
    environment = {**os.environ, _MODE: args.mode, "PYTHONPATH": _python_path(os.environ.get("PYTHONPATH"))}
    environment.pop(_SUMMARY, None)
    if args.summary is not None:
        environment[_SUMMARY] = os.path.abspath(args.summary)
        try:
            open(environment[_SUMMARY], "ab").close()
        except OSError as error:
            way_out = "name a file that can be written"
            raise Failure(f"--summary {args.summary}: {error.strerror}; {way_out}") from None
    try:
        if os.name == "nt":  # where exec() would end this process, with status 0
            return subprocess.call(args.program, env=environment)  # noqa: S603
        os.execvpe(args.program[0], args.program, environment)  # noqa: S606 - a shell is not wanted
    except OSError as error:
        raise Failure(f"{args.program[0]}: {error.strerror}", exit_code=127) from None


def _python_path(before: str | None) -> str:
    """Our folder in front of what is there, without that of a `run` around this one."""
    ours = str(Path(__file__).parents[2] / "takeover" / "path")
    others = [path for path in before.split(os.pathsep) if not path.endswith(_FOLDER)] if before else []
    return os.pathsep.join([ours, *others])


def _shebang(found: str | None) -> list[str]:
    """The words of a script's first line, without "#!"; of a program in another form none."""
    try:
        with open(found or os.devnull, "rb") as file:
            first = file.readline(1000)
    except OSError:
        return []
    return first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []


def _ignores_environment(words: Sequence[str]) -> str | None:
    """The flag of Python that makes it do so, of those in front of its script, module or text."""
    if not words or not _PYTHON.match(os.path.basename(words[0])):
        return None
    try:
        found, _ = getopt(words[1:], _FLAGS, _LONG_FLAGS)
    except GetoptError:  # Python refuses it, too
        return None
    flags = takewhile(lambda flag: flag not in ("-c", "-m"), (flag for flag, _ in found))
    return next((flag for flag in flags if flag in ("-I", "-E")), None)
