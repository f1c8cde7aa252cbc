"""How long acknowledgements take, and when that is a distance."""

from __future__ import annotations

import pytest

from safeproducer.policy.pacing import LONG_ROUND_TRIP, REST, STEADY, AckTime


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
