"""What a series of permits looks like, as the ring has it."""

from __future__ import annotations

import pytest

from safeproducer.policy.permits import Kind
from safeproducer.producer_ids import patterns
from safeproducer.producer_ids.patterns import Pattern
from safeproducer.producer_ids.record import IdRecord, ProcessId, Times
from safeproducer.records import CallSite

SITE = CallSite("app.py", 7, "handler")
OTHER = CallSite("app.py", 9, "other")


def record(
    at: float,
    token: int = 1,
    ended: str = "",
    parent: int = 10,
    kind: Kind = Kind.FIRST,
    site: CallSite = SITE,
    parent_token: int = 0,
) -> IdRecord:
    return IdRecord(
        0,
        int(at),
        ProcessId(token, parent, token, parent_token),
        kind,
        site,
        Times(at, at),
        Times(at, at),
        1,
        None,
        ended,
    )


def found(records: list[IdRecord], alive: bool = False) -> Pattern:
    pattern = patterns.find(records, SITE, lambda pid: alive)
    assert pattern is not None
    return pattern


CASES = {
    "one-per-request": [record(at, ended="closed") for at in range(20)],
    "one-per-error": [record(at, ended="failed") for at in range(20)],
    "many-at-once": [record(at) for at in range(20)],
    "crash-loop": [record(10 * at, token=at, parent=1) for at in range(1, 20)],
    "short-lived-processes": [record(10 * at, token=at, ended="exit") for at in range(1, 20)],
    "pre-fork-workers-again": [
        record(600 * burst + worker, token=100 * burst + worker + 1) for burst in range(3) for worker in range(4)
    ],
    "lanes": [record(0)] + [record(at, kind=Kind.LANE) for at in range(1, 20)],
}


@pytest.mark.parametrize("code", CASES)
def test_each_pattern_is_told_from_the_others(code: str) -> None:
    """With the count, the time and the line; each has a cure."""
    others = [record(at, token=500 + at, site=OTHER) for at in range(30)]
    pattern = found(CASES[code] + others)
    assert (pattern.code, pattern.count, pattern.site) == (code, len(CASES[code]), SITE)
    assert pattern.seconds == CASES[code][-1].at.wall - CASES[code][0].at.wall
    assert pattern.sentence.startswith(f"{len(CASES[code])} in ")
    assert pattern.cure.endswith(".")


def test_workers_that_start_once_are_no_churn() -> None:
    """One burst from one parent, all alive; the same burst of processes that are gone is a crash loop."""
    burst = [record(at / 10, token=at + 1) for at in range(30)]
    assert found(burst, alive=True).code == "pre-fork-workers"
    assert "no churn unless it repeats" in found(burst, alive=True).cure
    assert found(burst).code == "crash-loop"


@pytest.mark.parametrize("ended", ["", "exit", "closed"])
def test_workers_that_are_recycled_one_by_one(ended: str) -> None:
    """As Celery's, whose master has loaded the library: some at once at first, then each in its own time."""
    start = [record(at / 10, token=at + 1, ended=ended, parent_token=99) for at in range(4)]
    later = [record(60 * at, token=100 + at, ended=ended, parent_token=99) for at in range(1, 9)]
    assert found(start + later).code == "pre-fork-workers-again"
    assert "one parent started" in found(start + later).sentence
    assert "find in its log why it ends" in found(start + later).cure


def test_workers_that_are_recycled_within_seconds() -> None:
    """Some of the burst have ended when the next ones begin."""
    burst = [record(at / 10, token=at + 1, ended="exit" if at < 5 else "", parent_token=99) for at in range(8)]
    assert found(burst).code == "pre-fork-workers-again"
    start = [one._replace(ended="") for one in burst]
    assert found(start, alive=True).code == "pre-fork-workers"


def test_an_hour_later_the_living_tell_that_the_dead_were_replaced() -> None:
    """The ring knows of no burst any more. Of a loop of one after another none is alive but the newest."""
    later = [record(60 * at, token=at, parent_token=99) for at in range(1, 9)]
    pattern = patterns.find(later, SITE, lambda pid: pid in (3, 6))
    assert pattern is not None
    assert pattern.code == "pre-fork-workers-again"
    newest = patterns.find(later, SITE, lambda pid: pid == 8)
    assert newest is not None
    assert newest.code == "crash-loop"


def test_forked_workers_that_crash_are_a_crash_loop() -> None:
    """If they could tell so; and so are children of a parent that has not loaded the library, such as a supervisor."""
    crashed = [record(60 * (at // 2), token=at, ended="crashed", parent_token=99) for at in range(1, 4)]
    crashed += [record(60 * at, token=at, ended="crashed", parent_token=99) for at in range(4, 9)]
    assert found(crashed, alive=True).code == "crash-loop"
    supervised = [record(60 * at, token=at) for at in range(1, 9)]
    assert found(supervised, alive=True).code == "crash-loop"


def test_collected_and_crashed_ones_count_as_well() -> None:
    """A collected producer ended in order, a process that an exception ended did not."""
    assert found([record(at, ended="collected") for at in range(9)]).code == "one-per-request"
    assert found([record(10 * at, token=at, ended="crashed") for at in range(1, 9)]).code == "crash-loop"


def test_one_permit_is_no_pattern() -> None:
    """Nor are those of another line."""
    assert patterns.find([record(1), record(2, site=OTHER)], SITE, lambda _: True) is None


def test_every_pattern_has_a_text() -> None:
    """None is left over."""
    assert set(patterns._TEXTS) == {*CASES, "pre-fork-workers"}
