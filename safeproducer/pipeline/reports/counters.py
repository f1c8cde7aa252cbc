"""The per-record account of one producer.

Counters are plain integers changed by in-place addition. Under the interpreter lock that is one step: CPython looks
for signals and thread switches only at calls, at jumps backwards and at function entry, never between the load and
the store of `x.n += 1`. A test hammers it from many threads.

A partition is known at produce() only when the caller gives it; otherwise librdkafka chooses, and the report tells.
Therefore a record without a partition is accepted on its topic and resolved on a partition.

Records that calls of the native produce_batch() took, which librdkafka does not count, as it was at any moment.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from operator import index
from types import MethodType
from typing import Any, NamedTuple

from safeproducer.hooks import BulkReport
from safeproducer.kafka.callback_errors import CallbackErrors, discard_pending
from safeproducer.kafka.native import WITHOUT_OFFSET, KafkaError, Message
from safeproducer.pipeline.record import DeliveryCallback
from safeproducer.pipeline.reports.report_queue import CountedReport, ReportQueue
from safeproducer.policy.types import NEVER, TopicPartition
from safeproducer.runtime import clock, forks, interrupts


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


Bound = tuple[object, DeliveryCallback | None]

Explained = Callable[[KafkaError, Message], KafkaError]

NOT_BOUND: Bound = (object(), None)
NO_NAMES: frozenset[str] = frozenset()
UNASSIGNED = -1
_INT = 2**31


def _as_it_is(error: KafkaError, message: Message) -> KafkaError:
    return error


def _no_callback(error: KafkaError | None, message: Message) -> None:
    """In place of None, which no method can be bound to."""


@dataclass(frozen=True, slots=True)
class Reporting:
    """What the report callbacks of one producer share. `explained` makes the error that a callback is given.

    `offset_proves`: whether a record without an error and without an offset is not delivered, see WITHOUT_OFFSET.
    `times_batches`: whether somebody asks how many records batch calls had taken by a moment.
    """

    only_errors: bool
    errors: CallbackErrors
    report_queue: ReportQueue
    explained: Explained
    offset_proves: bool
    times_batches: bool


class Resolved:
    """Reports that arrived: without an error, and with one."""

    __slots__ = ("delivered", "failed")

    def __init__(self) -> None:
        self.delivered = self.failed = 0


class PartitionCounters:
    """Records of one partition.

    `accepted` and `named`: those for which the caller named it; `placed`: reports of those for which librdkafka chose
    it. `batches`: those of `accepted` that the native produce_batch() took. `bound` is the callback used last and the
    report callback composed for it; `names`, of headers that produce() took.
    """

    __slots__ = ("_report", "accepted", "batches", "bound", "named", "names", "placed")

    def __init__(self, reporting: Reporting) -> None:
        self.accepted, self.bound, self.names = 0, NOT_BOUND, NO_NAMES
        self.batches = Batches(reporting.times_batches)
        self.named = named = Resolved()
        self.placed = Resolved()
        report_queue, errors, explained = reporting.report_queue, reporting.errors, reporting.explained
        only_errors, offset_proves = reporting.only_errors, reporting.offset_proves

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
            if error is None:
                named.delivered += 1
                if only_errors and type(callback) is not BulkReport:
                    return
            else:
                named.failed += 1
                error = explained(error, message)
            if callback is not _no_callback:
                try:
                    callback(error, message)
                except BaseException as raised:
                    raise errors.note(raised)  # noqa: B904 - see StandIn

        self._report = report

    def bind(self, callback: DeliveryCallback | None) -> Bound:
        """The report callback for `callback`; callers reuse it while the callback stays the same."""
        # Not a partial: the garbage collector would count two objects more for each record with a callback of its own.
        self.bound = bound = (callback, MethodType(self._report, _no_callback if callback is None else callback))
        return bound


class TopicCounters:
    """Records of one topic whose partition librdkafka chooses, and the accounts of its partitions."""

    __slots__ = ("_report", "_reporting", "accepted", "bound", "names", "partitions")

    def __init__(self, reporting: Reporting) -> None:
        self.accepted = 0
        self.partitions: dict[int, PartitionCounters] = {}
        self._reporting, self.bound, self.names = reporting, NOT_BOUND, NO_NAMES
        partitions = self.partitions
        report_queue, errors, explained = reporting.report_queue, reporting.errors, reporting.explained
        only_errors, offset_proves = reporting.only_errors, reporting.offset_proves

        # Most of it stands in PartitionCounters, too: one more call for each record would be felt.
        @interrupts.called_natively
        def report(callback: DeliveryCallback, error: KafkaError | None, message: Message) -> None:
            try:
                number: Any = message.partition()
            except:  # noqa: E722 - see discard_pending
                discard_pending(sys.exc_info())
                number = message.partition()
            if error is not None or report_queue.on or (offset_proves and message.offset() is None):
                if error is None and offset_proves and message.offset() is None:
                    error = WITHOUT_OFFSET
                if report_queue.takes(MethodType(report, callback), error, message):
                    return
            try:
                placed = partitions[number].placed
            except KeyError:  # None: it failed before it was given one
                placed = _opened(partitions, UNASSIGNED if number is None else number, reporting).placed
            if error is None:
                placed.delivered += 1
                if only_errors and type(callback) is not BulkReport:
                    return
            else:
                placed.failed += 1
                error = explained(error, message)
            if callback is not _no_callback:
                try:
                    callback(error, message)
                except BaseException as raised:
                    raise errors.note(raised)  # noqa: B904 - see StandIn

        self._report = report

    def explicit(self, partition: int) -> PartitionCounters:
        try:
            return self.partitions[partition]
        except KeyError:
            if _is_number(partition):
                return _opened(self.partitions, index(partition), self._reporting)
        except TypeError:  # unhashable
            pass
        return PartitionCounters(self._reporting)  # the native call refuses it with confluent_kafka's own error

    def placed(self, partition: int) -> Resolved:
        """Where those are counted for which librdkafka chose this partition."""
        return _opened(self.partitions, partition, self._reporting).placed

    def counted(self, callback: DeliveryCallback) -> CountedReport | None:
        """As bind(), where `callback` is called for errors alone; else None."""
        reporting = self._reporting
        return CountedReport(self._report, callback, self, reporting.offset_proves) if reporting.only_errors else None

    def bind(self, callback: DeliveryCallback | None) -> Bound:
        """As PartitionCounters.bind(), counting on the partition the report names."""
        self.bound = bound = (callback, MethodType(self._report, _no_callback if callback is None else callback))
        return bound


def _is_number(partition: Any) -> bool:
    """Whether librdkafka takes it for the number of a partition: what it refuses is not remembered."""
    try:
        return -_INT <= index(partition) < _INT
    except TypeError:
        return False


def _opened(partitions: dict[int, PartitionCounters], number: int, reporting: Reporting) -> PartitionCounters:
    # setdefault: two threads may find the same partition missing at once, and both must count on one account.
    return partitions.setdefault(number, PartitionCounters(reporting))


class DeliveryCounters:
    """The accounts of one producer, by topic. Shared by every thread that produces or polls."""

    def __init__(
        self,
        only_errors: bool,
        explained: Explained = _as_it_is,
        offset_proves: bool = False,
        times_batches: bool = False,
    ) -> None:
        self.topics: dict[str, TopicCounters] = {}
        self.interrupts = 0
        self.times_batches = times_batches
        self.errors = CallbackErrors()
        self.report_queue = ReportQueue()
        self._reporting = Reporting(
            only_errors, self.errors, self.report_queue, explained, offset_proves, times_batches
        )

    def not_interrupted(self) -> None:
        """What a call raised was no signal handler's."""
        self.interrupts -= 1

    def open(self, topic: Any) -> TopicCounters:
        """The account of a topic seen for the first time."""
        forks.notice()
        if not isinstance(topic, str):  # refused by the native call with its own error; nothing to remember
            return TopicCounters(self._reporting)
        return self.topics.setdefault(str.__str__(topic), TopicCounters(self._reporting))  # may be an enumeration's

    def release_callbacks(self) -> None:
        """Forget the callback that each account was given last: it may be all that keeps a payload alive, or, as a
        method of the object that owns the producer, the producer itself. Any thread, at any time.

        Records under way refer to their own; the next record has its callback bound again.
        """
        for topic in list(self.topics.values()):
            topic.bind(None)
            for row in list(topic.partitions.values()):
                row.bind(None)

    def batches(self, now: float) -> dict[tuple[str, int], BatchCount]:
        """(topic, partition) -> what the native produce_batch() took for that partition by `moment`."""
        return {
            (name, number): row.batches.by(now)
            for name, topic in list(self.topics.items())
            for number, row in list(topic.partitions.items())
            if row.batches
        }

    def delivered(self, tp: tuple[str, int]) -> int:
        """Records of one partition, or of a topic with -1, delivered so far."""
        rows = {} if (topic := self.topics.get(tp[0])) is None else topic.partitions
        found = list(rows.values()) if tp[1] == UNASSIGNED else filter(None, [rows.get(tp[1])])
        return sum([row.named.delivered + row.placed.delivered for row in found])

    def answers(self, tp: tuple[str, int]) -> tuple[int, int]:
        """Records of one partition, or of a topic with -1, that were delivered so far, and that failed."""
        rows = {} if (topic := self.topics.get(tp[0])) is None else topic.partitions
        if (row := rows.get(tp[1])) is not None and tp[1] != UNASSIGNED:
            return row.named.delivered + row.placed.delivered, row.named.failed + row.placed.failed
        found = list(rows.values()) if tp[1] == UNASSIGNED else []
        delivered = sum([row.named.delivered + row.placed.delivered for row in found])
        return delivered, sum([row.named.failed + row.placed.failed for row in found])

    @property
    def resolved(self) -> int:
        """Reports counted so far."""
        return sum(self.totals()[1:])

    @property
    def accepted(self) -> int:
        """Records accepted so far."""
        accepted = 0
        for topic in list(self.topics.values()):
            accepted += topic.accepted + sum([row.accepted for row in list(topic.partitions.values())])
        return accepted

    def totals(self) -> tuple[int, int, int]:
        """(accepted, delivered, failed). Reports are read first, so that accepted is never the smaller one."""
        delivered = failed = 0
        for topic in list(self.topics.values()):
            for row in list(topic.partitions.values()):
                delivered += row.named.delivered + row.placed.delivered
                failed += row.named.failed + row.placed.failed
        return self.accepted, delivered, failed

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
        proves = self._reporting.offset_proves
        return self.report_queue.reports.by_partition(
            self.topics.copy(),
            lambda error, message: error is None and (not proves or message.offset() is not None),
        )

    def acknowledged(self) -> list[Callable[..., Any]]:
        """The reports of records that are certainly written, which wait for a poll()."""
        proves = self._reporting.offset_proves
        return [
            run for run, message in self.report_queue.reports.delivered() if not proves or message.offset() is not None
        ]
