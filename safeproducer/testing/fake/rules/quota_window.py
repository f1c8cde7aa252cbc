"""How Kafka measures a rate and how long it throttles for one that is too high (KIP-13, KIP-124). Pure.

A rate is measured over ``samples`` windows of ``window_ms`` each: ``quota.window.num`` and
``quota.window.size.seconds``, 11 and 1 s, which is ten whole windows and the running one. The rules are those of
Kafka 3.8 and later:

1. A window begins with the first recording in it, not on a grid. A recording at or after its end opens the next one.
2. A window is forgotten when its newest recording is ``samples`` windows old.
3. The time a sum is divided by runs from the beginning of the oldest window, and is at least ``samples`` - 1 whole
   windows and what has passed of the running one: a short history must not look like a high rate.
4. Equal to the quota is no violation.
5. The delay is the time after which the same sum would be no violation. It is an estimate, not a cure: the burst may
   still be inside the windows when the delay is over.

All times are milliseconds of the cluster's clock.
"""

import math
from dataclasses import dataclass

__all__ = ["SampledRate", "round_half_up"]


def round_half_up(value: float) -> int:
    """To the nearest whole number, halves upwards, as Java's ``Math.round`` does."""
    return math.floor(value + 0.5)


@dataclass(slots=True)
class _Window:
    start: int
    newest: int
    total: float = 0.0

    def clear(self, now: int) -> None:
        self.start = self.newest = now
        self.total = 0.0


class SampledRate:
    """A rate of late; not thread-safe. Measuring forgets old windows, so ``now`` must not go back."""

    def __init__(self, samples: int, window_ms: int) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._windows: list[_Window] = []
        self._current = 0

    def record(self, value: float, now: int) -> None:
        """Add to the running window; a negative value takes back what was recorded before."""
        window = self._running(now)
        window.total += value
        window.newest = now

    def _running(self, now: int) -> _Window:
        if not self._windows:
            self._windows.append(_Window(now, now))
        window = self._windows[self._current]
        if now - window.start < self._window_ms:
            return window
        # One slot more than samples: the oldest window may have begun before the time that is measured.
        self._current = (self._current + 1) % (self._samples + 1)
        if self._current == len(self._windows):
            self._windows.append(_Window(now, now))
        else:
            self._windows[self._current].clear(now)
        return self._windows[self._current]

    def _forget(self, now: int) -> None:
        for window in self._windows:
            if now - window.newest >= self._samples * self._window_ms:
                window.clear(now)

    def per_second(self, now: int) -> float:
        """The rate by rule 3; 0 if nothing was recorded."""
        self._forget(now)
        return sum(window.total for window in self._windows) / (self.window_ms(now) / 1000)

    def window_ms(self, now: int) -> int:
        """The divisor of the sum, 1 at least."""
        self._forget(now)
        elapsed = now - min((window.start for window in self._windows), default=now)
        missing = self._samples - 1 - elapsed // self._window_ms
        return max(elapsed + max(missing, 0) * self._window_ms, 1)

    def delay_ms(self, quota: float, now: int, most: int | None = None) -> int:
        """How long to throttle by rules 4 and 5, 0 if the quota (per second) is kept; ``most`` bounds it."""
        rate = self.per_second(now)
        if not rate > quota:  # nothing is above NaN, which may be set
            return 0
        delay = round_half_up((rate - quota) / quota * self.window_ms(now))
        return delay if most is None else min(delay, most)
