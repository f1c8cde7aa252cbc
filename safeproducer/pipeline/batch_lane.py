"""A batch lane: a native producer that gets whole batches, each of which becomes one ProduceRequest.

Its linger is a guard that never runs out in practice: a batch of exactly `batch.num.messages` records leaves by its
count, any other by a flush trigger, a flush() of one millisecond. A shorter linger would send what is there in the
middle of handing over, and would make librdkafka spin while a batch waits behind the one in flight.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any

from safeproducer.kafka.native import KafkaError, KafkaException, NativeProducer
from safeproducer.kafka.statistics import Statistics
from safeproducer.pipeline.first_question import is_asked
from safeproducer.pipeline.frames import raised_by_native_call
from safeproducer.pipeline.in_flight_batch import InFlightBatch
from safeproducer.pipeline.partition_buffer import OVERHEAD, PartitionBuffer
from safeproducer.pipeline.record import SIZE, HeldRecord
from safeproducer.pipeline.report_numbers import ReportNumbers
from safeproducer.pipeline.reports import Reports
from safeproducer.policy.never import NEVER
from safeproducer.policy.sequence_gaps import SequenceGaps
from safeproducer.policy.topic_partition import TopicPartition

_QUESTIONS = 3
_QUESTION_EVERY = 0.1
"""Seconds: the first may go to a connection that is about to end."""
_QUESTIONS_FOR = 10.0
_EARLIEST = 0.95
"""Of the usual time, when the answer is looked for first."""
FLUSH = 0.001
"""Seconds of flush() that send what is queued. flush(0) does not: its flag is gone before the broker's thread looks."""

Refuse = Callable[[PartitionBuffer, HeldRecord, KafkaError], None]


class BatchLane:
    """The sender's thread calls; any thread may ask what is inside, and ask brokers for metadata.

    `bytes` are those of keys, values and headers inside. `handed_over` counts batches, `splits` those requests more
    than batches that librdkafka's statistics showed.
    """

    def __init__(
        self,
        native: NativeProducer,
        number: int,
        reports: Reports,
        completed: deque[InFlightBatch],
        missing: set[str],
        numbers: ReportNumbers,
        replaceable: bool = False,
    ) -> None:
        self.native: Any = native
        self.number = number
        self.quarantined = False
        """It is about to be purged and takes no more."""
        self.failed: KafkaError | None = None
        """The fatal error after which it takes nothing more; only where other lanes take over, see `replaceable`."""
        self.refused: list[HeldRecord] = []
        """Records that it did not take because it has failed."""
        self.replaceable = replaceable
        self.used_at = time.monotonic()
        self._completed = completed
        self.handed_over = 0
        self.splits = 0
        self.batches: list[InFlightBatch] = []
        """Those that are not resolved yet, in the order in which they were handed over."""
        self.gaps = SequenceGaps()
        self.due = self.soon = NEVER
        """When the answer to the first of them comes, and when it may come at the earliest, by what others took."""
        self.bytes = 0
        self._reports = reports
        self._missing = missing
        self._numbers = numbers
        self._asking = Lock()
        self._closed = False
        self._questions = _QUESTIONS
        self._question_at = 0.0
        self._made_at = time.monotonic()
        self._raised: deque[KafkaException] = deque()
        self.records_handed_over = 0
        self._emptied_at = 0.0
        self._seen = (0, 0, 0, 0)

    def hand_over(
        self,
        buffer: PartitionBuffer,
        records: list[HeldRecord],
        full: bool,
        now: float,
        refuse: Refuse,
        counted: Callable[[], object] = int,
    ) -> InFlightBatch | None:
        """Give `records` to librdkafka as one batch; None when it took none of them.

        `counted()` is called as soon as this lane counts them: at no moment does nobody, or flush() would end.
        """
        count = len(records)
        batch = InFlightBatch(buffer, records, full, now, self._reports, self._completed, self._missing, self.number)
        produce, topic, partition = self.native.produce, buffer.topic, buffer.partition
        # Noted before the first record goes in: a report may arrive before the last one is in.
        buffer.unresolved.append(batch)
        self.batches.append(batch)
        counted()
        self._expect()
        previous = bound = None
        began = 0
        refused: list[tuple[HeldRecord, KafkaError]] = []
        for index, record in enumerate(tuple(records)):
            value, key, number, timestamp, headers, _, _ = record
            if number != previous:
                if previous is not None:
                    batch.runs.append((previous, index - began))
                previous, began = number, index
                bound = batch.bind(self._numbers[number])
            try:
                produce(topic, value, key, partition, bound, None, timestamp, headers)
            except Exception as raised:
                if not raised_by_native_call(raised):
                    raise
                cause = _cause(raised)
                tp = index - len(refused)
                if self.replaceable and cause.code() == KafkaError._FATAL:
                    self._fail(cause)
                    self.refused = records[tp:]
                    for _ in self.refused:
                        batch.refused(tp)
                    break
                batch.refused(tp)
                refused.append((record, cause))
        if previous is not None:
            batch.runs.append((previous, count - began))
        if refused or self.refused:
            batch.full = False  # short of the count that would have sent it
            for record, cause in refused:
                refuse(buffer, record, cause)
        if not records:
            self._completed.append(batch)
            return None
        self.gaps.sent(buffer.tp)
        batch.bytes = sum(record[SIZE] for record in records) - OVERHEAD * len(records)
        self.bytes += batch.bytes
        self.handed_over += 1
        count = len(records)
        self.records_handed_over += count
        self.used_at = time.monotonic()
        return batch

    def takes(self, tp: TopicPartition, now: float) -> bool:
        """Whether a batch of this partition may go by this lane, as far as gaps are concerned."""
        return self.gaps.takes(tp, not self.batches, now)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """As the native producer's."""
        self.gaps.purged([batch.buffer.tp for batch in self.batches if batch.left], time.monotonic())
        self.native.purge(in_queue, in_flight, blocking)

    def resolved(self, batch: InFlightBatch) -> None:
        """Take note of a completed batch."""
        if self.gaps:
            topic, partition = batch.buffer.tp
            if not batch.unknown_outcome:
                self.gaps.acknowledged((topic, partition))
            elif partition < 0:  # librdkafka had chosen one for each record by then
                self.gaps.add((topic, chosen) for chosen in batch.partitions if chosen is not None)
        self.gaps.answered(batch.buffer.tp)
        batch.buffer.unresolved.remove(batch)
        self.batches.remove(batch)
        if not self.batches:
            self._emptied_at = time.monotonic()
        self._expect()
        self.bytes -= batch.bytes
        if batch.partitions:  # records without a partition: one batch for each partition librdkafka chose
            more = len(batch.partitions) - 1
            self.handed_over += more

    def _expect(self) -> None:
        if not self.batches:
            self.due = self.soon = NEVER
            return
        first = self.batches[0]
        ack_time = first.buffer.ack_time or 0.0
        self.due = first.sent_at + ack_time
        self.soon = first.sent_at + _EARLIEST * ack_time

    @property
    def inside(self) -> int:
        """Records inside librdkafka."""
        # A copy, made in one step under the interpreter lock: any thread may ask.
        return sum([batch.left for batch in self.batches.copy()])

    @property
    def events(self) -> int:
        """What librdkafka has to tell beside its records."""
        return max(0, len(self.native) - self.inside)

    def trigger_flush(self) -> None:
        """Send what is queued. What the flush serves is queued as reports, so no callback of the user runs here."""
        self._keeping_error(self.native.flush, FLUSH)

    def wait(self, timeout: float) -> None:
        """Queue the reports that arrive; wait up to `timeout` seconds for the first."""
        self._keeping_error(self.native.poll, timeout)

    def serve(self) -> int:
        """Queue the reports that arrived; how many. Raises a fatal error that a flush trigger or a wait has met."""
        if self._raised:
            raise self._raised.popleft()
        return self._call(self.native.poll, 0)

    def _keeping_error(self, call: Callable[[float], int], timeout: float) -> None:
        try:
            self._call(call, timeout)
        except KafkaException as error:
            self._raised.append(error)

    def list_topics(self, topic: str, timeout: float) -> Any:
        """As the native producer's, which thereby hears who leads the partitions of this topic."""
        with self._asking:
            if self._closed:
                raise KafkaException(KafkaError(KafkaError._DESTROY))
            return self.native.list_topics(topic, timeout)

    def asks_for_id(self, topic: str, now: float) -> bool:
        """Have librdkafka ask for its producer ID as soon as it has a connection, without waiting for one; whether to
        come again soon. See first_question.py.
        """
        if not self._questions or now > self._made_at + _QUESTIONS_FOR:
            return False
        if now >= self._question_at and self._asking.acquire(blocking=False):
            try:
                if not self._closed and is_asked(self.native, topic, 0.0):
                    self._questions -= 1
                    self._question_at = now + _QUESTION_EVERY
            finally:
                self._asking.release()
        return True

    def close(self) -> None:
        """Close the native producer; nothing may be under way on it. Not while another thread is inside it."""
        with self._asking:
            self._closed = True
            self.native.close()

    def _call(self, call: Callable[[float], int], timeout: float) -> int:
        if self._closed:
            return 0
        try:
            return call(timeout)
        except:  # noqa: E722 - a fatal error that arrives inside flush() is raised as a KafkaError, no BaseException
            raised: Any = sys.exc_info()[1]
            if isinstance(raised, KafkaError):
                cause, raised = raised, KafkaException(raised)
            elif isinstance(raised, KafkaException):
                cause = _cause(raised)
            else:
                raise
        if not self.replaceable or not (cause.fatal() or cause.code() == KafkaError._FATAL):
            raise raised
        self._fail(cause)
        return 0

    def _fail(self, cause: KafkaError) -> None:
        """It takes nothing more. What it has queued ends with an error each; for what is on its way the answer is
        waited for: purged, it would free its keys, and might still be written, behind their next records."""
        if self.failed is None:
            self.failed = cause
            self.native.purge(in_queue=True, in_flight=False)

    def observe(self, statistics: Statistics) -> int:
        """Compare the requests that librdkafka counted with the batches it was given; how many splits that shows.

        Between two moments at which the lane was empty, each batch is one request; a retry sends its records again,
        which the count of sent records shows. So requests too many with no record sent twice are split batches.
        """
        if self.batches or statistics.at <= self._emptied_at:
            return 0  # counted while something was under way, and may be of records, and not yet of their request
        requests = sum(broker.produce_requests for broker in statistics.brokers.values())
        sent = sum(entry.sent for (_, partition), entry in statistics.partitions.items() if partition >= 0)
        seen, self._seen = self._seen, (requests, sent, self.handed_over, self.records_handed_over)
        more_requests, more_sent, more_batches, more_records = (
            now - before for now, before in zip(self._seen, seen, strict=True)
        )
        if more_requests < 0 or more_sent != more_records:  # librdkafka forgot a broker's counts, or sent again
            return 0
        found = max(0, more_requests - more_batches)
        self.splits += found
        return found


def _cause(error: Exception) -> KafkaError:
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return error.args[0]
    if isinstance(error, BufferError):
        return KafkaError(KafkaError._QUEUE_FULL)
    return KafkaError(KafkaError._FAIL, str(error))
