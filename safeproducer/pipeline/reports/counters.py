"""The per-record account of one producer.

Counters are plain integers changed by in-place addition. Under the interpreter lock that is one step: CPython looks
for signals and thread switches only at calls, at jumps backwards and at function entry, never between the load and
the store of `x.n += 1`. A test hammers it from many threads.

A partition is known at produce() only when the caller gives it; otherwise librdkafka chooses, and the report tells.
Therefore a record without a partition is accepted on its topic and resolved on a partition.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import attrgetter, index
from types import MethodType
from typing import Any, NamedTuple

from safeproducer.hooks import BulkReport
from safeproducer.kafka.callback_errors import CallbackErrors, discard_pending
from safeproducer.kafka.native import WITHOUT_OFFSET, KafkaError, Message
from safeproducer.pipeline.record import DeliveryCallback
from safeproducer.pipeline.reports.report_queue import CountedReport, ReportQueue
from safeproducer.policy.types import NEVER, TopicPartition
from safeproducer.runtime import clock, forks, interrupts

Bound = tuple[object, DeliveryCallback | None]

Explained = Callable[[KafkaError, Message], KafkaError]
Report = Callable[[DeliveryCallback, KafkaError | None, Message], None]

NOT_BOUND: Bound = (object(), None)
NO_NAMES: frozenset[str] = frozenset()
UNASSIGNED = -1
_INT = 2**31
_SUMS_LAST = 20  # sums are as old as that many times what it took to add them up, at most


def _no_callback(error: KafkaError | None, message: Message) -> None:
    """In place of None, which no method can be bound to."""


class Reporting(NamedTuple):
    """The parts that report callbacks of one producer share. `explained` makes the error that a callback is given.

    `offset_proves`: whether a record without an error and without an offset is not delivered, see WITHOUT_OFFSET.
    `accounts`, `reported`: all of them, side by side, to be added up; one that came second at its place stays at 0.
    """

    only_errors: bool
    errors: CallbackErrors
    report_queue: ReportQueue
    explained: Explained
    offset_proves: bool
    accounts: list[Account]
    reported: list[Resolved]


class Resolved:
    """Reports that arrived: without an error, and with one."""

    __slots__ = ("delivered", "failed")

    def __init__(self) -> None:
        self.delivered = self.failed = 0


class Account:
    """Records that produce() counts together. `bound` is the callback used last and the report callback composed for
    it; `names`, of headers that produce() took."""

    __slots__ = ("_report", "_reporting", "accepted", "bound", "names")

    def __init__(self, reporting: Reporting) -> None:
        self._reporting, self.accepted, self.bound, self.names = reporting, 0, NOT_BOUND, NO_NAMES
        self._report: Report | None = None

    def _made(self) -> Report:
        raise NotImplementedError

    def _sampled(self) -> Report:
        made, queue = self._made(), self._reporting.report_queue
        for durations in queue.reports.durations:
            made = durations.sampled(made, queue.running)
        return made

    def bind(self, callback: DeliveryCallback | None) -> Bound:
        """The report callback for `callback`; callers reuse it while the callback stays the same."""
        report = self._report = self._report or self._sampled()
        # Not a partial: the garbage collector would count two objects more for each record with a callback of its own.
        self.bound = bound = (callback, MethodType(report, _no_callback if callback is None else callback))
        return bound

    def release(self) -> None:
        """Forget the callback used last; a record without one finds its report callback."""
        if self.bound is not NOT_BOUND:
            self.bind(None)


class PartitionCounters(Account):
    """Records of one partition.

    `accepted` and `named`: those for which the caller named it; `placed`: reports of those for which librdkafka chose
    it.
    """

    __slots__ = ("named", "placed")

    def __init__(self, reporting: Reporting) -> None:
        super().__init__(reporting)
        self.named, self.placed = Resolved(), Resolved()

    def _made(self) -> Report:
        return _report(self.named, {}, self._reporting)


class TopicCounters(Account):
    """Records of one topic whose partition librdkafka chooses, and the accounts of its partitions."""

    __slots__ = ("partitions",)

    def __init__(self, reporting: Reporting) -> None:
        super().__init__(reporting)
        self.partitions: dict[int, PartitionCounters] = {}

    def _made(self) -> Report:
        """A report that counts on the partition which it names."""
        return _report(None, self.partitions, self._reporting)

    def explicit(self, partition: int) -> PartitionCounters:
        try:
            return self.partitions[partition]
        except KeyError:
            with suppress(TypeError):  # what is no number of a partition for librdkafka is not remembered
                if -_INT <= index(partition) < _INT:
                    return _opened(self.partitions, index(partition), self._reporting)
        except TypeError:  # unhashable
            pass
        return PartitionCounters(self._reporting)  # the native call refuses it with confluent_kafka's own error

    def placed(self, partition: int) -> Resolved:
        """Where those are counted for which librdkafka chose this partition."""
        return _opened(self.partitions, partition, self._reporting).placed

    def counted(self, callback: DeliveryCallback) -> CountedReport | None:
        """The report callback, as of bind(), where `callback` is called for errors alone; else None."""
        if not self._reporting.only_errors:
            return None
        report = self._report = self._report or self._sampled()
        return CountedReport(report, callback, self, self._reporting.offset_proves)


# librdkafka calls this for each record, on whichever thread serves, and a signal handler may raise anywhere in it. A
# record must count once: one that is kept for later is counted when it is run again, any other in one step, before the
# application's callback, which may raise.
def _report(named: Resolved | None, partitions: dict[int, PartitionCounters], reporting: Reporting) -> Report:
    """The report of a record. It counts where the caller `named` the partition, else on that of `partitions`."""
    only_errors, errors, report_queue, explained, offset_proves, *_ = reporting

    # A closure over the counts, not over the account: no cycle, and quicker than a method.
    @interrupts.called_natively
    def report(callback: DeliveryCallback, error: KafkaError | None, message: Message) -> None:
        try:
            offset: Any = message.offset()
        except:  # noqa: E722 - see discard_pending
            discard_pending(sys.exc_info())
            offset = message.offset()
        if error is not None or report_queue.on or (offset is None and offset_proves):
            if offset is None and error is None and offset_proves:
                error = WITHOUT_OFFSET
            if report_queue.takes(MethodType(report, callback), error, message):
                return
        counts = named
        if counts is None:
            number: Any = message.partition()
            try:
                counts = partitions[number].placed
            except KeyError:  # None: it failed before it was given one
                counts = _opened(partitions, UNASSIGNED if number is None else number, reporting).placed
        if error is None:
            counts.delivered += 1
            if only_errors and type(callback) is not BulkReport:
                return
        else:
            counts.failed += 1
            error = explained(error, message)
        if callback is not _no_callback:
            try:
                callback(error, message)
            except BaseException as raised:
                raise errors.note(raised)  # noqa: B904 - see StandIn

    return report


def _opened(partitions: dict[int, PartitionCounters], number: int, reporting: Reporting) -> PartitionCounters:
    made = PartitionCounters(reporting)
    reporting.accounts.append(made)  # before anything can be counted there
    reporting.reported.extend((made.named, made.placed))
    # setdefault: two threads may find the same partition missing at once, and both must count on one account.
    return partitions.setdefault(number, made)


class DeliveryCounters:
    """The accounts of one producer, by topic. Shared by every thread that produces or polls."""

    def __init__(
        self,
        only_errors: bool,
        explained: Explained = lambda error, _: error,
        offset_proves: bool = False,
        durations: Sequence[Any] = (),
    ) -> None:
        self.topics: dict[str, TopicCounters] = {}
        self._sums: dict[str | None, tuple[float, tuple[int, ...]]] = {}
        self.interrupts = 0
        self.only_errors = only_errors
        self.errors = CallbackErrors()
        self.report_queue = ReportQueue(durations)
        for each in durations:
            explained = each.explaining(explained)
        self._reporting = Reporting(only_errors, self.errors, self.report_queue, explained, offset_proves, [], [])

    def not_interrupted(self) -> None:
        """A call raised what is no signal handler's."""
        self.interrupts -= 1

    def open(self, topic: Any) -> TopicCounters:
        """The account of a topic seen for the first time."""
        forks.notice()
        if not isinstance(topic, str):  # refused by the native call with its own error; nothing to remember
            return TopicCounters(self._reporting)
        made = TopicCounters(self._reporting)
        self._reporting.accounts.append(made)
        return self.topics.setdefault(str.__str__(topic), made)  # may be an enumeration's

    def release_callbacks(self) -> None:
        """Forget the callback that each account was given last, until its next record: it may be all that keeps a
        payload alive, or the producer itself, as a method of the object that owns it. Any thread, at any time."""
        for topic in list(self.topics.values()):
            topic.release()
            for row in list(topic.partitions.values()):
                row.release()

    def answers(self, tp: TopicPartition, now: bool = False) -> tuple[int, ...]:
        """Records of a partition, or of a topic with -1, that were delivered so far, and that failed, polled or not."""
        if tp[1] == UNASSIGNED and not now:
            return self.lately(tp[0])
        delivered = failed = 0
        rows = {} if (topic := self.topics.get(tp[0])) is None else topic.partitions
        waiting = self.report_queue.reports.waiting_of
        for number in list(rows) if tp[1] == UNASSIGNED else (tp[1],):
            delivered += waiting.get((tp[0], number, True), 0)
            failed += waiting.get((tp[0], number, False), 0)
            if (row := rows.get(number)) is not None:
                delivered += row.named.delivered + row.placed.delivered
                failed += row.named.failed + row.placed.failed
        return delivered, failed

    @property
    def accepted(self) -> int:
        """Records accepted so far, or until lately."""
        return self.lately()[0]

    def lately(self, topic: str | None = None) -> tuple[int, ...]:
        """totals(), or answers() of a topic, or what they were a while ago: many partitions take long to add up."""
        until, found = self._sums.get(topic, (-NEVER, ()))
        if (began := clock.monotonic()) >= until:
            found = self.totals() if topic is None else self.answers((topic, UNASSIGNED), now=True)
            ended = clock.monotonic()
            self._sums[topic] = ended + _SUMS_LAST * (ended - began), found  # one step: any thread may come
        return found

    def totals(self) -> tuple[int, int, int]:
        """(accepted, delivered, failed). Reports are read first, so that accepted is never the smaller one."""
        reported = self._reporting.reported  # thousands are added up in C
        delivered, failed = sum(map(attrgetter("delivered"), reported)), sum(map(attrgetter("failed"), reported))
        accepted = sum(map(attrgetter("accepted"), self._reporting.accounts))
        return accepted, delivered, failed

    def outstanding(self, queued: int) -> tuple[int, int]:
        """(unresolved, interrupted), given how much librdkafka still holds.

        A signal can stop a report after librdkafka gave it away and before it was counted; only then do the counters
        claim more than librdkafka holds.
        """
        accepted, delivered, failed = self.totals()
        missing = max(0, accepted - delivered - failed)
        interrupted = min(self.interrupts, max(0, missing - queued))
        return missing - interrupted, interrupted

    def written(self) -> Counter[TopicPartition]:
        """How many records of each partition are certainly written, and wait for a poll() to be counted."""
        return self.report_queue.reports.by_partition(self.topics.copy(), self._is_written)

    def acknowledged(self) -> list[Callable[..., Any]]:
        """Reports of written records that wait, but for those that need only be counted."""
        return [run for run, error, message in self.report_queue.reports.each() if self._is_written(error, message)]

    def _is_written(self, error: KafkaError | None, message: Message) -> bool:
        return error is None and not (self._reporting.offset_proves and message.offset() is None)
