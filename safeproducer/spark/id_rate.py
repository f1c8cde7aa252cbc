"""How many producer IDs a query takes in an hour."""

from __future__ import annotations

from collections.abc import Iterable

HOUR = 3600.0


class IdRate:
    """Counts the producer IDs that were new within the last hour. One thread at a time; can be pickled.

    What it remembers is bounded by the IDs that were used within the hour.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[float, float]] = {}
        """Producer ID -> when it was first and last seen."""

    def count(self, producer_ids: Iterable[int], now: float) -> int:
        """Take note of the IDs of a micro-batch at `now` (seconds); how many IDs were new within the hour before."""
        for producer_id in producer_ids:
            first, _ = self._seen.get(producer_id, (now, now))
            self._seen[producer_id] = first, now
        self._seen = {known: times for known, times in self._seen.items() if times[1] > now - HOUR}
        return sum(first > now - HOUR for first, _ in self._seen.values())
