"""Reports that the next poll() or flush() runs: of in-flight batches, of records that failed here; events.

Where the application asks for errors alone, a batch lane keeps a number in place of delivered messages, and poll()
counts them in one step. Reports are kept for later that are served while the application does not poll, or are not
understood yet; an error among them has the moment and what would be forgotten meanwhile (`DatedError`).
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from safeproducer.errors import DeliveryError, flags_of
from safeproducer.kafka.native import WITHOUT_OFFSET, KafkaError
from safeproducer.pipeline.reports.quota_rejections import QuotaRejections
from safeproducer.policy.types import NEVER, TopicPartition
from safeproducer.runtime import clock, interrupts
from safeproducer.runtime.log import logger
from safeproducer.runtime.threads import get_ident

Run = Callable[[Any, Any], Any]
Of = tuple[str | None, int | None, bool]  # (topic, partition, whether they are delivered)
Report = tuple[Run, Any, Any]
"""(callable, first argument, second argument): a delivery callback, its error and its message, or an event's."""


class Delivered(Protocol):
    delivered: int


class TopicAccount(Protocol):
    """The account of a topic."""

    def placed(self, partition: int) -> Delivered:
        """Records of that partition for which the caller named none."""
        ...


class CountedReport(partial[Any]):
    """Called, it is the report of one record. `offset_proves` as in counters.Reporting."""

    def __new__(cls, report: Any, callback: Any, *_: Any) -> CountedReport:
        return super().__new__(cls, report, callback)

    def __init__(self, report: Any, callback: Any, account: TopicAccount, offset_proves: bool) -> None:
        self.account = account
        self.offset_proves = offset_proves


class CountedBunch:
    """Delivered records of one partition, among the bunches of Reports; nothing of them is in memory any more."""

    __slots__ = ("partition", "report", "waiting")
    first, size, seconds = None, 0, ()

    def __init__(self, report: CountedReport, partition: int, count: int) -> None:
        self.report = report
        self.partition = partition
        self.waiting = count

    def count(self) -> int:
        """Count all of them; how many."""
        account = self.report.account.placed(self.partition)
        # One step under the interpreter lock: another thread, or a signal handler, may be here, too.
        count, self.waiting = self.waiting, 0
        account.delivered += count
        return count


class Bunch:
    """Delivered records of one callback, in order; or one failed record, or one event: those have no `size`.

    `size`: bytes of one record, about. `of`: as what they count in `Reports.waiting_of`, until they begin to run.

    One tuple for each record would stay long enough for the garbage collector to look through everything after each
    large batch.
    """

    __slots__ = ("first", "of", "run", "seconds", "size")

    def __init__(self, run: Run, first: Any, seconds: deque[Any], size: int | None, of: Of | None = None) -> None:
        self.of = of
        self.run = run
        self.first = first
        self.seconds = seconds
        self.size = size

    def begin(self) -> Of | None:
        of, self.of = self.of, None
        return of

    @property
    def waiting(self) -> int:
        """Records, or events, whose report waits."""
        return len(self.seconds)


class Reports:
    """In the order in which they are run. Any thread may add and run, and so may a signal handler that interrupts it.

    What waits is counted when somebody asks: a number beside it would be wrong for good after a signal handler that
    raises between two steps. poll() asks `bunches`, the queue: one call less for each record.
    """

    __slots__ = ("_wakers", "bunches", "durations", "since", "waiting_of")

    def __init__(self, durations: Sequence[Any] = ()) -> None:
        self.durations = durations
        self.bunches: deque[Bunch | CountedBunch] = deque()
        self.since = 0.0  # when the queue became non-empty last
        self._wakers: list[Callable[[], object]] = []
        self.waiting_of: defaultdict[Of | None, int] = defaultdict(int)
        """How many records wait, by partition, where that is known. A signal handler that raises may leave too many,
        and a bunch that it stops too few: with those that were counted it only tells that an answer came."""

    def subscribe(self, wake: Callable[[], object]) -> None:
        """Have `wake()` called whenever the queue becomes non-empty, on the thread that adds: it must not block.

        One call comes at once if something waits already. Whoever is woken runs reports until none are left. `wake`
        must not refer to the producer, which native callbacks would keep alive then. An exception of it is logged.
        """
        self._wakers.append(wake)  # one step: two threads may subscribe at once
        if self.bunches:
            _call(wake)

    def unsubscribe(self, wake: Callable[[], object]) -> None:
        """End the calls of `wake`; one that is under way may still come."""
        if wake in self._wakers:
            self._wakers.remove(wake)

    def _put(self, *bunches: Bunch | CountedBunch) -> None:
        was_empty = not self.bunches
        self.bunches.extend(bunches)
        if was_empty:
            self.since = clock.monotonic()
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

    def by_partition(
        self, topics: Mapping[str, TopicAccount], counts: Callable[[Any, Any], bool] = lambda error, message: True
    ) -> Counter[TopicPartition]:
        """Records of each partition (-1: of none) whose report waits, of those that `counts(error, message)`."""
        names, found = {id(account): name for name, account in topics.items()}, Counter[TopicPartition]()
        for bunch in self.bunches.copy():
            if isinstance(bunch, CountedBunch):
                found[names[id(bunch.report.account)], bunch.partition] += bunch.waiting
            elif bunch.size is not None:
                told = [it for it in bunch.seconds.copy() if counts(bunch.first, it)]
                places = [(it.topic(), it.partition()) for it in told]
                found.update((topic, -1 if number is None else number) for topic, number in places)
        return found

    @property
    def bytes(self) -> int:
        """Bytes of keys and values of the records whose reports wait, about."""
        return sum([bunch.waiting * (bunch.size or 0) for bunch in self.bunches.copy()])

    def add(self, run: Run, first: Any, second: Any, size: int = 0, of: Of | None = None) -> None:
        self.waiting_of[of] += 1
        self._put(Bunch(run, first, deque((second,)), size, of))

    def add_event(self, run: Run, first: Any, second: Any) -> None:
        """An event is no record's report: poll() runs it, and nobody waits for it."""
        self._put(Bunch(run, first, deque((second,)), None))

    def add_delivered(self, run: Run, messages: deque[Any], size: int = 0, of: Of | None = None) -> None:
        count = len(messages)
        self.waiting_of[of] += count  # as each change of it one step: nothing is called meanwhile
        self._put(Bunch(run, None, messages, size, of))

    def add_counted(self, bunch: CountedBunch) -> None:
        self._put(bunch)

    def replace(self, others: deque[Any], reports: Iterable[Report]) -> None:
        """Add these and take as many of `others` away, in one step under the interpreter lock."""
        bunches = [Bunch(run, first, deque((second,)), 0) for run, first, second in reports]
        self.bunches.extend(map(itemgetter(0), zip(bunches, iter(others.popleft, None), strict=False)))
        self._wake()

    def each(self) -> list[Report]:
        """Reports of records that wait, but for records that need only be counted."""
        records = [bunch for bunch in self.bunches.copy() if isinstance(bunch, Bunch) and bunch.size is not None]
        return [(bunch.run, bunch.first, message) for bunch in records for message in bunch.seconds.copy()]

    @interrupts.runs_reports
    def run(self, most: float = NEVER) -> int:
        """Run up to `most` reports here, or until one raises; how many. Those only counted go in one step."""
        # Several threads may be in here, and a callback may raise, or call poll() again. A report is taken out before
        # it runs: none runs twice, and behind one that raised the rest is left for the next call.
        ran = 0
        bunches = self.bunches
        while bunches and ran < most:
            try:
                bunch = bunches[0]
            except IndexError:  # another thread was quicker
                break
            if isinstance(bunch, CountedBunch):
                ran += bunch.count()
                self._forget(bunch)
                continue
            run, first, seconds = bunch.run, bunch.first, bunch.seconds
            if bunch.of is not None:
                count, of = len(seconds), bunch.begin()
                self.waiting_of[of] -= count
                if self.waiting_of[of] <= 0:  # one step with the next line
                    del self.waiting_of[of]
            while seconds and ran < most:
                try:
                    second = seconds.popleft()
                except IndexError:
                    break
                ran += 1
                run(first, second)
            if not seconds:
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


class DatedError(KafkaError):
    """`error` as librdkafka gave it: served now, of a record that produce() took `age` seconds ago, if that is known.

    The age that a Message tells is of the moment when it was served.
    """

    def __init__(self, error: KafkaError, age: float | None = None) -> None:
        super().__init__(error.code(), error.str(), **flags_of(error))
        self.served_at = clock.time()
        self.accepted_at = None if age is None else self.served_at - age


def dated(error: KafkaError) -> KafkaError:
    """`error` with the moment, unless it says enough, or is known by its identity."""
    if error is WITHOUT_OFFSET or isinstance(error, DatedError | DeliveryError):
        return error
    return DatedError(error)


class Deferred(NamedTuple):
    """A failed report that was served between `since` and `by`, in seconds of clock.monotonic()."""

    run: Any
    error: Any
    message: Any
    since: float
    by: float


class ReportQueue:
    """`reports` wait for the application's next poll().

    `thread` is the sender's while it serves the direct lane, else 0. While `purged`, failed reports go to `deferred`:
    what became of them is told by statistics that come later. `on`: whether to ask `takes()`. `failed_at`: when a
    failed record's report was last kept for later. `rejections`: who keeps those of a quota. `over`: the interpreter
    ends, and whoever serves runs no callback any more. `running`: threads that run a report now.
    """

    def __init__(self, durations: Sequence[Any] = ()) -> None:
        self.on = self.over = False
        self.failed_at = 0.0
        self.thread = 0
        self.purged = False
        self.rejections: QuotaRejections | None = None
        self.reports = Reports(durations)
        self.deferred: deque[Deferred] = deque()
        self.running: set[int] = set()
        self._purged_since = 0.0
        self._heard: dict[int, float] = {}

    @property
    def here(self) -> bool:
        """Whether the calling thread serves for an application that does not poll."""
        return self.over or (self.thread != 0 and self.thread == get_ident())

    def serve_on(self, thread: int) -> None:
        """The sender begins to serve the direct lane on this thread; 0 when it has ended."""
        self.thread = thread
        self.decide()

    def end(self, over: bool) -> None:
        """Keep every report from now on; or no more."""
        self.over = over
        self.decide()

    def defer(self, purged: bool) -> None:
        """Keep the reports of a purge from now on, or no more."""
        self._purged_since, self._heard = clock.monotonic(), {}
        self.purged = purged
        self.decide()

    def tell(self, reports: Iterable[Report]) -> None:
        """The reports of as many that were kept: each is counted here or there at every moment."""
        self.reports.replace(self.deferred, reports)

    def decide(self) -> None:
        """Whether reports have to be looked at one by one."""
        rejections = self.rejections
        self.on = self.over or self.purged or self.thread != 0 or (rejections is not None and rejections.count > 0)

    def takes(self, run: Any, error: Any, message: Any) -> bool:
        """Whether this report is kept here instead of being run now."""
        if self.rejections is not None and self.rejections.takes(run, error, message):
            self.on = True
            return True
        if error is not None and not isinstance(error, DeliveryError) and self.purged:
            thread, heard, now = get_ident(), self._heard, clock.monotonic()
            # One thread is given one report after the other.
            self.deferred.append(Deferred(run, dated(error), message, heard.get(thread, self._purged_since), now))
            heard[thread] = now
            return True
        if self.here:
            if error is not None:
                self.failed_at = clock.monotonic()
                error = dated(error)
            self.reports.add(run, error, message, len(message), (message.topic(), message.partition(), error is None))
            return True
        return False

    def note_headers(self, topic: Any, headers: Any) -> None:
        """A record of it may have headers, which its report does not tell. Any thread."""
        if headers is not None and self.rejections is not None and isinstance(topic, str):
            self.rejections.with_headers.add(topic)

    def run(self, most: float = NEVER) -> int:
        """Run `most` of what is queued, on the application's thread; how many. Raises what a callback raises."""
        thread, running = get_ident(), self.running
        fresh = thread not in running
        try:
            running.add(thread)  # a record takes room until its callback has run
            return self.reports.run(most)
        finally:
            if fresh:
                running.discard(thread)

    @property
    def records(self) -> int:
        """Whose reports are kept here or being run, in the order in which they go from one to the next."""
        return len(self.deferred) + self.reports.count + len(self.running)

    @property
    def bytes(self) -> int:
        """Bytes of the records whose reports are kept here, about."""
        return self.reports.bytes + sum([len(kept.message) for kept in self.deferred.copy()])
