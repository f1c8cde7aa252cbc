"""A batch that a batch lane has: from handing over until librdkafka has reported every record of it.

Delivered records of a batch that need only be counted are kept as a number, see CountedReport.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from safeproducer.kafka.callback_errors import discard_pending
from safeproducer.kafka.native import OF_PRODUCER_ID, KafkaError, Message
from safeproducer.pipeline.record import ACCEPTED_AT, OVERHEAD, SIZE, DeliveryCallback, HeldRecord, ReportNumbers
from safeproducer.pipeline.reports.quota_rejections import QuotaRejection, is_quota_rejection
from safeproducer.pipeline.reports.report_queue import CountedBunch, CountedReport, DatedError, Reports
from safeproducer.policy.pacing import AckTime
from safeproducer.policy.types import NEVER, TopicPartition
from safeproducer.runtime import clock

_SURE_FLUSHES = 3
_NO_TOPIC = frozenset({KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART})


class DeliveredCounter:
    """Counts the delivered records of one callback in a batch of a partition."""

    __slots__ = ("_partition", "count", "report")

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self.count = 0
        self.report: CountedReport | None = None

    def begin(self, report: CountedReport) -> None:
        """The first delivered record of another callback."""
        self.report = report
        self.count = 1

    def pass_on(self, reports: Reports) -> int:
        """Queue what was counted; how many."""
        # One step under the interpreter lock: BatchReports.expire() comes from another thread.
        count, report, self.count, self.report = self.count, self.report, 0, None
        if report is not None:
            reports.add_counted(CountedBunch(report, self._partition, count))
        return count

    def bind(self, batch: Any, report: CountedReport) -> DeliveryCallback:
        reports, proves = batch.reports, report.offset_proves

        def reported(error: KafkaError | None, message: Message) -> None:
            try:
                offset = message.offset()
            except:  # noqa: E722 - see discard_pending
                discard_pending(sys.exc_info())
                offset = message.offset()
            batch.left = left = batch.left - 1  # as in bind()
            expired = batch.expired
            if error is not None or expired or (offset is None and proves):
                reports.pass_on()
                batch.reported(len(batch.records) - left - 1, expired, report, error, message)
            elif self.report is report:
                self.count += 1
            else:
                reports.count(report)
            if not left:
                reports.pass_on()
                reports.sinks.completed.append(batch)

        return reported


@dataclass(eq=False)
class BatchSinks:
    """Where all batches report to. `completed`: batches whose last report arrived, for the dispatcher to take note of;
    `refused_topics`: topics that do not exist, as far as failed records tell."""

    reports: Reports
    numbers: ReportNumbers
    completed: deque[InFlightBatch] = field(default_factory=deque)
    refused_topics: set[str | None] = field(default_factory=set)


class BatchReports:
    """Reports of a batch on their way to the application: delivered records of one callback go together.

    `unknown_outcome`: whether a record failed so that it may be written later; `rejections`: those that a quota
    rejected, or that were taken out of the lane because they are `late`; `failed`: how many others did, `fenced`: for
    its producer ID; `partitions`: those that librdkafka chose.
    `on_answer` is called at the first report of a delivered batch, inside the native call that serves them.
    """

    def __init__(self, sinks: BatchSinks, size: int, tp: TopicPartition) -> None:
        self.sinks, self._of = sinks, (*tp, True)
        self._size = size
        self.kept: deque[Message] = deque()
        self.kept_for: DeliveryCallback | None = None
        self.counting = DeliveredCounter(tp[1])
        self.on_answer: Callable[[], None] | None = None
        self.unknown_outcome = self.fenced = self.late = False
        self.failed = 0
        self.rejections: list[QuotaRejection] = []
        self.partitions: set[int | None] = set()
        self._passed = 0  # how many of librdkafka's reports were passed on, or swallowed
        self._expired = 0

    def keep(self, report: DeliveryCallback, message: Message) -> None:
        """A delivered record of another callback than those that are kept."""
        if self.on_answer is not None:
            self.on_answer()
        self.pass_on()
        self.kept_for = report  # before the message: see pass_on()
        self.kept.append(message)

    def count(self, report: CountedReport) -> None:
        """A delivered record that need only be counted, of another callback than those before."""
        if self.on_answer is not None:
            self.on_answer()
        self.pass_on()
        self.counting.begin(report)

    def pass_on(self) -> None:
        if self.counting.count:
            passed = self.counting.pass_on(self.sinks.reports)
            self._passed += passed
        nothing: deque[Message] = deque()
        # One step under the interpreter lock, as there is no call in it: expire() comes from another thread.
        kept, report, self.kept, self.kept_for = self.kept, self.kept_for, nothing, None
        if report is not None:
            count = len(kept)
            self.sinks.reports.add_delivered(report, kept, self._size, self._of)
            self._passed += count

    def add(
        self, record: HeldRecord | None, lane: int, report: DeliveryCallback, error: KafkaError | None, message: Message
    ) -> None:
        """A report that goes by itself. None for a record that has expired: what is said of it is swallowed."""
        # A record that a quota rejected has not ended: it goes again, with its keys bound. Any other error may be of a
        # record that is written later, and then its keys must not take another lane.
        quota = is_quota_rejection(error)
        rejected = quota or (self.late and error is not None and error.code() == KafkaError._PURGE_QUEUE)
        if error is not None:
            self.unknown_outcome = self.unknown_outcome or not quota
            self.failed += not rejected
            self.fenced = self.fenced or error.code() in OF_PRODUCER_ID
            if error.code() in _NO_TOPIC:
                self.sinks.refused_topics.add(message.topic())
            if record is not None and rejected:
                self.rejections.append(QuotaRejection(record, error, message, lane))
            elif record is not None:
                error = DatedError(error, clock.monotonic() - record[ACCEPTED_AT])
        if record is not None and not rejected:
            self.sinks.reports.add(report, error, message, self._size)
        self._passed += 1

    def expire(self, count: int) -> None:
        """The first `count` records have their report: they expired, or had ended before."""
        self._expired = count

    @property
    def ended(self) -> int:
        """How many records have a report that was passed on; those that go again have none."""
        return max(self._passed, self._expired) - len(self.rejections)


class InFlightBatch:
    """librdkafka reports the records of a batch in the order they were handed over in.

    It refers to no native producer: that one holds its callbacks while records are under way, and would never be freed.
    `lane` is the number of its lane. `at`: when it was handed over; `sent_at`: when it was flushed first, if it needs
    that; `queued_at`: when it was last seen in no request. `runs`: (number of the report, how many records have it).
    A record whose deadline passes first is reported by `expire()`; what librdkafka says of it later is swallowed, but
    the batch keeps its place until librdkafka has said it.
    """

    def __init__(
        self,
        tp: TopicPartition,
        records: list[HeldRecord],
        full: bool,
        at: float,
        sinks: BatchSinks,
        ack: AckTime,
        lane: int = 0,
        broker: int | None = None,
    ) -> None:
        self.tp = tp
        self.records = records
        self.full = full
        self.at = self.sent_at = self.queued_at = at
        self.ack = ack
        self.lane = lane
        self.broker = broker
        count = self.left = len(records)
        size = sum([record[SIZE] for record in records])
        self.bytes = size - OVERHEAD * count  # bytes of keys, values and headers
        self.runs: list[tuple[int, int]] = []
        self.expired = self._flushes = 0
        self.reports = BatchReports(sinks, size // (count or 1), tp)

    def bind(self, report: DeliveryCallback) -> DeliveryCallback:
        """The callback for librdkafka that ends in `report` on the application's thread."""
        spread, reports = self.tp[1] < 0, self.reports
        if type(report) is CountedReport and not spread:
            return reports.counting.bind(self, report)

        # A closure, and as little as possible: it runs for each record while the next batch waits for the last one.
        def reported(error: KafkaError | None, message: Message) -> None:
            try:
                message.partition()
            except:  # noqa: E722 - see discard_pending
                discard_pending(sys.exc_info())
            # With the look at `expired` one step under the interpreter lock: expire() may run on another thread.
            self.left = left = self.left - 1
            expired = self.expired
            if error is not None or spread or expired:
                reports.pass_on()
                self.reported(len(self.records) - left - 1, expired, report, error, message)
            elif reports.kept_for is report:
                reports.kept.append(message)
            else:
                reports.keep(report, message)
            if not left:
                reports.pass_on()
                reports.sinks.completed.append(self)

        return reported

    def reported(
        self, index: int, expired: int, report: DeliveryCallback, error: KafkaError | None, message: Message
    ) -> None:
        if self.tp[1] < 0:
            self.reports.partitions.add(message.partition())
        record = self.records[index] if index >= expired else None
        self.reports.add(record, self.lane, report, error, message)

    def flushed(self, now: float) -> None:
        """librdkafka was told to send what it has."""
        self.full = False
        self._flushes += 1
        if self._flushes == 1:
            self.sent_at = now

    @property
    def leaves_by(self) -> float:
        """By when it has left librdkafka's queue; long ago for a full one. Infinity while that is not sure enough.

        A busy broker thread may miss a flush trigger, and one more. What was flushed three times has left before half
        of the time that an answer takes is over; not where threads wait long for a processor, and miss any number.
        """
        if self.full:
            return -NEVER
        ack_time = self.ack.distance if self.tp[1] >= 0 and self._flushes >= _SURE_FLUSHES else None
        return NEVER if ack_time is None else self.sent_at + ack_time / 2

    def refused(self, index: int) -> None:
        """The record at `index` did not get into librdkafka, which will not report it."""
        size = self.records.pop(index)[SIZE] - OVERHEAD
        self.bytes -= size
        self.left -= 1
        self.full = False

    @property
    def open(self) -> int:
        """How many of its records have no report that was passed on to the application.

        One that is being passed on counts until the reports count it: else flush() would find nothing left.
        """
        return len(self.records) - self.reports.ended

    def expire(self, now: float, timeout: float, report: Callable[[HeldRecord], object]) -> None:
        """`report` the records whose deadline has passed since the last call and which librdkafka has not reported."""
        first = max(self.expired, len(self.records) - self.left)
        last = first
        while last < len(self.records) and self.records[last][ACCEPTED_AT] + timeout <= now:
            last += 1
        if last > first:
            # One step under the interpreter lock: a report that came before is passed on there, one after it is not.
            self.expired, left = last, self.left
            first = max(first, len(self.records) - left)
            self.reports.pass_on()  # they were accepted before
        for record in self.records[first:last]:
            report(record)
        self.reports.expire(self.expired)

    def next_deadline(self, timeout: float) -> float | None:
        first = max(self.expired, len(self.records) - self.left)
        return self.records[first][ACCEPTED_AT] + timeout if first < len(self.records) else None

    @property
    def stalled(self) -> bool:
        """Whether the deadline of all its records has passed without a report."""
        return self.expired == len(self.records)
