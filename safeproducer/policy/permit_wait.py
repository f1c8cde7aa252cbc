"""How long to wait before asking again for a producer ID (KIP-936).

Waiting reserves nothing: who asks when one is there takes it.
"""

from __future__ import annotations

HOUR = 3600.0
JITTER = 0.1
"""Share of the time in which one ID comes back: waiters that were refused together shall not ask together for ever."""
LONGEST_JITTER = 1.0
"""Seconds."""
LONGEST_WAIT = 30.0
"""Seconds: an ID that another process gives back is found by then."""


def ask_again_in(retry_after: float, rate: float, share: float) -> float:
    """Seconds until a producer asks again that was told to wait `retry_after`.

    `rate`: IDs per hour, above 0. `share`: a random number from 0 to 1.
    """
    return min(retry_after, LONGEST_WAIT) + share * min(LONGEST_JITTER, JITTER * HOUR / rate)
