"""What the application's next poll() or flush() runs: reports of in-flight batches, of records that failed here,
events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any

from safeproducer.pipeline.reports.counted_report import CountedBunch
from safeproducer.runtime import interrupts
from safeproducer.runtime.log import logger

Run = Callable[[Any, Any], Any]
Report = tuple[Run, Any, Any]
"""(callable, first argument, second argument): a delivery callback, its error and its message, or an event's."""


class Bunch:
    """Delivered records of one callback, in order; or one failed record, or one event: those have no `size`.

    `size`: bytes of one record, about.

    One tuple for each record would stay long enough for the garbage collector to look through everything after each
    large batch.
    """

    __slots__ = ("first", "run", "seconds", "size")

    def __init__(self, run: Run, first: Any, seconds: deque[Any], size: int | None) -> None:
        self.run = run
        self.first = first
        self.seconds = seconds
        self.size = size

    @property
    def waiting(self) -> int:
        """Records, or events, whose report waits."""
        return len(self.seconds)


class Reports:
    """In the order in which they are run. Any thread may add and run, and so may a signal handler that interrupts it.

    What waits is counted when somebody asks: a number beside it would be wrong for good after a signal handler that
    raises between two steps. poll() asks `bunches`, the queue: one call less for each record.
    """

    __slots__ = ("_wakers", "bunches")

    def __init__(self) -> None:
        self.bunches: deque[Bunch | CountedBunch] = deque()
        self._wakers: list[Callable[[], object]] = []

    def subscribe(self, wake: Callable[[], object]) -> None:
        """Have `wake()` called whenever the queue becomes non-empty, on the thread that adds: it must not block.

        One call comes at once if something waits already. Whoever is woken runs reports until none are left. `wake`
        must not refer to the producer, which native callbacks would keep alive then. An exception of it is logged.
        """
        self._wakers.append(wake)  # one step: two threads may subscribe at once
        if self.bunches:
            _call(wake)

    def unsubscribe(self, wake: Callable[[], object]) -> None:
        """End that; a call that is under way may still come."""
        if wake in self._wakers:
            self._wakers.remove(wake)

    def _put(self, *bunches: Bunch | CountedBunch) -> None:
        was_empty = not self.bunches
        self.bunches.extend(bunches)
        if was_empty and self._wakers:
            self._wake()

    def _wake(self) -> None:
        for wake in self._wakers.copy():
            _call(wake)

    def __bool__(self) -> bool:
        return bool(self.bunches)

    @property
    def count(self) -> int:
        """How many records wait for their report."""
        return sum([bunch.waiting for bunch in self.bunches.copy() if bunch.size is not None])

    @property
    def bytes(self) -> int:
        """Of keys and values of the records whose reports wait, about."""
        return sum([bunch.waiting * (bunch.size or 0) for bunch in self.bunches.copy()])

    def add(self, run: Run, first: Any, second: Any, size: int = 0) -> None:
        self._put(Bunch(run, first, deque((second,)), size))

    def add_event(self, run: Run, first: Any, second: Any) -> None:
        """What is no record's report: poll() runs it, and nobody waits for it."""
        self._put(Bunch(run, first, deque((second,)), None))

    def add_delivered(self, run: Run, messages: deque[Any], size: int = 0) -> None:
        self._put(Bunch(run, None, messages, size))

    def add_counted(self, bunch: CountedBunch) -> None:
        self._put(bunch)

    def replace(self, others: deque[Any], reports: Iterable[Report]) -> None:
        """Add these and take as many of `others` away, in one step under the interpreter lock."""
        bunches = [Bunch(run, first, deque((second,)), 0) for run, first, second in reports]
        self.bunches.extend(map(itemgetter(0), zip(bunches, iter(others.popleft, None), strict=False)))
        self._wake()

    def delivered(self) -> Iterator[tuple[Run, Any]]:
        """(callable, message) of each report that waits and has no error."""
        for bunch in self.bunches.copy():
            if isinstance(bunch, Bunch) and bunch.first is None and bunch.size is not None:
                for message in bunch.seconds.copy():
                    yield bunch.run, message

    def counted(self) -> int:
        """How many delivered records wait to be counted."""
        return sum([bunch.waiting for bunch in self.bunches.copy() if isinstance(bunch, CountedBunch)])

    @interrupts.runs_reports
    def run(self) -> int:
        """Run them on the calling thread, until one raises; how many."""
        ran = 0
        bunches = self.bunches
        while bunches:
            try:
                bunch = bunches[0]
            except IndexError:  # another thread was quicker
                break
            if isinstance(bunch, CountedBunch):
                ran += bunch.count()
                self._forget(bunch)
                continue
            run, first, seconds = bunch.run, bunch.first, bunch.seconds
            while seconds:
                try:
                    second = seconds.popleft()
                except IndexError:
                    break
                ran += 1
                run(first, second)
            self._forget(bunch)
        return ran

    def _forget(self, bunch: Bunch | CountedBunch) -> None:
        try:  # noqa: SIM105 - a context manager for each bunch takes longer
            self.bunches.remove(bunch)
        except ValueError:
            pass


def _call(wake: Callable[[], object]) -> None:
    try:
        wake()
    except Exception:
        logger.exception("a function that reports are to wake raised")
