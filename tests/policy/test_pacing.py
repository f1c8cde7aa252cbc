"""Pacing: how long acknowledgements take, and what is a long round trip."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.policy.pacing import (
    HIGH_RATE,
    HIGH_RATE_WITHIN,
    LINGERS,
    LONG_ROUND_TRIP,
    REST,
    SHORTEST,
    STEADY,
    AckTime,
    is_long,
)


def observed(*seconds: float) -> AckTime:
    ack = AckTime()
    for each in seconds:
        ack.observe(each, 1.0)
    return ack


def test_no_time_is_known_before_the_first() -> None:
    ack = AckTime()
    assert (ack.seconds, ack.distance) == (None, None)
    ack.observe(0.1, 1.0)
    assert ack.seconds == 0.1


def test_the_time_is_smoothed() -> None:
    """One that took long by chance does not make it long."""
    assert observed(0.1, 0.1, 1.1).seconds == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("seconds", "is_distance"),
    [
        ((LONG_ROUND_TRIP,), True),
        ((LONG_ROUND_TRIP * 0.99,), False),
        ((0.1, 0.1 * (1 + STEADY), 0.1), True),
        ((0.06, 0.3, 0.06, 0.3), False),
    ],
)
def test_a_long_and_steady_time_is_a_distance(seconds: tuple[float, ...], is_distance: bool) -> None:
    """What varies is a machine that is too busy to send: flush triggers are missed there for the same reason."""
    ack = observed(*seconds)
    assert ack.distance == (ack.seconds if is_distance else None)


def test_a_rest_is_counted_from_the_last_answer() -> None:
    """The batch that ends it stays the first one, however long its answer takes."""
    ack = AckTime()
    assert ack.rested(1.0)
    ack.observe(0.1, 1.0)
    assert not ack.rested(1.0 + REST)
    assert ack.rested(1.1 + REST)


# --- with a long round trip: acknowledgements that take longer than linger, without flapping -------------------------

seconds = st.floats(0, 1)
LINGER = 0.005
JUST_FAR = LINGERS * LINGER * 1.01


def test_far_is_beyond_so_many_lingers() -> None:
    """But never below the shortest round trip that pays."""
    assert is_long(JUST_FAR, LINGER, 1000, was_long=False)
    assert not is_long(LINGERS * LINGER, LINGER, 1000, was_long=False)
    assert not is_long(SHORTEST, 0.0, 1000, was_long=False)


def test_a_rushing_application_is_not_held() -> None:
    """Its batches fill at once. To leave the held way takes a higher rate than to stay on the directly one."""
    for was_long in (False, True):
        assert not is_long(JUST_FAR, LINGER, 1.01 * HIGH_RATE, was_long)
        assert is_long(JUST_FAR, LINGER, HIGH_RATE / 2, was_long)
    assert is_long(JUST_FAR, LINGER, HIGH_RATE, was_long=True)
    assert not is_long(JUST_FAR, LINGER, HIGH_RATE, was_long=False)


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
