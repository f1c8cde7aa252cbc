"""A partition's pace: how long acknowledgements take, and which round trip is long."""

from __future__ import annotations

LONG_ROUND_TRIP = 0.04
"""Seconds from which a batch may follow one with flush triggers: those reports are served before its answer comes."""
STEADY = 0.2
"""Acknowledgement times that differ by more than this share are no distance: the machine is too busy to send."""
LATE = 1.5  # seconds after which the leader of an unanswered batch is in doubt
REST = 0.5  # seconds after an answer from which the next batch is alone: its leader may have forgotten the producer ID
LATE_TIMES = 5  # an answer that took so many times as long as usual was not on its way all that time
SHORTEST = 0.003  # below this round trip librdkafka's waiting costs less than holding back
LINGERS = 2.0
"""librdkafka busy-waits from when a batch's linger is over until the one in flight is acknowledged. Up to two
lingers of round trip that is so short that holding costs more (measured: a round trip of 5 ms at a linger of 5 ms)."""
HIGH_RATE = 50_000.0
"""Records per second from which an application is busy producing: each costs more in Python held back than directly,
and librdkafka's batches fill in no time. However many are outstanding, it goes directly."""
HIGH_RATE_WITHIN = 4.0  # times the bound of a long round trip: beyond it librdkafka would busy-wait at any rate
_BACK = 0.7


class AckTime:
    """`seconds` from sending a batch to its last report, smoothed; `at`: when that came. The sender's thread calls."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._jitter = self._last = self.at = 0.0

    def rested(self, at: float) -> bool:
        """Whether a batch that was handed over then was the first one after a rest."""
        return at > self.at + REST

    def observe(self, seconds: float, now: float) -> None:
        """A batch took so long, until now."""
        self.at = now
        if self.seconds is not None:
            self._jitter = (self._jitter + abs(seconds - self._last)) / 2
        self._last = seconds
        self.seconds = seconds if self.seconds is None else 0.8 * self.seconds + 0.2 * seconds

    @property
    def distance(self) -> float | None:
        """`seconds`, if it is long and about the same from one batch to the next; else None."""
        seconds = self.seconds
        if seconds is None or seconds < LONG_ROUND_TRIP or self._jitter > STEADY * seconds:
            return None
        return seconds


def is_long(round_trip: float, linger: float, rate: float, was_long: bool) -> bool:
    """Whether a round trip is so much longer than linger that a batch waits long for the one before it.

    `round_trip`: the shortest one lately to the farthest broker, in seconds; `rate`: records per second accepted. With
    `was_long` the bounds are wider, so that it does not flap.
    """
    bound = max(LINGERS * linger, SHORTEST)
    if round_trip <= (bound * _BACK if was_long else bound):
        return False
    return round_trip > HIGH_RATE_WITHIN * bound or rate <= (HIGH_RATE if was_long else HIGH_RATE / 2)
