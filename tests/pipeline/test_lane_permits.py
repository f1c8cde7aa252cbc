"""Batch lanes and the limit on producer IDs (KIP-936), on scripted brokers in virtual time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

from safeproducer import HoldReason
from safeproducer.policy.permits import Kind
from safeproducer.producer_ids.guard import Guard
from safeproducer.producer_ids.lane_permits import LanePermit, LanePermits
from safeproducer.producer_ids.permit import Claim
from safeproducer.records import CallSite
from tests.permit_count import Permits, permits_counted
from tests.pipeline.rig import Rig, rigged
from tests.pipeline.test_lane_ids import LANES, wrote
from tests.pipeline.test_lane_pool import CONFIG, LONG_ROUND_TRIP, stream

RATE = "safeproducer.producer.ids.per.hour"
LANES_SETTING = "safeproducer.lanes"
REFUSE = {"safeproducer.producer.ids.policy": "refuse"}
OWN_COUNT = {"safeproducer.producer.ids.ledger": "off"}
HOUR = 3600


@contextmanager
def guarded(**config: Any) -> Iterator[tuple[Rig, Permits]]:
    """A producer with everything held back, and its permits. The first lane is the producer's own first ID."""
    settings = {**CONFIG, **OWN_COUNT, **config}
    with permits_counted() as permits, rigged(settings, LONG_ROUND_TRIP, {"a": 2}) as rig:
        rig.cluster.windows[1, "a"] = LANES
        yield rig, permits
        assert permits.held.total() == rig.producer.snapshot().producer_ids == wrote(rig)


def taken_elsewhere(rig: Rig, permits: Permits, count: int, rate: float) -> None:
    guard = rig.dispatcher.lanes.permits()._guard
    for _ in range(count):
        assert guard.ask(Claim(Kind.FIRST, rate, True, CallSite("other.py", 1, "other"))).permit
    permits.held[Kind.FIRST] -= count


def lanes(rig: Rig) -> int:
    return rig.producer.snapshot().lanes


def reasons(rig: Rig) -> set[HoldReason | None]:
    return {row.reason for row in rig.producer.snapshot().partitions if row.held}


def only_half_of_the_hour() -> None:
    """With lanes=auto: while more than half is free. The partition goes on with those it has, and is told of."""
    with guarded(**REFUSE, **{RATE: 20}) as (rig, permits):
        stream(rig, 2.0)
        assert 9 <= lanes(rig) <= len(rig.natives) <= 12
        assert reasons(rig) == {HoldReason.LANES_LIMITED}
        assert "one more would take a producer ID beyond the limit" in rig.producer.explain("a")
        assert "safeproducer.producer.ids.per.hour" in rig.producer.explain("a")
        assert set(permits.held) - {Kind.FIRST} == {Kind.LANE}
        delivered = rig.producer.snapshot().delivered
        stream(rig, 2.0)
        assert rig.producer.snapshot().delivered > delivered + 500


def all_of_it_where_a_number_is_set() -> None:
    """With lanes=n: while there is any."""
    with guarded(**REFUSE, **{RATE: 12, LANES_SETTING: LANES}) as (rig, permits):
        stream(rig, 2.0)
        assert 12 <= lanes(rig) <= 13
        assert reasons(rig) == {HoldReason.LANES_LIMITED}
        assert set(permits.held) - {Kind.FIRST} == {Kind.FIXED_LANE}


def lanes_that_do_not_write() -> None:
    """They were made, because a number is set, and were not needed."""
    with guarded(**REFUSE, **{RATE: 30, LANES_SETTING: LANES}) as (rig, permits):
        rig.produce("a", 0, b"k")
        rig.flush(5)
        rig.report_queue(5)
        assert lanes(rig) == LANES
        assert permits.of_lanes == 0


def only_counted() -> None:
    """By default: as many as are of use."""
    with guarded(**{RATE: 5}) as (rig, permits):
        stream(rig, 2.0)
        assert lanes(rig) == LANES
        assert permits.of_lanes == LANES - 1
        assert HoldReason.LANES_LIMITED not in reasons(rig)


def taken_between() -> None:
    """Another process takes what there was when the lanes are made: those that may not send are given up."""
    with guarded(**REFUSE, **{RATE: 30, LANES_SETTING: LANES}) as (rig, permits):
        rig.produce("a", 0, b"k")
        rig.flush(5)
        rig.report_queue(1)
        assert lanes(rig) == LANES
        taken_elsewhere(rig, permits, 26 - permits.of_lanes, 30)
        stream(rig, 3.0)
        assert 4 <= lanes(rig) <= 5
        assert reasons(rig) == {HoldReason.LANES_LIMITED}
        delivered = rig.producer.snapshot().delivered
        stream(rig, 2.0)
        assert rig.producer.snapshot().delivered > delivered + 100


def replaced_beyond_it() -> None:
    """A lane that fails is replaced, whatever is left of the hour; and one is not replaced by two."""
    with guarded(**REFUSE, **{RATE: 20}) as (rig, permits):
        stream(rig, 2.0)
        before = lanes(rig)
        taken_elsewhere(rig, permits, 9, 20)
        for native in rig.natives[1:4]:
            native.fail_fatally()
        stream(rig, 3.0)
        assert lanes(rig) == before
        assert permits.held[Kind.FURTHER] == 3


def when_it_comes_back() -> None:
    """Evenly: more lanes are made as the hour gets free again."""
    with guarded(**REFUSE, **{RATE: 20}) as (rig, _):
        stream(rig, 2.0)
        before = lanes(rig)
        rig.report_queue(2 * HOUR / 20)
        stream(rig, 3.0)
        assert before + 1 <= lanes(rig) <= before + 2


SCENARIOS = (only_half_of_the_hour, all_of_it_where_a_number_is_set, lanes_that_do_not_write, only_counted)


@pytest.mark.parametrize("scenario", [*SCENARIOS, taken_between, replaced_beyond_it, when_it_comes_back])
def test_lanes_keep_to_the_limit(scenario: Callable[[], None]) -> None:
    """And as many permits are granted as lanes have written."""
    scenario()


def at_once(self: LanePermits, kind: Kind) -> LanePermit:
    permit = real_of_lane(self, kind)
    permit.may_send()
    return permit


real_of_lane = LanePermits.of_lane
real_kind = LanePermits.kind

PLANTS: dict[str, tuple[Callable[[], None], Any, str, Any]] = {
    "a permit when the lane is made": (lanes_that_do_not_write, LanePermits, "of_lane", at_once),
    "what is needed is taken for a first one": (replaced_beyond_it, LanePermits, "kind",
        lambda *asked: Kind.FIXED_LANE if (kind := real_kind(*asked)) is Kind.FURTHER else kind),
    "an additional lane is taken for one that is needed": (only_half_of_the_hour, LanePermits, "kind",
        lambda *_: Kind.FURTHER),
    "a lane sends without a permit": (only_counted, LanePermit, "may_send", lambda *_: True),
    "a lane that is denied sends": (taken_between, LanePermit, "denied", property(lambda _: False, lambda *_: None)),
    "what was made and has not sent is forgotten": (only_half_of_the_hour, Guard, "room", lambda *_: 100),
}  # fmt: skip


@pytest.mark.parametrize("bug", PLANTS)
def test_a_planted_bug_is_noticed(bug: str) -> None:
    scenario, owner, name, planted = PLANTS[bug]
    with mock.patch.object(owner, name, planted, create=True), pytest.raises(AssertionError):
        scenario()
