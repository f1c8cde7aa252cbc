"""When a producer asks again for an ID."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from safeproducer.policy.permits import LONGEST_JITTER, LONGEST_WAIT, ask_again_in


@given(wait=st.floats(0, 7200), rate=st.floats(1, 100_000), share=st.floats(0, 1))
def test_a_waiter_asks_when_a_permit_may_be_there_and_a_little_later(wait: float, rate: float, share: float) -> None:
    """Never sooner than that or than half a minute, and not much later than one more ID takes to come back."""
    again = ask_again_in(wait, rate, share)
    assert min(wait, LONGEST_WAIT) <= again <= min(wait, LONGEST_WAIT) + min(LONGEST_JITTER, 360.0 / rate)


def test_two_that_were_refused_together_ask_apart() -> None:
    """Their shares differ."""
    assert ask_again_in(5.0, 720, 0.1) != ask_again_in(5.0, 720, 0.9)
