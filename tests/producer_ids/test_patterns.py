"""What a series of permits looks like, as the ledger has it."""

import pytest

from safeproducer.policy.permits import Kind
from safeproducer.producer_ids import patterns
from safeproducer.producer_ids.patterns import Pattern
from safeproducer.producer_ids.permit_record import IdRecord, ProcessId, Times
from safeproducer.records import CallSite
from tests.producer_ids.host import SITE

OTHER = CallSite("app.py", 9, "other")


def record(at: float, token: int = 1, ended: str = "", kind: Kind = Kind.FIRST, site: CallSite = SITE) -> IdRecord:
    return IdRecord(ProcessId(token, 10, token), kind, site, Times(at, at), 1, None, ended)


def found(records: list[IdRecord]) -> Pattern:
    pattern = patterns.find(records, SITE)
    assert pattern is not None
    return pattern


CASES = {
    "one-per-request": [record(at, ended="closed") for at in range(20)],
    "one-per-error": [record(at, ended="failed") for at in range(20)],
    "crash-loop": [record(10 * at, token=at, ended="crashed") for at in range(1, 20)],
    "one-per-process": [record(10 * at, token=at, ended="exit") for at in range(1, 20)],
    "many-at-once": [record(at) for at in range(20)],
    "lanes": [record(0)] + [record(at, kind=Kind.LANE) for at in range(1, 20)],
}


@pytest.mark.parametrize("code", CASES)
def test_each_pattern_is_told_from_the_others(code: str) -> None:
    """With the count, the time and the line; each has a cure."""
    others = [record(at, token=500 + at, site=OTHER) for at in range(30)]
    pattern = found(CASES[code] + others)
    assert (pattern.code, pattern.count, pattern.line) == (code, len(CASES[code]), str(SITE))
    seconds = CASES[code][-1].at.wall - CASES[code][0].at.wall
    assert pattern.sentence.startswith(f"{len(CASES[code])} in {patterns._span(seconds)}, ")
    assert pattern.cure.endswith(".")


def test_a_clock_that_is_set_changes_no_time_of_a_pattern() -> None:
    """It was told as an hour; after another start of the system there is only that clock."""
    own = [record(at) for at in range(3)]
    own = [one._replace(at=one.at._replace(wall=one.at.wall + 3600 * (number == 1))) for number, one in enumerate(own)]
    assert found(own).sentence.startswith("3 in 2 s, ")
    own[0] = own[0]._replace(boot_id=2)
    assert found(own).sentence.startswith("3 in 60 min, ")


@pytest.mark.parametrize("lanes", [1, 2, 7])
def test_one_producer_is_no_churn_however_many_lanes_it_has(lanes: int) -> None:
    """A throttle time makes a second one: it was told as a crash loop, with the advice to stop it."""
    own = [record(0, ended="closed")] + [record(1, kind=Kind.LANE, ended="closed") for _ in range(lanes)]
    assert found(own).code == "lanes"
    restarted = own + [record(at, token=2, kind=Kind.LANE) for at in range(2, 2 + lanes)]
    assert found(restarted).code == "lanes"


@pytest.mark.parametrize("ended", ["", "exit", "closed", "collected"])
def test_processes_that_no_error_ended_are_no_crash_loop(ended: str) -> None:
    """Workers of Spark and of a server are killed or end by os._exit(), and tell nothing: not why they ended."""
    assert found([record(60 * at, token=at, ended=ended) for at in range(1, 3)]).code == "one-per-process"
    half = [record(at, token=at, ended=ended if at % 2 else "crashed") for at in range(1, 10)]
    assert found(half).code == "one-per-process"


def test_one_permit_is_no_pattern() -> None:
    """Nor are those of another line."""
    assert patterns.find([record(1), record(2, site=OTHER)], SITE) is None


def test_every_pattern_has_a_text() -> None:
    assert set(patterns._TEXTS) == set(CASES)
