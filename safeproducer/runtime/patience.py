"""Waiting for what other threads or processes do, by asking again and again.

The pauses grow, and none is as long as another: thirty processes that are started at once must leave the processor to
the one that they wait for.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from safeproducer.runtime import clock

_FIRST, _LONGEST = 50e-6, 1e-3
_STARVED = 1.6  # times as long at most, for a process that sleeps for longer than it asked to, without a processor


class Patience:
    """Sleeps for `seconds` together, as it asked to; `starved` times as long at most by the clock. One thread."""

    def __init__(self, seconds: float, starved: float = _STARVED) -> None:
        self._left = seconds
        self._longest = seconds * starved
        self._end: float | None = None
        self._pause = _FIRST

    def sleep(self) -> bool:
        """False when it is at its end, and does not sleep."""
        now = clock.real()
        self._end = now + self._longest if self._end is None else self._end  # most need no patience
        if self._left <= 0.0 or now >= self._end:
            return False
        pause = min(self._pause * (0.5 + time.perf_counter_ns() // 100 % 1000 / 1000), self._left)
        time.sleep(pause)
        self._left -= pause + _FIRST  # a sleep takes about so much longer than was asked for
        self._pause = min(2 * self._pause, _LONGEST)
        return True


def until(condition: Callable[[], bool], patience: Patience) -> bool:
    """Wait until it holds; False when it does not by the end of patience."""
    while not condition():
        if not patience.sleep():
            return False
    return True
