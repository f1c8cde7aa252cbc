"""The end of records that are not delivered: in time, or because the application purges them, or at all."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from safeproducer.kafka.arguments import is_no_name
from safeproducer.kafka.native import KafkaError, KafkaException, Message
from safeproducer.pipeline.buffer.in_flight_batch import InFlightBatch
from safeproducer.pipeline.buffer.partition_buffer import PartitionBuffer
from safeproducer.pipeline.dispatch.holds import Holds
from safeproducer.pipeline.dispatch.quota_retry import QuotaRetry
from safeproducer.pipeline.dispatch.record_buffer import RecordBuffer
from safeproducer.pipeline.dispatch.retry_guard import TIMEOUT, RetryGuard, reason
from safeproducer.pipeline.lanes.lane_pool import LanePool
from safeproducer.pipeline.record import ACCEPTED_AT, KEY, REPORT, DeliveryCallback, HeldRecord
from safeproducer.pipeline.reports.failures import Failures
from safeproducer.pipeline.reports.observed import report_of
from safeproducer.pipeline.reports.reports import Reports
from safeproducer.pipeline.schedule import Schedule
from safeproducer.policy.types import NEVER
from safeproducer.runtime import clock
from safeproducer.settings.delivery import Delivery

_CREATE_TIME = 1
_NOT_SENT = "Local: Message timed out: it was not sent within message.timeout.ms"
_NO_PRODUCER_ID = "Local: No producer ID in time"
_WITHDRAWN = "Local: Withdrawn before it was sent"
_THROTTLED_TOO_LONG = "Local: Message timed out: its broker is throttled for longer than the time it has left"


@dataclass(eq=False)
class Expiry:
    """Queues the reports of records that end here. The sender's thread calls; what is `..._soon()` any thread.

    `refusal_of(error)` is called when librdkafka takes no record because of a fatal error.
    """

    _delivery: Delivery
    _holds: Holds
    _lanes: LanePool
    _record_buffer: RecordBuffer
    _quota_retry: QuotaRetry
    _schedule: Schedule
    _failures: Failures
    _reports: Reports
    _refusal_of: Callable[[Exception], object]
    guard: RetryGuard
    _failing: tuple[int, str] | None = None
    """The error with which all that waits is to fail."""
    _withdrawn: deque[DeliveryCallback] = field(default_factory=deque)
    """Reports of records that are to be taken back."""

    def fail_soon(self, code: int, reason: str) -> None:
        """Have the sender fail what waits."""
        self._failing = code, reason
        self._schedule.hurry()

    def withdraw_soon(self, report: DeliveryCallback) -> None:
        """Have the sender take back the records with this report that wait here: each gets it, as not written.

        A record that was handed over meanwhile goes on, and gets its own report. So each gets exactly one.
        """
        self._withdrawn.append(report)
        self._schedule.hurry()

    def _withdraw(self) -> None:
        """Take all of them back in one look at what waits; their order is kept."""
        reports = [self._withdrawn.popleft() for _ in range(len(self._withdrawn))]
        wanted, numbers = set(map(id, reports)), self._record_buffer.numbers
        for buffer in self._record_buffer.all:
            for queue in buffer.queues():
                found = [at for at, each in enumerate(tuple(queue)) if id(report_of(numbers[each[REPORT]])) in wanted]
                for before, at in enumerate(found):
                    self._end(buffer, queue, KafkaError._PURGE_QUEUE, _WITHDRAWN, at - before)

    def fail_all(self, code: int, reason: str) -> None:
        """Fail every waiting record, certainly not written."""
        self._quota_retry.give_up_all()
        for buffer in self._record_buffer.all:
            for queue in buffer.queues():
                while queue:
                    self._end(buffer, queue, code, reason)

    def purge(self, in_queue: bool, in_flight: bool, blocking: bool) -> None:
        """As confluent_kafka's purge(), over what waits here and what the batch lanes have."""
        if in_queue:
            self.fail_all(KafkaError._PURGE_QUEUE, "Local: Purged in queue")
        # A purge does not report in order, and which of a batch's reports to swallow is known by their order alone.
        now, code = clock.monotonic(), KafkaError._PURGE_INFLIGHT
        for batch in [batch for lane in self._lanes for batch in lane.batches if batch.expired]:
            self._report_expired(batch, now, -NEVER, code, KafkaError(code).str())
        self._lanes.purge(in_queue, in_flight, blocking)

    def refused(self, buffer: PartitionBuffer, record: HeldRecord, error: KafkaError, bound: bool = True) -> None:
        """librdkafka did not take a record that was given to a lane, which its key is bound to if that is `bound`."""
        if error.code() == KafkaError._UNKNOWN_TOPIC:
            self._lanes.missing.add(buffer.topic)
            if is_no_name(buffer.topic):
                error = KafkaError(KafkaError.TOPIC_EXCEPTION)
        if error.code() == KafkaError._FATAL:
            self._refusal_of(KafkaException(error))  # before the record is told of it: then produce() raises
        if bound and buffer.keys is not None and record[KEY] is not None:
            buffer.keys.release(record[KEY])
        self._report(buffer, record, error.code(), error.str(), handed_over=False)

    def act(self, now: float) -> float:
        """Fail what is past its deadline, purge lanes that have stalled; when to look again."""
        if self._failing is not None:
            failing, self._failing = self._failing, None
            self.fail_all(*failing)
        if self._withdrawn:
            self._withdraw()
        deadline = self._schedule.deadline
        if deadline.rings(now):
            deadline.begin()
            due = min([self.guard.purge(lane, now, self._report_expired) for lane in self._lanes], default=NEVER)
            for buffer in tuple(self._record_buffer.busy.values()):
                due = min(due, self._expire(buffer, now))
            deadline.end(due)
        return deadline.at

    def _expire(self, buffer: PartitionBuffer, now: float) -> float:
        """Fail what is past its deadline; when the next one is."""
        due = NEVER
        if (timeout := self._delivery.timeout) is None:
            return due
        for batch in buffer.unresolved if self._delivery.owns_timeout else ():
            self._report_expired(batch, now, timeout, KafkaError._MSG_TIMED_OUT, reason(TIMEOUT))
            due = min(due, batch.next_deadline(timeout) or NEVER)
        unmeetable_until = self._holds.cluster.cannot_meet_until(buffer.tp, now)
        for queue in buffer.queues():
            while queue:
                deadline = queue[0][ACCEPTED_AT] + timeout
                if (end := self._end_at(deadline, unmeetable_until, now)) is None:
                    due = min(due, deadline)
                    break
                held = f" (it {self._record_buffer.waits_for(buffer, now).sentence(now)})"
                self._end(buffer, queue, end[0], end[1] + held)
        return due

    def _end_at(self, deadline: float, unmeetable_until: float, now: float) -> tuple[int, str] | None:
        """With which error a record ends now whose time is over then; None if it may still be sent."""
        limit = self._holds.gate.hold
        if limit is not None and limit.until is not None and deadline <= max(now, limit.until):
            return KafkaError.THROTTLING_QUOTA_EXCEEDED, _NO_PRODUCER_ID
        if deadline <= now:
            return KafkaError._MSG_TIMED_OUT, _NOT_SENT
        return (KafkaError._MSG_TIMED_OUT, _THROTTLED_TOO_LONG) if deadline <= unmeetable_until else None

    def _report(self, buffer: PartitionBuffer, record: HeldRecord, code: int, reason: str, handed_over: bool) -> None:
        """Queue a failed record's report, with a message as librdkafka would have made it."""
        error = self._failures.in_process(*buffer.tp, record, code, reason, handed_over)
        value, key, _, timestamp, _, size, accepted = record
        known: dict[str, Any] = {} if buffer.partition < 0 else {"partition": buffer.partition}
        known |= {"timestamp": (_CREATE_TIME, timestamp), "latency": clock.monotonic() - accepted}
        message = Message(topic=buffer.topic, value=value, key=key, error=error, **known)
        self._reports.add(self._record_buffer.numbers[record[REPORT]], error, message, size)

    def _end(self, buffer: PartitionBuffer, queue: Any, code: int, reason: str, index: int = 0) -> None:
        """A record of one of the queues, most often the first, is not handed over any more."""
        self._report(buffer, queue[index], code, reason, handed_over=False)
        self._record_buffer.numbers.release(buffer.take_out(queue, index)[REPORT])

    def _report_expired(self, batch: InFlightBatch, now: float, timeout: float, code: int, reason: str) -> None:
        """Report what of this batch is past its deadline."""
        buffer = self._record_buffer.find(batch.tp)
        batch.expire(now, timeout, lambda record: self._report(buffer, record, code, reason, handed_over=True))
