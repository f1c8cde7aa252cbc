"""produce() puts records that wait into the buffer, one by one or as a block of one partition.

A block is for the sink of Spark far from the brokers: a record's share of the work is a fraction of Intake.send().
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import repeat
from operator import index
from typing import Any

from safeproducer.kafka.arguments import checked, unable
from safeproducer.kafka.native import KafkaError
from safeproducer.pipeline.buffer.partition_buffer import MOST_OVERHEAD, PartitionBuffer, Ticket
from safeproducer.pipeline.dispatch.hold_facts import HoldFacts
from safeproducer.pipeline.dispatch.placement import Placement
from safeproducer.pipeline.dispatch.record_buffer import RecordBuffer
from safeproducer.pipeline.lanes.lane_pool import LanePool
from safeproducer.pipeline.record import ACCEPTED_AT, OVERHEAD, REPORT, SIZE, DeliveryCallback, HeldRecord
from safeproducer.pipeline.reports.quota_rejections import QuotaRejections
from safeproducer.pipeline.reports.report_queue import ReportQueue
from safeproducer.pipeline.schedule import Schedule
from safeproducer.policy.probation import FREE, ON_PROBATION
from safeproducer.policy.types import NEVER, UNPLACED, Lack, TopicPartition
from safeproducer.runtime import clock

_NOW = 0
_PLAIN = frozenset({bytes, type(None)})


@dataclass(eq=False)
class Intake:
    """Any thread, but for `resume()`, which is the sender's.

    - `suspended`: brokers may be worse off than buffers tell: nothing goes directly until the sender has looked.
    - `opened`: the direct path is, or is about to be. A record for an empty partition buffer goes directly then, though
      it had to wait when its thread looked: the next one would pass it.
    - `retired` makes what produce() raises when nobody sends any more. Nothing waits then, so each record is the first.
    """

    _batch_records: int
    _batch_bytes: int
    _holds: HoldFacts
    _record_buffer: RecordBuffer
    _rejections: QuotaRejections
    _report_queue: ReportQueue
    _lanes: LanePool
    _placement: Placement
    _schedule: Schedule
    _topics: set[str] = field(default_factory=set)
    suspended: bool = False
    opened: bool = False
    retired: Callable[[], Exception] | None = None

    def __post_init__(self) -> None:
        self._buffers, self._numbers = self._record_buffer.buffers, self._record_buffer.numbers

    # Other threads and signal handlers come in at any call. A record that went directly past one that waits would be
    # written before it: it does so only while nothing of its partition waits, and `_append()` looks again where nothing
    # comes between.
    def send(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        report: DeliveryCallback,
        _: None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> Ticket | None:
        """Take one record: the native produce()'s arguments, and what that raises. Where it waits, if it does."""
        size, lengths, overhead = 0, 0, OVERHEAD
        if (
            type(value) not in _PLAIN
            or type(key) not in _PLAIN
            or headers is not None
            or timestamp is not _NOW  # other kinds of zero are checked
            or type(partition) is not int
            or topic not in self._topics
        ):
            value, key, headers, size, lengths = checked(topic, value, key, partition, report, timestamp, headers)
            overhead = MOST_OVERHEAD + lengths
            partition, timestamp = index(partition), index(timestamp)
            self._topics.add(str.__str__(topic))
        now = clock.monotonic()
        if topic in self._lanes.refused_topics:
            self._placement.refuse_missing(topic)
        tp = (topic, self._placement.choose(topic, key, now) if partition == UNPLACED else partition)
        buffer = self._buffers.get(tp) or self._open(tp, partition, overhead is not OVERHEAD)
        size += (0 if value is None else len(value)) + (0 if key is None else len(key))
        held = buffer.held or buffer.records
        direct = not (held or self.suspended or self._placement.follows_others(*tp))
        if direct and self._takes_directly(buffer, value, key, report, timestamp, headers, size):
            return None
        if not held:  # what went before it may still be in the direct lane
            buffer.went_directly(clock.monotonic())
        self._record_buffer.refuse_excess(buffer, size, 1, size + lengths)
        record = (value, key, id(report), timestamp or int(clock.time() * 1000), headers, size + overhead, now)
        return self._append(buffer, record, report)

    def _takes_directly(
        self, buffer: PartitionBuffer, value: Any, key: Any, report: Any, timestamp: int, headers: Any, size: int
    ) -> bool:
        """Whether a record has gone directly. Raises what the native produce() raises."""
        lane, now, (topic, partition) = self._holds.direct, clock.monotonic(), buffer.tp
        if lane is None or not (goes := lane.takes(buffer.tp, size) if lane.probation.open else FREE):
            return False
        if self._record_buffer.busy or self._report_queue.reports or self._report_queue.deferred or self._lanes:
            self._record_buffer.refuse_excess(buffer, size)
        if goes == ON_PROBATION:
            stamp = timestamp or int(clock.time() * 1000)
            record = (value, key, id(report), stamp, headers, size + OVERHEAD, now)
            self._rejections.remember(topic, report, record)
        self._record_buffer.went_directly(now)
        try:
            self._record_buffer.direct_native.produce(topic, value, key, partition, report, None, timestamp, headers)
        except BaseException:
            lane.probation.give_back(buffer.tp, size)
            raise
        self._schedule.went_directly()  # poll() would look there only after its wait
        return True

    def _append(
        self, buffer: PartitionBuffer, record: HeldRecord, report: DeliveryCallback, *, behind: bool = False
    ) -> Ticket:
        """The record waits from here on; what follows has the sender know, which looks at everything now and then.

        It goes directly if that path is `opened` now, but not `behind` others that wait.
        """
        records, reports, uses, number = buffer.records, self._numbers.reports, self._numbers.uses, record[REPORT]
        # Up to the end of append() there is no place where another thread or a signal handler could come between: a
        # call is the first.
        if self.opened and not (records or behind or self.retired):
            self._send_after_all(buffer, record, report)
            return buffer, number
        uses[number] += 1
        reports[number] = report
        buffer.bytes += record[SIZE]
        records.append(record)
        try:
            count = len(records)
            if count == 1:
                if self.retired is not None:
                    self._refuse_last(buffer, self.retired)
                self._record_buffer.busy[buffer.tp] = buffer
                buffer.ring()
                self._schedule.begin(record[ACCEPTED_AT])
            elif count >= self._batch_records or buffer.bytes >= self._batch_bytes:
                self._ring_if_full(buffer, count, record[SIZE])
        except RecursionError:  # of an application near its limit: the record is accepted all the same
            pass
        return buffer, number

    def _send_after_all(self, buffer: PartitionBuffer, record: HeldRecord, report: DeliveryCallback) -> None:
        """The direct path opened while a record was about to wait for it."""
        if self._placement.follows_others(*buffer.tp):  # the sender finds those, and the path stays closed
            self._append(buffer, record, report, behind=True)
            return
        self._record_buffer.went_directly(now := clock.monotonic())
        buffer.went_directly(now)
        value, key, _, timestamp, headers, _, _ = record
        native = self._record_buffer.direct_native
        native.produce(buffer.topic, value, key, buffer.partition, report, None, timestamp, headers)

    def _refuse_last(self, buffer: PartitionBuffer, refusal: Callable[[], Exception]) -> None:
        """The producer was closed while produce() was on its way: by a signal handler in it, or by another thread."""
        self._numbers.release(buffer.take_last()[REPORT])
        raise refusal()

    def _ring_if_full(self, buffer: PartitionBuffer, count: int, size: int) -> None:
        """Wake the sender once for each full batch: each record behind a full one would wake it, too."""
        why, held, most = buffer.why, buffer.bytes, self._batch_bytes
        fills = count % self._batch_records == 0 or held // most > (held - size) // most
        if fills and (why is None or not why.reason.unchanged_by_records):
            buffer.ring()
            self._schedule.hurry()

    def _open(self, tp: TopicPartition, named: int, is_checked: bool) -> PartitionBuffer:
        if not is_checked:
            checked(tp[0], None, None, tp[1], None, 0, None)  # its type was all that was looked at
        if not self._holds.partitions.has(tp[0], named):
            raise unable(KafkaError._UNKNOWN_PARTITION)
        self._schedule.wake(NEVER)
        return self._record_buffer.find((str.__str__(tp[0]), tp[1]))  # admin clients take nothing derived from str

    def place_of(self, topic: Any, key: Any) -> int:
        """The partition that a record which names none will get; UNPLACED while that is not known."""
        return self._placement.choose(topic, key, clock.monotonic()) if topic in self._topics else UNPLACED

    def lack(self, tp: TopicPartition, size: int) -> Lack:
        """Whether there is no room for one more record of that partition; if there is, it stays for that."""
        return self._record_buffer.lack(self._buffers.get(tp), size, spare=1)

    @property
    def any_topic(self) -> str | None:
        """The name of a topic that records were accepted for, None before the first."""
        return next(iter(list(self._topics)), None)

    def release_reports(self) -> None:
        """Release reports of ended records: brokers know the producer's ID by now, or nobody may poll again."""
        if (native := self._record_buffer.direct_native) is not None and not len(native):
            self._rejections.forget()

    def suspend(self) -> None:
        """Let nothing go directly until the sender has looked."""
        self.suspended = True

    def resume(self) -> None:
        """The sender looks at the partitions now: records may go directly again."""
        self.suspended = False

    def opens(self, opened: bool) -> None:
        """The direct path is about to open, or has closed."""
        self.opened = opened

    # --- blocks -------------------------------------------------------------------------------------------------------

    def send_block(
        self,
        topic: str,
        partition: int,
        values: list[bytes | None],
        keys: list[bytes | None],
        sizes: list[int],
        report: DeliveryCallback,
    ) -> bool:
        """Take records of one partition in one step; False when they must be taken one by one, and none was.

        `sizes`: bytes of value and key of each. All have the time of this call. Raises as produce() where room lacks.
        """
        now = clock.monotonic()
        if (buffer := self._buffer_for_block(topic, partition)) is None:
            return False
        size, count = sum(sizes), len(sizes)
        self._record_buffer.refuse_excess(buffer, size, count, max(sizes))
        stamp, number = int(clock.time() * 1000), id(report)
        lengths = [length + OVERHEAD for length in sizes]
        same = repeat(number), repeat(stamp), repeat(None)
        records: list[HeldRecord] = list(zip(values, keys, *same, lengths, repeat(now), strict=False))
        if extended := self._extend(buffer, records, report, size + OVERHEAD * count):
            self._extended(buffer, count, now)
        return extended

    def _extend(self, buffer: PartitionBuffer, records: list[HeldRecord], report: DeliveryCallback, size: int) -> bool:
        waiting, numbers = buffer.records, self._numbers
        reports, uses, number, count = numbers.reports, numbers.uses, records[0][REPORT], len(records)
        # Up to the end of extend() nothing could come between: see _append().
        if self.opened and not (waiting or self.retired):
            return False
        uses[number] += count
        reports[number] = report
        buffer.bytes += size
        waiting.extend(records)
        return True

    def _buffer_for_block(self, topic: str, partition: int) -> PartitionBuffer | None:
        """Where records of a partition wait together; None when they must be taken one by one."""
        tp = (topic, partition)
        buffer = self._buffers.get(tp) or self._open(tp, partition, is_checked=False)
        held = buffer.held or buffer.records
        if not held:
            buffer.went_directly(clock.monotonic())
        waits = held or self.suspended or self._holds.direct is None
        waits = waits and topic not in self._lanes.refused_topics and not self._placement.has_unplaced(topic)
        return buffer if waits else None

    def _extended(self, buffer: PartitionBuffer, count: int, now: float) -> None:
        """Records of a block wait there since `now`: act as behind the append() of one."""
        if self.retired is not None:
            for _ in range(count - 1):
                self._numbers.release(buffer.take_last()[REPORT])
            self._refuse_last(buffer, self.retired)
        self._record_buffer.busy[buffer.tp] = buffer
        buffer.ring()
        self._schedule.begin(now)
        full = len(buffer.records) >= self._batch_records or buffer.bytes >= self._batch_bytes
        if full and ((why := buffer.why) is None or not why.reason.unchanged_by_records):
            self._schedule.hurry()
