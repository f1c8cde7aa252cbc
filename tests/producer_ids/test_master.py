"""Which processes are workers of one master, if that has not loaded this library."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from safeproducer.producer_ids import master

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")

ROOT = Path(__file__).resolve().parents[2]
MASTER = """
import os, subprocess, sys

TELL = "from safeproducer.producer_ids import process; print(*process.this()[1::2], flush=True)"


def forked(work):
    child = os.fork()
    if not child:
        work()
        os._exit(0)
    os.waitpid(child, 0)


def daemon():
    os.setsid()
    if os.fork():
        os._exit(0)
    former = os.getppid()
    while os.getppid() == former and former != 1:
        pass
    exec(TELL)
    os._exit(0)


def orphaned():
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        daemon()
    os.close(writing)
    os.waitpid(child, 0)
    os.read(reading, 1)  # ends with the daemon


print(os.getpid(), 0, flush=True)  # or each fork has it, too
for _ in range(2):
    forked(lambda: exec(TELL))
subprocess.run([sys.executable, "-c", TELL])
orphaned()
exec(TELL)
"""


def told(*program: str, **environment: str) -> list[tuple[int, int]]:
    """(number of the master, 0), and then (parent, token of the parent) of two workers, of a program that the master
    starts, of a daemon that it leaves behind, and of the master."""
    done = subprocess.run(
        [sys.executable, *program],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == 6, done
    return [(int(parent), int(token)) for parent, token in lines]


def test_workers_of_one_master_have_the_same_one_and_no_other_process_has_one() -> None:
    """Not what runs a program of its own, as under a supervisor; nor a daemon, which init has adopted."""
    (master, _), *workers, program, daemon, itself = told("-c", MASTER)
    assert {parent for parent, _ in workers} == {program[0]} == {master}
    (token,) = {token for _, token in workers}
    assert token != 0
    assert [token for _, token in (program, daemon, itself)] == [0, 0, 0]
    assert daemon[0] != master


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What Linux tells of this process and its parent: proc(flags, started)."""
    monkeypatch.setattr(master, "_PROC", tmp_path)
    monkeypatch.setattr(os, "getsid", lambda _: 1)

    def write(flags: int, started: int) -> None:
        for name in ("self", str(os.getppid())):
            (tmp_path / name).mkdir(exist_ok=True)
            fields = ["S", *["0"] * 5, str(flags), *["0"] * 12, str(started), "0"]
            (tmp_path / name / "stat").write_text(f"1 (a) name (x) {' '.join(fields)}\n")

    return write


def test_another_start_of_the_master_is_another_one(proc: Callable[..., None]) -> None:
    """Its number may be the same, as in containers."""
    proc(0x400040, 100)
    first = master.token()
    assert first == master.token() != 0
    proc(0x400040, 101)
    assert master.token() not in (0, first)
    proc(0x400000, 100)
    assert master.token() == 0


def test_a_process_that_cannot_be_read_is_no_master(proc: Callable[..., None], tmp_path: Path) -> None:
    """Processes of others may be hidden; a sandbox may have a /proc of its own."""
    assert master.token() == 0
    for text in ("", "1 (a) S 0", "1 (a) S 0 0 0 0 0 many"):
        proc(0x400040, 100)
        (tmp_path / "self" / "stat").write_text(text)
        assert master.token() == 0


def test_processes_that_are_made_on_demand_are_no_workers(tmp_path: Path) -> None:
    """Spark's end when they are idle, and there is no server that keeps up their number."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    (tmp_path / "pyspark" / "daemon.py").write_text(MASTER)
    found = told("-m", "pyspark.daemon", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert [token for _, token in found] == [0] * 6
