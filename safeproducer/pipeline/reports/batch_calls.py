"""What calls of the native produce_batch() took, which librdkafka does not count, as it was at any moment."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from safeproducer.policy.types import NEVER
from safeproducer.runtime import clock


class BatchCount(NamedTuple):
    """Records that the native produce_batch() may have taken by a moment, and those that it certainly had."""

    most: int = 0
    least: int = 0


class BatchCall:
    """One call of the native produce_batch(), begun now; it took `count` records, or will take as many at most."""

    __slots__ = ("began", "count", "ended")

    def __init__(self, count: int) -> None:
        self.count = count
        self.began = clock.monotonic()
        self.ended = NEVER

    def end(self, taken: int) -> None:
        self.count = taken
        self.ended = clock.monotonic()


class Batches:
    """The calls of the native produce_batch() for one partition; none is `kept` where nobody calls by()."""

    __slots__ = ("_calls", "_earlier", "_kept")

    def __init__(self, kept: bool) -> None:
        self._calls: deque[BatchCall] = deque()
        self._earlier = 0
        self._kept = kept

    def begin(self, count: int) -> BatchCall:
        call = BatchCall(count)
        if self._kept:
            self._calls.append(call)
        return call

    def __bool__(self) -> bool:
        return bool(self._earlier or self._calls)

    def by(self, now: float) -> BatchCount:
        """Counts as they were at `moment`. One thread asks, and never for an earlier moment than before."""
        calls = self._calls
        while calls and calls[0].ended <= now:
            count = calls.popleft().count
            self._earlier += count
        later = tuple(calls)
        return BatchCount(
            self._earlier + sum(call.count for call in later if call.began <= now),
            self._earlier + sum(call.count for call in later if call.ended <= now),
        )
