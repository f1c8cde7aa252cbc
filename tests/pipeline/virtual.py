"""A clock and a timetable that move only when somebody waits: what takes minutes on a network takes milliseconds."""

import heapq
from collections.abc import Callable
from itertools import count

TICK = 1e-6
"""Seconds that each look at the clock takes, so that a loop which only looks still gets on."""
_EPOCH = 1_700_000_000.0


class VirtualTime:
    """Stands for the module `time` in what is tested, and runs what is due whenever it is moved on."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()

    def monotonic(self) -> float:
        self.now += TICK
        return self.now

    def time(self) -> float:
        return _EPOCH + self.now

    def since_epoch(self, milliseconds: int) -> float:
        """When a record timestamp was taken; 0 for none."""
        return milliseconds / 1000 - _EPOCH if milliseconds else 0.0

    def at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (max(when, self.now), next(self._number), action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.at(self.now + seconds, action)

    def catch_up(self) -> None:
        while self._due and self._due[0][0] <= self.now:
            heapq.heappop(self._due)[2]()

    def step(self, limit: float) -> bool:
        """Move on to the next thing that happens, at most to `limit`; whether that is still ahead."""
        if self._due and self._due[0][0] <= limit:
            when, _, action = heapq.heappop(self._due)
            self.now = max(self.now, when)
            action()
        else:
            self.now = max(self.now, limit)
        return self.now < limit

    def pass_(self, seconds: float) -> None:
        """Let time pass with nobody looking."""
        end = self.now + seconds
        while self.step(end):
            pass
