"""The Linux jobs of .github/workflows, run on this machine: `workflows.py FILE JOB`.

Each command of the job runs in order in a clone of what is committed, as a runner would do it, for each Python of the
job's matrix that this machine has. Steps that are somebody else's action are named, and not run.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
LINUX = "ubuntu-latest"


def read(file: Path) -> dict[str, Any]:
    """A workflow. Its key `on` is a word here, as in YAML 1.2."""
    with file.open(encoding="utf-8") as opened:
        found: dict[str, Any] = YAML(typ="safe", pure=True).load(opened)
    return found


def combinations(job: dict[str, Any]) -> Iterator[dict[str, str]]:
    """Each choice of the job's matrix."""
    matrix = job.get("strategy", {}).get("matrix", {})
    for values in itertools.product(*matrix.values()):
        yield dict(zip(matrix, values, strict=True))


def filled(text: str, choice: dict[str, str]) -> str:
    """With the matrix's values in it."""
    for name, value in choice.items():
        text = text.replace(f"${{{{ matrix.{name} }}}}", value)
    return text


def interpreter(version: str) -> str | None:
    """A Python of that version on this machine."""
    known = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for candidate in (shutil.which(f"python{version}"), *sorted(known.glob(f"{version}.*/bin/python"))):
        told = candidate and subprocess.run([candidate, "-V"], capture_output=True, text=True, check=False).stdout
        if told and told.startswith(f"Python {version}."):
            return str(candidate)
    return None


def run(job: dict[str, Any], choice: dict[str, str], work: Path, root: Path = ROOT) -> int:
    """The status of the first command that fails, in a clone below `work`."""
    checkout, programs = work / "checkout", work / "programs"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", root, checkout], check=True)  # noqa: S607 - as found
    programs.mkdir()
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "CI": "true"}
    environment.pop("PYTHONPATH", None)
    for step in job["steps"]:
        if "run" not in step:
            print(f"-- {step['uses'].partition('@')[0]}: not run here", flush=True)
            version = filled(str(step.get("with", {}).get("python-version", "")), choice)
            if version and not offer(version, programs):
                print(f"-- no Python {version} here: the job is not run", flush=True)
                return 0
            continue
        command = filled(step["run"], choice)
        print(f"-- {command}", flush=True)
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command]
        if status := subprocess.run(shell, cwd=checkout, env=environment, check=False).returncode:
            print(f"-- failed with {status}: {command}", flush=True)
            return status
    return 0


def offer(version: str, programs: Path) -> bool:
    """Make a Python of that version the first on the path, as actions/setup-python does; False if there is none."""
    found = interpreter(version)
    for name in ("python", "python3") if found else ():
        (programs / name).write_text(f'#!/bin/sh\nexec {found} "$@"\n', encoding="utf-8")
        (programs / name).chmod(0o755)
    return found is not None


def main(file: str, name: str) -> int:
    """Run the job for each choice that runs on Linux; the status of the first that fails."""
    job = read(Path(file))["jobs"][name]
    for choice in combinations(job):
        if filled(job["runs-on"], choice) == LINUX:
            print(f"-- {name} {choice or ''}", flush=True)
            with TemporaryDirectory(dir=ROOT / ".cache") as work:
                if status := run(job, choice, Path(work)):
                    return status
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
