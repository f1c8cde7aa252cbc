"""What the processes beside the driver leave for the next one."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from safeproducer.producer_ids.places import AUTO_VARIABLE
from safeproducer.spark import beside_driver
from safeproducer.spark.beside_driver import load, save


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the files are."""
    directory = tmp_path / "ids"
    monkeypatch.setenv(AUTO_VARIABLE, str(directory))
    return directory


def test_what_was_saved_is_found_under_its_name(place: Path) -> None:
    """The last one; and nothing under another name."""
    save("a", {"one": 1})
    save("a", {"two": [1, "x", None]})
    assert load("a") == {"two": [1, "x", None]}
    assert load("b") == {}


def test_nobody_else_can_read_it(place: Path) -> None:
    """Names of topics and hosts may be in it."""
    save("a", {})
    (path,) = place.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


@pytest.mark.parametrize("text", ["", "{", "[1]", "\\xff"])
def test_a_damaged_file_counts_as_none(place: Path, text: str) -> None:
    """And is written anew."""
    save("a", {"one": 1})
    (path,) = place.iterdir()
    path.write_bytes(text.encode("latin-1"))
    assert load("a") == {}
    save("a", {"two": 2})
    assert load("a") == {"two": 2}


def test_no_symbolic_link_is_followed(place: Path, tmp_path: Path) -> None:
    """Somebody else's file stays as it is."""
    other = tmp_path / "other"
    other.write_text("mine")
    save("a", {"one": 1})
    (path,) = place.iterdir()
    path.with_suffix(f".{os.getpid()}.new").symlink_to(other)
    save("a", {"two": 2})
    assert other.read_text() == "mine"
    assert load("a") == {"one": 1}


def test_without_a_place_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process begins anew."""
    monkeypatch.setenv(AUTO_VARIABLE, "/proc/no/such/place")
    save("a", {"one": 1})
    assert load("a") == {}


def test_children_of_one_parent_share_and_others_do_not(place: Path) -> None:
    """Spark's daemon forks all of them; another driver has another one."""
    code = "import sys; from safeproducer.spark.beside_driver import load, save; {}"
    found = [
        subprocess.run([sys.executable, "-c", code.format(step)], capture_output=True, text=True, check=True).stdout
        for step in ("save('q', {'n': 1})", "print(load('q'))")
    ]
    assert found == ["", "{'n': 1}\n"]
    assert load("q") == {}


def test_files_that_nobody_asks_for_are_deleted(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of drivers that have ended, and of queries that have written nothing for a day; no others."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    save("old", {})
    (old,) = place.iterdir()
    save("young", {})
    os.utime(old, times=(time.time() - 90_000,) * 2)
    space = old.name.split("-")[1]
    dead = place / f"spark-{space}-{gone.pid}-0123.json"
    elsewhere = place / f"spark-1{space}-{gone.pid}-0123.json"
    ledger = place / "abc.ledger"
    for path in (dead, elsewhere, ledger):
        path.touch()
    save("new", {})
    assert not old.exists()
    assert not dead.exists()
    assert ledger.exists()
    assert elsewhere.exists(), "the driver of another container cannot be seen"
    assert (load("young"), load("new")) == ({}, {})
    assert len(list(place.iterdir())) == 4
    os.utime(elsewhere, times=(time.time() - 90_000,) * 2)
    save("newer", {})
    assert not elsewhere.exists()
    assert beside_driver._DAY == 86_400


def test_another_process_with_the_number_of_the_parent_is_another(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers come again."""
    save("a", {"one": 1})
    monkeypatch.setattr(beside_driver, "_started", lambda process: "another")
    assert load("a") == {}
