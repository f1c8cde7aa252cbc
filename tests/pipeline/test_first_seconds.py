"""Until the lane for brokers with long round trips is ready, no more goes directly than a round trip answers."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from safeproducer.pipeline.dispatch.updates import ClientUpdates
from safeproducer.pipeline.lanes.lane_pool import LanePool
from safeproducer.policy.probation import LONGEST_PACE
from tests.pipeline.rig import HandMetadata, Rig, rigged

ROUND_TRIP = 0.1
LONG_ROUND_TRIP = dict.fromkeys((1, 2, 3), ROUND_TRIP)
BATCH = 10
CONFIG = {"message.timeout.ms": 60_000, "linger.ms": 5, "safeproducer.mode": "auto", "batch.num.messages": BATCH}
PLACES = ("a", 0), ("a", 1)


@contextmanager
def begun(config: dict[str, object], distance: float | None = ROUND_TRIP) -> Iterator[Rig]:
    """A producer whose first record was acknowledged; before that it was told how long round trips are."""
    with rigged({**CONFIG, **config}, LONG_ROUND_TRIP if distance else None) as rig:
        assert rig.produce(*PLACES[0])
        if distance is not None:
            rig.engine.updates.holds.round_trip.guess(distance)
        rig.flush(5)
        rig.report_queue(0.01)
        yield rig


def direct(rig: Rig) -> int:
    return int(rig.natives[0]._inside)


@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_a_burst_far_away_goes_a_batch_at_a_time(ordering: str) -> None:
    """What is behind it would keep the partition there, for as many round trips as there are batches."""
    with begun({"safeproducer.ordering": ordering}) as rig:
        rig.cluster.windows.update({(node, "a"): 20 for node in LONG_ROUND_TRIP})
        for number in range(100 * BATCH):
            assert rig.produce(*PLACES[number % 2], b"%d" % number)
        most, rounds = direct(rig), 0
        while not rig.dispatcher.lanes.handed_over:
            most = max(most, direct(rig))
            rig.poll(0.01)
            rounds += 1
            assert rounds < 100, "the fed lane is not used"
        assert most <= len(PLACES) * BATCH
        assert not direct(rig)
        began = rig.time.now
        rig.flush(60)
        if ordering == "key":
            assert rig.time.now - began < 1.6, "lanes were made one after the other"
        rig.check_order()


@contextmanager
def never_ready() -> Iterator[Rig]:
    """As begun(), but the lane for brokers with long round trips does not get its producer ID."""
    with (
        mock.patch.object(LanePool, "acquired", property(lambda _: False)),
        mock.patch.object(ClientUpdates, "_of_batch_lane"),
        begun({}) as rig,
    ):
        yield rig


def test_the_wait_for_the_lane_is_no_longer_than_a_round_trip() -> None:
    """Batch after batch goes directly meanwhile."""
    with never_ready() as rig:
        before = sum(rig.engine.counters.totals()[1:])
        end = rig.time.now + 2
        for _ in range(100 * BATCH):
            assert rig.produce(*PLACES[0])
        while rig.time.now < end:
            rig.poll(0.01)
            assert direct(rig) <= BATCH
        batches = (sum(rig.engine.counters.totals()[1:]) - before) / BATCH
        assert 0.8 * 2 / ROUND_TRIP <= batches <= 2 / ROUND_TRIP + 1
        rig.time.pass_(LONGEST_PACE)
        rig.poll(0.01)
        assert rig.engine.route.goes_direct or direct(rig) > BATCH, "it is waited for and does not come"


@pytest.mark.parametrize("distance", [None, 0.001, 0.02])
def test_beside_the_brokers_records_go_straight_at_once(distance: float | None) -> None:
    """And where haste may be a reason to: statistics tell."""
    with begun({}, distance) as rig:
        assert not rig.engine.updates.holds.round_trip.long
        rig.poll(0)
        assert rig.engine.route.goes_direct


def test_the_distance_is_waited_for() -> None:
    """It comes with the first acknowledgement, a little later: until then one batch goes at a time."""
    with rigged(CONFIG, LONG_ROUND_TRIP) as rig:
        with mock.patch.object(HandMetadata.first, "open", True):
            assert rig.produce(*PLACES[0])
            rig.poll(1.2 * ROUND_TRIP)
            for _ in range(10 * BATCH):
                assert rig.produce(*PLACES[0])
            for _ in range(30):
                rig.poll(0.01)
                assert direct(rig) <= BATCH
            assert rig.engine.updates.holds.slow_start
        rig.flush(10)
        assert not rig.engine.updates.holds.slow_start


def test_who_waits_for_the_sender_is_told_of_each_record_on_probation() -> None:
    """It waits there while nothing is in the direct lane, and would not look there before the end of its wait."""
    with begun({}) as rig:
        assert not rig.engine.route.goes_direct
        told, sent = rig.engine.sender.told_waiting, direct(rig)
        assert rig.produce(*PLACES[0])
        assert rig.engine.sender.told_waiting == told + direct(rig) - sent == told + 1
