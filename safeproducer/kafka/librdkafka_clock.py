"""librdkafka's clock, put on time.monotonic()'s.

On Linux the two are one. On macOS librdkafka reads the wall clock (rd_clock() in rdtime.h is gettimeofday() there), and
a time of its statistics compared with ours would be off by fifty years.
"""

from __future__ import annotations

from collections import deque

_SAME = 60.0
"""Seconds that statistics may wait to be served; a difference up to that is no other clock."""
_KEPT = 120
"""Looks that are remembered: the wall clock may be set, and what was known before is wrong then."""


class LibrdkafkaClock:
    """Converts the times of this process's librdkafka. Once its clock was set, they are wrong for `_KEPT` looks."""

    def __init__(self) -> None:
        self._differences: deque[float] = deque(maxlen=_KEPT)

    def monotonic(self, at: float, now: float) -> float:
        """The time of time.monotonic() for `at` of librdkafka's, told to us at `now`, both in seconds.

        It is later than the truth by the shortest time that something took from librdkafka to us: milliseconds.
        """
        difference = now - at
        if abs(difference) < _SAME:
            return at
        self._differences.append(difference)
        return at + min(self._differences)
