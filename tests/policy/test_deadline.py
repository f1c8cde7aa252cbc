"""The backstop behind a deadline."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from safeproducer.policy.deadline import BACKSTOP_MARGIN, LONGEST_TIMEOUT, backstop

timeouts = st.floats(0.001, LONGEST_TIMEOUT)


@given(timeouts, st.floats(0.01, 300), st.floats(1, 2 * LONGEST_TIMEOUT))
def test_the_backstop_lies_behind_every_retry_of_a_lost_acknowledgement(
    delivery: float, socket: float, at_most: float
) -> None:
    """By two socket time-outs and a margin, as far as librdkafka and the caller allow."""
    found = backstop(delivery, socket, at_most=at_most)
    assert found == min(delivery + 2 * socket + BACKSTOP_MARGIN, at_most, LONGEST_TIMEOUT)
    assert round(found * 1000) <= 2_147_483_647


def test_no_limit_stays_no_limit() -> None:
    """Unless somebody else sets one."""
    assert backstop(0, 60) == 0
    assert backstop(0, 60, at_most=45) == 45
    assert backstop(120, 60) == 250.0
