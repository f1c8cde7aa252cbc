"""With a long round trip: acknowledgements that take longer than linger, without flapping."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from safeproducer.policy.pacing import HIGH_RATE, HIGH_RATE_WITHIN, LINGERS, SHORTEST, is_long

seconds = st.floats(0, 1)


LINGER = 0.005
LONG_ROUND_TRIP = LINGERS * LINGER * 1.01


def test_far_is_beyond_so_many_lingers() -> None:
    """But never below the shortest round trip that pays."""
    assert is_long(LONG_ROUND_TRIP, LINGER, 1000, was_long=False)
    assert not is_long(LINGERS * LINGER, LINGER, 1000, was_long=False)
    assert not is_long(SHORTEST, 0.0, 1000, was_long=False)


def test_a_rushing_application_is_not_held() -> None:
    """Its batches fill at once. To leave the held way takes a higher rate than to stay on the directly one."""
    for was_long in (False, True):
        assert not is_long(LONG_ROUND_TRIP, LINGER, 1.01 * HIGH_RATE, was_long)
        assert is_long(LONG_ROUND_TRIP, LINGER, HIGH_RATE / 2, was_long)
    assert is_long(LONG_ROUND_TRIP, LINGER, HIGH_RATE, was_long=True)
    assert not is_long(LONG_ROUND_TRIP, LINGER, HIGH_RATE, was_long=False)


def test_haste_is_no_reason_very_far_away() -> None:
    """The direct lane would take all that waits, and spin."""
    limit = HIGH_RATE_WITHIN * LINGERS * LINGER
    for was_long in (False, True):
        assert not is_long(limit, LINGER, 2 * HIGH_RATE, was_long)
        assert is_long(1.01 * limit, LINGER, 2 * HIGH_RATE, was_long)


@given(seconds, seconds, st.floats(0, 2 * HIGH_RATE))
def test_a_far_broker_stays_far_under_the_same_conditions(ack_time: float, linger: float, rate: float) -> None:
    """Or it would flap."""
    if is_long(ack_time, linger, rate, was_long=False):
        assert is_long(ack_time, linger, rate, was_long=True)
