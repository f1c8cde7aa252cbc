"""How many producer IDs a query takes in an hour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

HOUR = 3600.0

Writer = tuple[str, int]
"""Host and process ID of a Python worker."""


class Used(NamedTuple):
    """How many IDs a worker's producer has used over its life; `new`: it was made in this micro-batch."""

    ids: int
    new: bool


class IdRate:
    """Counts the producer IDs that were taken within the last hour. One thread at a time; can be pickled.

    Counts what the workers say they used, not the IDs that are known: a worker that lives for one short task never
    knows its own. It remembers at most the workers and IDs of an hour.
    """

    def __init__(self) -> None:
        self._used: dict[Writer, tuple[int, float]] = {}
        """How many IDs each worker had used, and when it said so last."""
        self._taken: list[tuple[float, int]] = []
        """When how many were new."""

    def count(self, used: Mapping[Writer, Used], now: float) -> int:
        """Take note of a micro-batch at `now` (seconds); how many IDs were new within the hour that ends there."""
        fresh = 0
        for writer, (ids, new) in used.items():
            before = 0 if new else self._used.get(writer, (0, now))[0]
            fresh += max(0, ids - before)
            self._used[writer] = ids, now
        if fresh:
            self._taken.append((now, fresh))
        self._taken = [(when, count) for when, count in self._taken if when > now - HOUR]
        self._used = {writer: (ids, seen) for writer, (ids, seen) in self._used.items() if seen > now - HOUR}
        return sum(count for _, count in self._taken)
