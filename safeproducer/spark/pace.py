"""How much a task may have under way, so that brokers take each row before it is too late. Decides from its arguments.

The deadline of a row begins when the producer accepts it, and its buffer takes 100 000 rows at once: throttled brokers
may need minutes for them.
"""

from __future__ import annotations

AT_ONCE = 4 << 20
"""Bytes of keys and values that may be under way whatever brokers take, and that are sent without a look at it."""
_LOOK_EVERY = AT_ONCE // 2
_BURST, _BURST_SECONDS, _BURST_DEADLINE = 4, 1.0, 15.0
"""The first second takes 4 times as much, once for each 15 s of the deadline at most: how much brokers take shows
only then, and quick ones must not wait for it."""
_PART_OF_DEADLINE = 0.125
"""One broker of several may take less than its share, and serve its partitions one after the other."""


def most_rows(rows: int, size: int) -> int:
    """How many of `rows` with `size` bytes to send without a look."""
    return rows if size <= AT_ONCE else max(1, rows * AT_ONCE // size)


class Pace:
    """The pace of one attempt, which began at `now`. `deadline`: seconds of a row."""

    def __init__(self, deadline: float, now: float) -> None:
        self._within = deadline * _PART_OF_DEADLINE
        self._burst = max(1.0, min(_BURST, deadline / _BURST_DEADLINE))
        self._began = now
        self._rows = self._bytes = self._unseen = 0

    def sent(self, rows: int, size: int) -> None:
        """Count these rows and bytes."""
        self._rows += rows
        self._bytes += size
        self._unseen += size

    def is_to_look(self) -> bool:
        """Whether enough was sent since the last look: to count what is under way costs more than a row."""
        return self._unseen >= _LOOK_EVERY

    def is_ahead(self, under_way: int, now: float) -> bool:
        """Whether more rows are under way than brokers take in a part of the deadline, at the rate of the attempt so
        far. No more than they have taken so far: a quota lets a burst pass before it throttles."""
        size = self._bytes / max(1, self._rows)
        at_once = AT_ONCE * self._burst if now < self._began + _BURST_SECONDS else AT_ONCE
        taken = (self._rows - under_way) * min(1.0, self._within / max(1e-3, now - self._began))
        ahead = under_way * size > max(at_once, taken * size)
        self._unseen = self._unseen if ahead else 0  # look again until it is not
        return ahead
