"""Far away: acknowledgements that take longer than linger, without flapping."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from safeproducer.policy.distance import LINGERS, RUSH, RUSH_WITHIN, SHORTEST, is_far

seconds = st.floats(0, 1)


LINGER = 0.005
FAR = LINGERS * LINGER * 1.01


def test_far_is_beyond_so_many_lingers() -> None:
    """But never below the shortest round trip that pays."""
    assert is_far(FAR, LINGER, 1000, was_far=False)
    assert not is_far(LINGERS * LINGER, LINGER, 1000, was_far=False)
    assert not is_far(SHORTEST, 0.0, 1000, was_far=False)


def test_a_rushing_application_is_not_held() -> None:
    """Its batches fill at once. To leave the held way takes a higher rate than to stay on the straight one."""
    for was_far in (False, True):
        assert not is_far(FAR, LINGER, 1.01 * RUSH, was_far)
        assert is_far(FAR, LINGER, RUSH / 2, was_far)
    assert is_far(FAR, LINGER, RUSH, was_far=True)
    assert not is_far(FAR, LINGER, RUSH, was_far=False)


def test_haste_is_no_reason_very_far_away() -> None:
    """The straight lane would take all that waits, and spin."""
    limit = RUSH_WITHIN * LINGERS * LINGER
    for was_far in (False, True):
        assert not is_far(limit, LINGER, 2 * RUSH, was_far)
        assert is_far(1.01 * limit, LINGER, 2 * RUSH, was_far)


@given(seconds, seconds, st.floats(0, 2 * RUSH))
def test_what_became_far_stays_so_under_the_same_conditions(ack_time: float, linger: float, rate: float) -> None:
    """Or it would flap."""
    if is_far(ack_time, linger, rate, was_far=False):
        assert is_far(ack_time, linger, rate, was_far=True)
