"""Whether a round trip is so long that the buffered path pays."""

from __future__ import annotations

SHORTEST = 0.003
"""Below this round trip librdkafka's waiting costs less than holding back."""
LINGERS = 2.0
"""librdkafka busy-waits from when a batch's linger is over until the one in flight is acknowledged. Up to two
lingers of round trip that is so short that holding costs more (measured: a round trip of 5 ms at a linger of 5 ms)."""
HIGH_RATE = 50_000.0
"""Records per second from which an application is busy producing: each costs more in Python held back than directly,
and librdkafka's batches fill in no time. However many are outstanding: at a round trip of 20 ms a saturated producer
that was held back again when batches piled up had 0.79 to 0.81 of confluent_kafka's throughput, and 0.82 to 0.99
without."""
HIGH_RATE_WITHIN = 4.0
"""Times that bound: beyond it a high rate is no reason, as librdkafka would busy-wait for most of each round trip."""
_BACK = 0.7


def is_long(ack_time: float, linger: float, rate: float, was_long: bool) -> bool:
    """Whether acknowledgements take so much longer than linger that a batch waits long behind a closed window.

    `ack_time`: the quickest round trip lately, in seconds; `rate`: records per second accepted. With `was_long` the
    bounds are wider, so that it does not flap.
    """
    bound = max(LINGERS * linger, SHORTEST)
    if ack_time <= (bound * _BACK if was_long else bound):
        return False
    return ack_time > HIGH_RATE_WITHIN * bound or rate <= (HIGH_RATE if was_long else HIGH_RATE / 2)
