"""Deadlines: T from produce(), a backstop behind it, and early failure only where it is certain."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.policy.deadline import BACKSTOP_MARGIN, LONGEST_TIMEOUT, backstop, expires, too_late

times = st.floats(0, 1_000_000)
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
    assert expires(5.0, 0) == inf
    assert expires(5.0, 120) == 125.0


@given(times, times, st.none() | times, st.none() | times)
def test_a_record_fails_early_only_under_a_throttle_that_leaves_no_time(
    now: float, deadline: float, ack_time: float | None, throttle_until: float | None
) -> None:
    """Then always: no record is held for nothing."""
    held = throttle_until is not None and throttle_until > now
    earliest = (throttle_until or 0.0) + (ack_time or 0.0)
    assert too_late(now, deadline, ack_time, throttle_until) == (held and earliest >= deadline)


@pytest.mark.parametrize(
    ("throttle_until", "ack_time", "expected"),
    [(None, 1e9, False), (10.0, 1e9, False), (19.0, None, False), (19.0, 0.9, False), (19.0, 1.0, True)],
    ids=["no throttle", "throttle past", "no ack time", "in time", "at the deadline"],
)
def test_slow_acknowledgements_alone_fail_nothing(
    throttle_until: float | None, ack_time: float | None, expected: bool
) -> None:
    """The usual ack time is a guess; the end of the throttle is known."""
    assert too_late(10.0, 20.0, ack_time, throttle_until) is expected


@given(times)
def test_without_a_limit_nothing_is_too_late(throttle_until: float) -> None:
    """However long the broker throttles."""
    assert not too_late(0.0, expires(0.0, 0), 1.0, throttle_until)
