"""What the buffered path costs in time: no work for nothing, no round trip lost."""

from typing import Any
from unittest import mock

from tests.pipeline.rig import rigged
from tests.pipeline.warmed import warmed

CONFIG = {"message.timeout.ms": 60_000, "linger.ms": 5, "safeproducer.mode": "held"}
ROUND_TRIP = 0.1


def test_only_a_record_that_fills_a_batch_wakes_the_sender() -> None:
    """Or each one behind a full batch would."""
    with warmed({**CONFIG, "batch.size": 10_000}) as rig:
        rig.cluster.brokers[1].silent = True
        with mock.patch.object(rig.dispatcher.schedule, "wake") as wake:
            for _ in range(2_000):
                assert rig.produce("a", 0)
        assert 2 <= wake.call_count <= 11
        rig.cluster.heal()


def test_a_batch_that_is_full_by_its_count_does_not_wait_for_linger() -> None:
    """Its last record wakes the sender."""
    with warmed({**CONFIG, "batch.num.messages": 10, "linger.ms": 500}) as rig:
        began = rig.time.now
        for _ in range(10):
            assert rig.produce("a", 0)
        while rig.open_records:
            rig.poll(0.001)
        assert rig.time.now - began < 0.1


def test_a_missed_kick_costs_no_round_trip() -> None:
    """A busy broker thread misses one now and then."""
    with rigged(CONFIG, round_trips={1: ROUND_TRIP}, partitions={"a": 1}) as rig:
        for missed in (0, 1):
            for _ in range(2):
                assert rig.produce("a", 0)
                rig.flush(5)
            native: Any = rig.natives[0]
            native.miss_kicks(missed)
            began = rig.time.now
            assert rig.produce("a", 0)
            while rig.open_records:
                rig.poll(0.001)
            assert rig.time.now - began < ROUND_TRIP + 0.03
