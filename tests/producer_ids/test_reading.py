"""What `safeproducer doctor` reads of a host's ledgers."""

from __future__ import annotations

import pytest

from safeproducer.producer_ids.guard import AUTO, Guard, Place
from safeproducer.producer_ids.ledger import name_of
from safeproducer.producer_ids.ledger_places import SUFFIX
from safeproducer.producer_ids.ledger_reader import not_kept, read_ledgers
from tests.producer_ids.host import IDENTITY, SITE, Host, first


def test_a_ledger_tells_count_records_and_patterns(still: Host) -> None:
    """With the producer ID, the line, and how each ended; no file is changed by it."""
    for number in range(5):
        guard = still.start()
        permit = guard.ask(first()).permit
        assert permit is not None
        guard.note(permit, 4000 + number)
        guard.note(permit, ended="closed")
        still.pass_time(10)
    before = [file.read_bytes() for file in still.files]
    (found,) = read_ledgers()
    assert found.name + SUFFIX == name_of(IDENTITY)
    assert (found.count, len(found.records), len(found.in_hour), found.problems) == (5, 5, 5, ())
    assert [(record.producer_id, record.ended, record.site) for record in found.records] == [
        (4000 + number, "closed", SITE) for number in range(5)
    ]
    assert found.used == pytest.approx(5 * 180 - 50)
    assert found.wait(20) == 0
    assert found.wait(1) == pytest.approx(850, abs=0.1)
    (pattern,) = found.patterns()
    assert pattern.count == 5
    assert [file.read_bytes() for file in still.files] == before


def test_a_copy_that_cannot_be_read_is_said(still: Host) -> None:
    """By copy; the other one still tells."""
    still.start().ask(first())
    still.files[0].write_bytes(b"nonsense")
    (found,) = read_ledgers()
    assert found.count == 1
    assert found.problems == (f"{still.files[0]} is damaged",)
    assert read_ledgers(Place("off")) == []


def test_the_reason_is_said_why_no_ledger_is_kept(still: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing while one directory can be used, or can be made."""
    assert not_kept() == []
    assert not still.memory.exists()
    still.memory.write_bytes(b"")
    assert not_kept() == []
    still.disk.write_bytes(b"")
    assert not_kept() == [f"{still.memory} is no directory", f"{still.disk} is no directory"]
    assert "switched off" in not_kept(Place("off"))[0]


def test_an_hour_later_nothing_of_it_counts(still: Host) -> None:
    """The records stay, for people."""
    Guard(IDENTITY, AUTO).ask(first())
    still.pass_time(3601)
    (found,) = read_ledgers()
    assert (found.used, len(found.in_hour), len(found.records)) == (0, 0, 1)
