"""A batch that a batch lane has: from handing over until librdkafka has reported every record of it."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable

from safeproducer.kafka.native import KafkaError, Message
from safeproducer.kafka.pending_error import discard_pending
from safeproducer.pipeline.dated_error import DatedError
from safeproducer.pipeline.partition_buffer import PartitionBuffer
from safeproducer.pipeline.quota_rejections import QuotaRejection, is_quota_rejection
from safeproducer.pipeline.record import ACCEPTED_AT, SIZE, DeliveryCallback, HeldRecord
from safeproducer.pipeline.reports import Reports
from safeproducer.policy.never import NEVER

_SURE_FLUSHES = 3
LONG_ROUND_TRIP = 0.04
"""Seconds of acknowledgement time from which a batch may follow one that needs flush triggers: no answer to it comes
while those of the one before it are served."""
STEADY = 0.2
"""Of the acknowledgement time: where it differs by more, it is no distance, but a machine that is too busy to send."""
_NO_TOPIC = frozenset({KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART})


class InFlightBatch:
    """librdkafka reports the records of a batch in the order they were handed over in.

    It refers to no native producer: that one holds its callbacks while records are under way, and would never be freed.
    `lane` is the number of its lane, `unknown_outcome` whether a record of it failed so that it may be written later,
    `rejections` those that a quota rejected. `at`: when it was handed over; `sent_at`: when it was flushed first, if it
    needs that; after `flushes` of them the next is due at `flush_at`. A topic that does not exist is added to
    `missing`.
    `runs`: (number of the report, how many records have it), in order. `on_answer` is called at the first report of
    a delivered batch, inside the native call that serves them.
    A record whose deadline passes first is reported by `expire()`; what librdkafka says of it later is swallowed, but
    the batch keeps its place until librdkafka has said it.
    """

    def __init__(
        self,
        buffer: PartitionBuffer,
        records: list[HeldRecord],
        full: bool,
        at: float,
        reports: Reports,
        completed: deque[InFlightBatch],
        missing: set[str],
        lane: int = 0,
    ) -> None:
        self.buffer = buffer
        self.lane = lane
        self.unknown_outcome = False
        self.rejections: list[QuotaRejection] = []
        self.records = records
        self.full = full
        self.at = at
        self.left = len(records)
        self.expired = 0
        self.bytes = 0
        self.flush_at = self.sent_at = at
        self.flushes = 0
        self.broker: int | None = None
        self.partitions: set[int | None] = set()
        self.on_answer: Callable[[], None] | None = None
        self.runs: list[tuple[int, int]] = []
        self._reports = reports
        self._size = sum([record[SIZE] for record in records]) // (len(records) or 1)
        """Of one record, about."""
        self._kept: deque[Message] = deque()
        self._kept_for: DeliveryCallback | None = None
        """Delivered records of that callback, which are passed on together."""
        self._passed = 0
        """How many of librdkafka's reports were passed on, or swallowed."""
        self._told = 0
        """How many records expired, or had ended before, and have their report."""
        self._completed = completed
        self._missing = missing

    def bind(self, report: DeliveryCallback) -> DeliveryCallback:
        """The callback for librdkafka that ends in `report` on the application's thread."""
        spread = self.buffer.partition < 0

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
                self._pass_on()
                self._reported(len(self.records) - left - 1, expired, report, error, message)
            elif self._kept_for is report:
                self._kept.append(message)
            else:
                if self.on_answer is not None:
                    self.on_answer()
                self._pass_on()
                self._kept_for = report  # before the message: see _pass_on()
                self._kept.append(message)
            if not left:
                self._pass_on()
                self._completed.append(self)

        return reported

    def _pass_on(self) -> None:
        nothing: deque[Message] = deque()
        # One step under the interpreter lock, as there is no call in it: expire() comes from another thread.
        kept, report, self._kept, self._kept_for = self._kept, self._kept_for, nothing, None
        if report is not None:
            count = len(kept)
            self._reports.add_delivered(report, kept, self._size)
            self._passed += count

    def _reported(
        self, index: int, expired: int, report: DeliveryCallback, error: KafkaError | None, message: Message
    ) -> None:
        if error is not None:
            self.unknown_outcome = self.unknown_outcome or not is_quota_rejection(error)
            if error.code() in _NO_TOPIC:
                self._missing.add(self.buffer.topic)
        if index >= expired:
            if is_quota_rejection(error):
                assert error is not None  # noqa: S101 - what is_quota_rejection() says
                self.rejections.append(QuotaRejection(self.records[index], error, message, self.lane))
            else:
                if error is not None:
                    error = DatedError(error, time.monotonic() - self.records[index][ACCEPTED_AT])
                self._reports.add(report, error, message, self._size)
        if self.buffer.partition < 0:
            self.partitions.add(message.partition())
        self._passed += 1

    def flushed(self, now: float) -> None:
        """librdkafka was told to send what it has."""
        self.flushes += 1
        if self.flushes == 1:
            self.sent_at = now

    @property
    def leaves_by(self) -> float:
        """By when it has left librdkafka's queue; long ago for a full one. Infinity while that is not sure enough.

        A busy broker thread may miss a flush trigger, and one more. What was flushed three times has left before half
        of the time that an answer takes is over; not where threads wait so long for a processor that they miss any
        number.
        """
        if self.full:
            return -NEVER
        ack_time = self.buffer.ack_time
        if self.buffer.partition < 0 or self.flushes < _SURE_FLUSHES or ack_time is None or ack_time < LONG_ROUND_TRIP:
            return NEVER
        if self.buffer.ack_jitter > STEADY * ack_time:
            return NEVER
        return self.sent_at + ack_time / 2

    def refused(self, index: int) -> None:
        """The record at `index` did not get into librdkafka, which will not report it."""
        del self.records[index]
        self.left -= 1

    @property
    def open(self) -> int:
        """How many of its records have no report that was passed on to the application.

        One that is being passed on counts until the reports count it: else flush() would find nothing left.
        """
        return len(self.records) - max(self._passed, self._told) + len(self.rejections)

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
            self._pass_on()  # they were accepted before
        for record in self.records[first:last]:
            report(record)
        self._told = self.expired

    def next_deadline(self, timeout: float) -> float | None:
        first = max(self.expired, len(self.records) - self.left)
        return self.records[first][ACCEPTED_AT] + timeout if first < len(self.records) else None

    @property
    def stalled(self) -> bool:
        """Whether the deadline of all its records has passed without a report."""
        return self.expired == len(self.records)
