"""Admission: a batch goes unless there is a named reason to hold it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.policy.admission import (
    GO,
    LONGEST_DEPTH,
    Broker,
    Hold,
    Partition,
    admit,
    depth,
)
from safeproducer.policy.hold_reason import HoldReason

NOW, LINGERS = 100.0, 0.005
LONG_AGO, SOMETIME = float("-inf"), float("inf")
RIPE = Partition(5, NOW - 1, 0, leaves_by=LONG_AGO, full=False)
FULL = replace(RIPE, oldest=NOW, full=True)
IDLE = Broker(None, probing=False, unresolved=0, node=7)

times = st.floats(0, 1000)
partitions = st.builds(
    Partition,
    st.integers(1, 99),
    times,
    st.integers(0, 5),
    times | st.just(LONG_AGO) | st.just(SOMETIME),
    st.booleans(),
)
brokers = st.builds(Broker, st.none() | times, st.booleans(), st.integers(0, 5))


@pytest.mark.parametrize(
    ("partition", "broker", "expected"),
    [
        (RIPE, IDLE, GO),
        (FULL, IDLE, GO),
        (replace(RIPE, oldest=NOW - 0.001), IDLE, Hold(NOW - 0.001 + LINGERS, HoldReason.LINGER)),
        (RIPE, replace(IDLE, throttled_until=NOW + 2), Hold(NOW + 2, HoldReason.THROTTLED, 7)),
        (RIPE, replace(IDLE, throttled_until=NOW), GO),
        (RIPE, replace(IDLE, probing=True), GO),
        (RIPE, replace(IDLE, probing=True, unresolved=1), Hold(None, HoldReason.PROBING, 7)),
        (RIPE, replace(IDLE, unresolved=9), GO),
        (replace(RIPE, unresolved=1), IDLE, Hold(None, HoldReason.IN_FLIGHT)),
        (replace(FULL, unresolved=1), IDLE, GO),
        (replace(FULL, unresolved=2), IDLE, Hold(None, HoldReason.IN_FLIGHT)),
        (replace(FULL, unresolved=1, leaves_by=SOMETIME), IDLE, Hold(None, HoldReason.IN_FLIGHT)),
        (replace(FULL, unresolved=1, leaves_by=NOW + 1), IDLE, Hold(NOW + 1, HoldReason.IN_FLIGHT)),
        (replace(FULL, unresolved=1, leaves_by=NOW), IDLE, GO),
        (replace(FULL, unresolved=1, full=False), IDLE, Hold(None, HoldReason.IN_FLIGHT)),
        (RIPE, replace(IDLE, cap=2, unresolved=2), Hold(None, HoldReason.MAX_IN_FLIGHT, 7)),
        (replace(RIPE, outstanding=5, budget=5), IDLE, Hold(None, HoldReason.WINDOW)),
    ],
)
def test_each_reason(partition: Partition, broker: Broker, expected: object) -> None:
    """And until when, where that is known."""
    assert admit(partition, broker, NOW, LINGERS, 2) == expected


@given(partitions, brokers, times, st.floats(0, 10), st.integers(1, LONGEST_DEPTH))
def test_what_goes_breaks_no_rule(partition: Partition, broker: Broker, now: float, linger: float, deep: int) -> None:
    """Not to a throttled broker, not beyond the depth, not a partial batch behind another one."""
    if admit(partition, broker, now, linger, deep) == GO:
        assert broker.throttled_until is None or broker.throttled_until <= now
        assert not (broker.probing and broker.unresolved)
        assert partition.unresolved == 0 or (
            partition.unresolved < deep and partition.full and partition.leaves_by <= now
        )


@given(partitions, brokers, times, st.floats(0, 10), st.integers(1, LONGEST_DEPTH))
def test_what_is_held_is_asked_again_later(
    partition: Partition, broker: Broker, now: float, linger: float, deep: int
) -> None:
    """A time that is past would be asked for again at once, for ever."""
    verdict = admit(partition, broker, now, linger, deep)
    if isinstance(verdict, Hold):
        assert verdict.sentence(now)
        assert verdict.until is None or verdict.until > now


@given(st.floats(0, 100), st.floats(0.01, 10))
def test_a_batch_behind_another_is_younger_than_the_guard(ack_time: float, guard: float) -> None:
    """It waits for those in front of it, and librdkafka spins when it is older."""
    found = depth(ack_time, guard)
    assert 1 <= found <= LONGEST_DEPTH
    assert found == 1 or found * ack_time <= guard / 2 * (1 + 1e-9)


def test_without_an_acknowledgement_nothing_waits_behind_another() -> None:
    """It is not known yet how long it would."""
    assert depth(None, 1.0) == 1
    assert depth(0.0, 1.0) == LONGEST_DEPTH
