"""How soon another native producer may follow one that failed, and when its producer epochs are used up.

Each takes a producer ID (KIP-936). An error that comes back at once must not take one after the other: a bucket of a
quarter of the permit rate bounds how many there are in the long run, and a pause that doubles how many in a row.
"""

from __future__ import annotations

from dataclasses import dataclass

from safeproducer.policy.types import NEVER

HOUR = 3600.0
SHARE = 1 / 4
"""Share of an hour's producer IDs."""
SHORTEST, LONGEST = 0.1, 5.0
"""Seconds between two; it doubles until a record is acknowledged."""


class Renewals:
    """The sender's thread calls. Times are seconds of its clock; `rate`: producer IDs an hour."""

    def __init__(self, rate: float) -> None:
        self._most = max(1.0, SHARE * rate)
        self._each = HOUR / (SHARE * rate)
        self._used_until = self._made_at = -NEVER
        self._pause = 0.0
        self._delivered = 0

    def due(self, now: float, delivered: int) -> float:
        """When the next one may be made, `now` at the earliest; so many records were delivered."""
        return max(now, self._made_at + self._next_pause(delivered), self._used_until - (self._most - 1) * self._each)

    def made(self, now: float, delivered: int) -> None:
        """One was."""
        self._pause = self._next_pause(delivered) if self._pause and delivered == self._delivered else SHORTEST / 2
        self._used_until = max(self._used_until, now) + self._each
        self._made_at, self._delivered = now, delivered

    def _next_pause(self, delivered: int) -> float:
        return SHORTEST if delivered > self._delivered else min(LONGEST, 2 * self._pause)


LATEST = 32_000
"""A producer ID has 32 768 epochs. librdkafka goes on at 0 behind the last one, and brokers refuse each batch then."""
FENCED = 3
"""Batches in a row that are answered INVALID_PRODUCER_EPOCH are no accident."""


@dataclass(slots=True)
class Epochs:
    """One native producer has them. The sender's thread calls."""

    _first: int | None = None
    _last: int = -1
    _fenced: int = 0
    _before: tuple[int, int, int] = (0, 0, 0)

    def used_up(self, epoch: int | None) -> bool:
        """Whether it needs another producer ID, as statistics show this epoch; one that began so late has no other."""
        if epoch is None:
            return False
        self._first = epoch if self._first is None else self._first
        before, self._last = self._last, epoch
        return epoch < before or epoch >= max(LATEST, self._first + 1)

    def only_fenced(self, requests: int, acknowledged: int, refused: int) -> bool:
        """The same by counts, for a lane whose batches are not known: requests, records acknowledged, records refused.

        Since the last counts there were as many requests, none was acknowledged, and records were refused.
        """
        sent, before, fenced = self._before
        only = acknowledged == before and refused > fenced
        if only and requests < sent + FENCED:
            return False  # too few to tell
        self._before = requests, acknowledged, refused
        return only

    def fenced(self, refused: bool) -> bool:
        """The same, as a batch was answered INVALID_PRODUCER_EPOCH, or not."""
        self._fenced = self._fenced + 1 if refused else 0
        return self._fenced >= FENCED
