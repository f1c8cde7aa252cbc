"""How long a partition's batches take to be acknowledged, and whether that is because of a long round trip."""

from __future__ import annotations

LONG_ROUND_TRIP = 0.04
"""Seconds from which a batch may follow one that needs flush triggers: no answer to it comes while those of the one
before it are served."""
STEADY = 0.2
"""Where it differs by more than this share of it, it is no distance, but a machine that is too busy to send."""

LATE = 1.5
"""Seconds after which the leader of an unanswered batch is in doubt."""
REST = 0.5
"""Seconds after an answer from which the next batch is alone: its leader may have forgotten the producer ID."""
LATE_TIMES = 5
"""An answer that took so many times as long as usual was not on its way all that time."""


class AckTime:
    """The sender's thread calls. `seconds` from sending a batch to its last report, smoothed; None before the first."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._jitter = self._last = self._at = 0.0

    def rested(self, at: float) -> bool:
        """Whether a batch that was handed over then was the first one after a rest."""
        return at > self._at + REST

    def observe(self, seconds: float, now: float) -> None:
        """A batch took so long, until now."""
        self._at = now
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
