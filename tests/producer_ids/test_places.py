"""A directory that was found good is looked at in each round: it may have become another one since."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from safeproducer.producer_ids import ledger_places
from safeproducer.producer_ids.guard import AUTO, Guard, Place
from tests.producer_ids.host import IDENTITY, Host, first


def opened_up(directory: Path, _: pytest.MonkeyPatch) -> None:
    directory.chmod(0o777)


def a_link(directory: Path, _: pytest.MonkeyPatch) -> None:
    directory.rename(directory.with_name("elsewhere"))
    directory.symlink_to(directory.with_name("elsewhere"))


def of_another_user(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a process gave up its rights."""
    monkeypatch.setattr(os, "geteuid", lambda: 4711)


@pytest.mark.parametrize("change", [opened_up, a_link, of_another_user])
def test_a_directory_that_was_good_is_refused_once_it_is_not(
    still: Host, tmp_path: Path, change: Callable[[Path, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "named"
    guard = Guard(IDENTITY, Place(str(directory)))
    for _ in range(2):
        permit = guard.ask(first()).permit
        assert permit is not None
        assert permit.number is not None, "counted there"
    change(directory, monkeypatch)
    permit = guard.ask(first()).permit
    assert permit is not None
    assert permit.number is None, "counted by this process alone"


def test_the_same_directory_is_looked_at_in_full_once(still: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anew when it was deleted, and created anew."""
    looked: list[str] = []
    real = ledger_places.problem

    def problem(directory: str, make: bool = True, ours: bool = False) -> str | None:
        looked.append(directory)
        return real(directory, make, ours)

    monkeypatch.setattr(ledger_places, "problem", problem)
    guard = Guard(IDENTITY, AUTO)
    for _ in range(3):
        guard.ask(first())
    assert sorted(looked) == sorted(map(str, (still.disk, still.memory)))
    for file in still.memory.iterdir():
        file.unlink()
    still.memory.rmdir()
    permit = guard.ask(first()).permit
    assert permit is not None
    assert permit.number == 4
    assert looked[2:] == [str(still.memory)]
    assert still.memory.stat().st_mode & 0o777 == 0o700
