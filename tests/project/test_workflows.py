"""Workflows call the project's scripts and nothing else, for each Python that is promised, and publish nothing."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.project.test_project import PYPROJECT, ROOT, script

workflows = script("workflows")
FILES = sorted((ROOT / ".github/workflows").glob("*.yml"))
JOBS = [(file.stem, name, job) for file in FILES for name, job in workflows.read(file)["jobs"].items()]
PROMISED = [
    re.findall(r":: (3\.\d+)$", line)[0] for line in PYPROJECT["project"]["classifiers"] if re.search(r":: 3\.\d", line)
]


@pytest.mark.parametrize(("file", "name", "job"), JOBS, ids=lambda value: value if isinstance(value, str) else "")
def test_each_command_is_a_script_of_the_project(file: str, name: str, job: dict[str, Any]) -> None:
    """Others' actions are pinned by commit, and fetch, set up, or pass on files; a job has a limit of time."""
    commands = [shlex.split(step["run"]) for step in job["steps"] if "run" in step]
    assert [
        words for words in commands if not (ROOT / (words[1] if words[0] == "python" else words[0])).is_file()
    ] == []
    assert [words for words in commands if len(words) > 2] == []
    for step in job["steps"]:
        assert "run" in step or re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", step["uses"]), step
    assert job["timeout-minutes"] <= 90


def test_each_system_runs_each_python_that_is_promised() -> None:
    """Linux, macOS and Windows."""
    choices = [
        (choice["os"].partition("-")[0], choice["python"])
        for _, name, job in JOBS
        if name == "portable"
        for choice in workflows.combinations(job)
    ]
    assert choices == [(system, python) for system in ("ubuntu", "macos", "windows") for python in PROMISED]


def test_publishing_is_a_job_of_its_own_and_off() -> None:
    """Only it may sign, only after the build, and only where a variable of the repository says so."""
    found = {name: job for file, name, job in JOBS if file == "release"}
    publish = found.pop("publish")
    assert (publish["needs"], publish["if"]) == ("build", "vars.PUBLISH == 'yes'")
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"] == "release"
    assert publish["steps"][-1]["with"] == {"attestations": True}
    assert all(workflows.read(file)["permissions"] == {"contents": "read"} for file in FILES)
    assert [job for job in found.values() if "permissions" in job] == []
    assert workflows.read(ROOT / ".github/workflows/release.yml")["on"] == {"workflow_dispatch": None}


def test_a_job_is_run_step_by_step_up_to_the_first_failure(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In a clone, with the Python that the job asks for; the values of its matrix are filled in."""
    origin = tmp_path / "origin"
    origin.mkdir()
    (origin / "hello").write_text('#!/bin/sh\npython -V; echo "hello $1"\n')
    (origin / "hello").chmod(0o755)
    identity = ("-c", "user.name=x", "-c", "user.email=x@x")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "x")):
        subprocess.run(["git", *identity, "-C", origin, *words], check=True)
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    set_up = {"uses": "actions/setup-python@0", "with": {"python-version": "${{ matrix.python }}"}}
    runs = ("./hello ${{ matrix.python }}", "false | true", "./hello never")
    job = {"steps": [set_up, *({"run": command} for command in runs)]}
    (tmp_path / "work").mkdir()
    assert workflows.run(job, {"python": here}, tmp_path / "work", origin) == 1
    told = capfd.readouterr().out
    assert f"Python {here}." in told
    assert f"\nhello {here}\n" in told
    assert "failed with 1: false | true" in told
    assert "never" not in told


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_portable_job_passes_on_linux() -> None:
    """With each Python of its matrix that this machine has."""
    assert workflows.main(str(ROOT / ".github/workflows/test.yml"), "portable") == 0
