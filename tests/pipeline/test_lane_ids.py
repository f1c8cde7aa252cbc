"""How many producer IDs the lanes of one producer take (KIP-936), on scripted brokers in virtual time."""

from collections.abc import Iterator
from unittest import mock

import pytest

from safeproducer import HoldReason
from safeproducer.policy.lanes import IdleLanes
from safeproducer.settings import delivery
from tests.permit_count import Permits, permits_counted
from tests.pipeline.fake_native import FakeNative
from tests.pipeline.rig import Rig, rigged
from tests.pipeline.test_lane_pool import CONFIG, LONG_ROUND_TRIP, stream

LANES = 20
A_QUARTER = 25
"""Of the default rate, 100 an hour."""
RECORDS = 300
HOUR = 3600
STEP = 20.0
"""Seconds between two looks of the sender while nothing happens: it comes more often, and hours would take minutes."""
OWN_COUNT = {"safeproducer.producer.ids.ledger": "off"}


@pytest.fixture(autouse=True)
def few_statistics() -> Iterator[None]:
    with mock.patch.object(delivery, "STATISTICS_MS", 1000 * STEP):
        yield


def writers(rig: Rig) -> list[FakeNative]:
    return [native for native in rig.natives if any(native.produce_requests.values())]


def wrote(rig: Rig) -> int:
    return len(writers(rig))


def rest(rig: Rig, until: float) -> None:
    rig.report_queue(min(2.0, until - rig.time.now))
    while rig.time.now < until:
        rig.time.pass_(min(STEP, until - rig.time.now))
        rig.engine.sender.turn()


def bursts(hours: float, every: float) -> tuple[int, int]:
    """A burst over 20 lanes, and then a rest, again and again: how many IDs wrote, and in the first burst."""
    with rigged({**CONFIG, **OWN_COUNT}, LONG_ROUND_TRIP, {"a": 1}) as rig:
        rig.cluster.windows[1, "a"] = LANES
        end, first = rig.time.now + hours * HOUR, 0
        while rig.time.now < end:
            began = rig.time.now
            for number in range(RECORDS):
                assert rig.produce("a", 0, b"%d" % number)
            rig.flush(20)
            first = first or wrote(rig)
            rest(rig, began + every)
        found = wrote(rig)
    return found, first


@pytest.mark.parametrize("every", [90, 900])
def test_bursts_do_not_take_an_id_for_each_lane_each_time(every: float) -> None:
    """Three hours: 20 once, and a quarter of the rate at most; where the rests are short, the lanes are kept."""
    with permits_counted() as permits:
        found, first = bursts(3, every)
    assert first == LANES
    assert found <= LANES + 3 * A_QUARTER
    assert permits.held.total() == found, "and each of them is counted"
    if every == 90:
        assert found == LANES


def test_that_is_noticed_when_idle_lanes_are_given_up_as_before() -> None:
    """After an idle minute, whatever it costs to make them again: 19 in each burst."""
    with mock.patch.object(IdleLanes, "pause", 0.0):
        assert bursts(1, 90)[0] > LANES + 6 * A_QUARTER


NIGHT = 3 * HOUR
DAY = 5


def days(count: int, policy: str, lanes: object, mode: str) -> tuple[Permits, list[FakeNative], set[HoldReason | None]]:
    """One producer with ten lanes at 20 IDs an hour, under load by day and idle by night, and leaders that move.

    Its permits, the native producers that wrote, and what its records waited for.
    """
    own = {
        "safeproducer.mode": mode,
        "safeproducer.producer.ids.per.hour": 20,
        "safeproducer.producer.ids.policy": policy,
        "safeproducer.lanes": lanes,
    }
    waited: set[HoldReason | None] = set()
    with permits_counted() as permits, rigged({**CONFIG, **OWN_COUNT, **own}, LONG_ROUND_TRIP, {"a": 1}) as rig:
        for node in (1, 2, 3):
            rig.cluster.windows[node, "a"] = 10
        for day in range(count):
            for hour in range(DAY):
                began = rig.time.now
                stream(rig, 0.5)
                waited |= {row.reason for row in rig.producer.snapshot().partitions if row.held}
                rig.flush(20)
                rig.cluster.move(("a", 0), 1 + (day + hour) % 3)
                rest(rig, began + HOUR)
            rest(rig, rig.time.now + NIGHT)
        found = writers(rig)
    return permits, found, waited


@pytest.mark.parametrize(
    ("policy", "lanes", "mode"), [("warn", "auto", "held"), ("delay", 10, "held"), ("refuse", 10, "auto")]
)
def test_well_behaved_lanes_never_wait(policy: str, lanes: object, mode: str) -> None:
    """Ten lanes, two days: no policy holds anything back or makes a lane less. With `auto` the direct lane is one more,
    which sends what is lone. The policy `off` acts as `warn` here, and `reuse` as `delay`."""
    permits, found, waited = days(2, policy, lanes, mode)
    assert waited, "it was to be busy"
    assert not waited & {HoldReason.LANES_LIMITED, HoldReason.PRODUCER_ID_LIMIT}
    assert permits.refused == 0
    assert permits.held.total() == len(found)
    assert len(found) >= 10
    assert sum(not native.fed for native in found) == (mode == "auto"), "the direct lane"
