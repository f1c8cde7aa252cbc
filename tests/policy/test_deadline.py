"""The backstop behind a deadline."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from safeproducer.policy.expiry import BACKSTOP_MARGIN, LONGEST_TIMEOUT, backstop

timeouts = st.floats(0.001, LONGEST_TIMEOUT)


@given(timeouts, st.floats(0.01, 300))
def test_the_backstop_lies_behind_every_retry_of_a_lost_acknowledgement(delivery: float, socket: float) -> None:
    """By two socket time-outs and a margin, as far as librdkafka allows."""
    found = backstop(delivery, socket)
    assert found == min(delivery + 2 * socket + BACKSTOP_MARGIN, LONGEST_TIMEOUT)
    assert round(found * 1000) <= 2_147_483_647


def test_no_limit_stays_no_limit() -> None:
    assert backstop(0, 60) == 0
    assert backstop(120, 60) == 250.0
