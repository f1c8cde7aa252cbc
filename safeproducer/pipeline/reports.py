"""What the application's next poll() or flush() runs: reports of fed batches, of records that failed here, events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Run = Callable[[Any, Any], Any]
Report = tuple[Run, Any, Any]
"""(callable, first argument, second argument): a delivery callback, its error and its message, or an event's."""


class Reports:
    """In the order in which they are run. Any thread may add and run; counts change by in-place addition.

    Delivered records of one callback come as a deque of messages. One tuple for each of them would stay long enough for
    the garbage collector to look through everything after each large batch.
    """

    __slots__ = ("_entries", "count")

    def __init__(self) -> None:
        self._entries: deque[tuple[Run, Any, Any]] = deque()
        self.count = 0
        """How many wait."""

    def add(self, run: Run, first: Any, second: Any) -> None:
        self.count += 1
        self._entries.append((run, first, second))

    def add_delivered(self, run: Run, messages: deque[Any]) -> None:
        count = len(messages)
        self.count += count  # before another thread can take of them
        self._entries.append((run, None, messages))

    def extend(self, reports: Iterable[Report]) -> None:
        for report in reports:
            self.add(*report)

    def delivered(self) -> Iterator[tuple[Run, Any]]:
        """(callable, message) of each report that waits and has no error."""
        for run, error, second in tuple(self._entries):
            if error is None:
                for message in tuple(second) if type(second) is deque else (second,):
                    yield run, message

    def run(self) -> int:
        """Run them on the calling thread, until one raises; how many."""
        ran = 0
        entries = self._entries
        while entries:
            entry = entries.popleft()
            run, first, second = entry
            if type(second) is not deque:
                self.count -= 1
                ran += 1
                run(first, second)
                continue
            try:
                while second:
                    message = second.popleft()
                    self.count -= 1
                    ran += 1
                    run(None, message)
            finally:
                if second:
                    entries.appendleft(entry)
        return ran
