"""Whether a broker is so far away that holding back pays."""

from __future__ import annotations

SHORTEST = 0.003
"""Below this round trip librdkafka's waiting costs less than holding back."""
RUSH = 50_000.0
"""Records per second from which an application is busy producing: each costs more in Python held back than straight,
and librdkafka's batches fill in no time."""
_BACK = 0.7


def is_far(ack_time: float, linger: float, rate: float, outstanding: int, batch: int, was_far: bool) -> bool:
    """Whether acknowledgements take longer than linger, so that a batch waits behind a closed window.

    `ack_time`: the quickest round trip lately, in seconds; `rate`: records per second accepted; `outstanding`: records
    without a report; `batch`: records a batch may hold. With `was_far` the bounds are wider, so that it does not flap.
    """
    bound = max(linger, SHORTEST)
    if ack_time <= (bound * _BACK if was_far else bound):
        return False
    rushing = rate > (RUSH if was_far else RUSH / 2)
    return not (rushing and outstanding <= 2 * batch)
