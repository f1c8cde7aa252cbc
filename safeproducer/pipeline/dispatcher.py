"""The buffered path: records wait in partition buffers, and leave when admission says go.

produce() appends, in one step, and rings. All else is done by the sender's thread. Reports of in-flight batches, and of
records that failed here, go into `reports`; the application's thread runs them in its poll() or flush().
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from operator import index
from typing import Any

from safeproducer.delivery import Delivery
from safeproducer.kafka.native import KafkaError, KafkaException, Message, NativeProducer
from safeproducer.pipeline.alarm import Alarm
from safeproducer.pipeline.arguments import Headers, checked
from safeproducer.pipeline.batch_lane import BatchLane
from safeproducer.pipeline.cluster_view import Leader
from safeproducer.pipeline.direct_lane import DirectLane
from safeproducer.pipeline.failures import Failures
from safeproducer.pipeline.flush_timer import FlushTimer
from safeproducer.pipeline.holds import LATE, LATE_TIMES, PACED, SLOW_START, Holds
from safeproducer.pipeline.in_flight_batch import InFlightBatch
from safeproducer.pipeline.lane_choice import LaneChoice
from safeproducer.pipeline.lane_pool import LanePool
from safeproducer.pipeline.metadata import Metadata
from safeproducer.pipeline.partition_buffer import MOST_OVERHEAD, PartitionBuffer
from safeproducer.pipeline.partitions import UNKNOWN
from safeproducer.pipeline.quota_rejections import QuotaRejection, QuotaRejections, RejectedPartition
from safeproducer.pipeline.record import (
    ACCEPTED_AT,
    HEADERS,
    KEY,
    OVERHEAD,
    REPORT,
    SIZE,
    TIMESTAMP,
    VALUE,
    DeliveryCallback,
    HeldRecord,
)
from safeproducer.pipeline.record_buffer import RecordBuffer, unable
from safeproducer.pipeline.report_numbers import ReportNumbers
from safeproducer.pipeline.report_queue import ReportQueue
from safeproducer.pipeline.sender import LONGEST_SLEEP, get_ident
from safeproducer.pipeline.windows import Windows
from safeproducer.policy.admission import WHATEVER_WAITS, Admission, Broker, Hold, Partition, admit, depth
from safeproducer.policy.affinity import Affinity
from safeproducer.policy.deadline import BACKSTOP_MARGIN
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.never import NEVER
from safeproducer.policy.outcome import Outcome

_REFUSED = Hold(None, HoldReason.QUOTA_RETRY)
_WAITS_FOR_LANE = Hold(None, HoldReason.LANE_CHANGE)
_WAITS_FOR_METADATA = Hold(None, HoldReason.UNKNOWN_TOPIC)
_OF_THE_LEADER = frozenset({HoldReason.THROTTLED, HoldReason.LEADER_SILENT})
"""What a partition waits for in whichever lane."""
_LONGEST_WAIT = 1.0
"""Seconds that a batch may wait behind others inside librdkafka; at its deadline its outcome is unknown."""
_CREATE_TIME = 1
_PILED_UP = 3
_STATISTICS_COME = 1.2
"""Seconds within which a lane's next statistics are served."""
_PLAIN = frozenset({bytes, type(None)})
_NO_ANSWER = "Local: Message timed out: no broker answered within message.timeout.ms"
_STALLED_WITH = "Local: Message timed out: it was purged with records that no broker answered"
_NOT_SENT = "Local: Message timed out: it was not sent within message.timeout.ms"
_THROTTLED_TOO_LONG = "Local: Message timed out: its broker is throttled for longer than the time it has left"


class Dispatcher:
    """Owns the partition buffers of one producer, and hands over to its lanes.

    `send()`, `run_reports()`, `waits()` and the counts from any thread, all else from the sender's.

    - `straight`: the native producer that takes records one by one, None when everything is held back.
    - `lanes`: those that take batches; empty until the first is needed.
    - `hint(topic, partition)` is called once, when round trips limit a partition and another ordering would cure it.
    - `alarm`: when `pump()` has something to do again.
    """

    def __init__(
        self,
        delivery: Delivery,
        holds: Holds,
        direct: NativeProducer | None,
        lanes: LanePool,
        windows: Windows,
        report_queue: ReportQueue,
        failures: Failures,
        metadata: Metadata,
        wake: Callable[[float], None],
        hint: Callable[[str, int], None],
        rejections: QuotaRejections,
        numbers: ReportNumbers,
        sent_once: Callable[[tuple[str, int], int | None, float], bool],
    ) -> None:
        self._delivery = delivery
        self._guard = delivery.guard_ms / 1000
        self._batch_records = delivery.batch_records
        self._batch_bytes = max(1, delivery.batch_bytes)
        self._holds = holds
        self._direct: Any = direct
        self.lanes = lanes
        self._failures = failures
        self._metadata = metadata
        self._wake = wake
        self._buffers: dict[tuple[str, int], PartitionBuffer] = {}
        self._topics: set[str] = set()
        self._busy: dict[tuple[str, int], PartitionBuffer] = {}
        self._in_flight: dict[int | None, int] = {}
        self.reports = report_queue.reports
        self._report_queue = report_queue
        self.alarm = Alarm()
        self._deadline = Alarm()
        """When a record's time is over, or a lane must be purged: what is looked at costs more than handing over."""
        self._unrung_at = 0.0
        self.flush_until = 0.0
        """Until when linger does not count: a time, as a count would be wrong for good after a handler that raises."""
        self.rechecks = False
        """Brokers may be worse off than the partition buffers tell: nothing goes directly until the sender has
        looked."""
        self.retired: Callable[[], Exception] | None = None
        """What produce() raises when nobody sends any more. Nothing waits then, so each record is the first one."""
        self.met_fatal: Callable[[KafkaError], object] = bool
        """Called when librdkafka takes no record because of a fatal error."""
        self.failing: tuple[int, str] | None = None
        """The error with which all that waits is to fail."""
        self._rejections = rejections
        self.numbers = numbers
        self._choice = LaneChoice(delivery, holds, lanes, windows, wake)
        self._flush_timer = FlushTimer(holds, lanes, self._guard)
        self.record_buffer = RecordBuffer(delivery, holds, direct, lanes, report_queue, rejections, self._buffers)
        self._sent_once = sent_once
        self._pinned: set[tuple[str, int]] = set()
        self._direct_at = -NEVER
        """When a record of any partition went directly last: of a new one, too, while librdkafka places it."""
        self._hint = None if delivery.spreads or not delivery.idempotent else hint

    # --- accepting ---------------------------------------------------------------------------------------------------

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
    ) -> None:
        """Take one record: the native produce()'s arguments, and what that raises."""
        size, overhead = 0, OVERHEAD
        if (
            type(value) not in _PLAIN
            or type(key) not in _PLAIN
            or headers is not None
            or timestamp != 0
            or type(partition) is not int
            or topic not in self._topics
        ):
            value, key, headers, size, lengths = checked(topic, value, key, partition, report, timestamp, headers)
            overhead = MOST_OVERHEAD + lengths
            partition, timestamp = index(partition), index(timestamp)
            self._topics.add(topic)
        now = time.monotonic()
        if topic in self.lanes.missing:
            self._refuse_missing(topic)
        tp = (topic, self._chosen(topic, key, now) if partition == UNKNOWN else partition)
        buffer = self._buffers.get(tp)
        if buffer is None:
            buffer = self._open(*tp)
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        lane = None if buffer.held or buffer.records or self.rechecks else self._holds.direct
        if lane is not None and not (lane.starting and not lane.takes(tp, size)):
            if self._busy or self._report_queue.reports or self._report_queue.deferred or self.lanes:
                self.record_buffer.refuse_excess(buffer, size)
            if lane.slow_start.open:
                stamp = timestamp or int(time.time() * 1000)
                self._rejections.remember(topic, report, (value, key, id(report), stamp, headers, size + OVERHEAD, now))
            self._direct_at = now
            try:
                self._direct.produce(topic, value, key, tp[1], report, None, timestamp, headers)
            except BaseException:
                lane.slow_start.give_back(size)
                raise
            return
        self.record_buffer.refuse_excess(buffer, size)
        self._append(buffer, value, key, report, timestamp or int(time.time() * 1000), headers, size + overhead, now)

    def _append(
        self,
        buffer: PartitionBuffer,
        value: bytes | None,
        key: bytes | None,
        report: DeliveryCallback,
        timestamp: int,
        headers: Headers | None,
        size: int,
        now: float,
    ) -> None:
        """The record waits from here on; what follows has the sender know, which looks at everything now and then."""
        records, reports, uses, number = buffer.records, self.numbers.reports, self.numbers.uses, id(report)
        # Up to the end of append() there is no place where a signal handler could come between: a call is the first.
        uses[number] += 1
        reports[number] = report
        buffer.bytes += size
        records.append((value, key, number, timestamp, headers, size, now))
        count = len(records)
        if count == 1:
            if self.retired is not None:
                self._refuse_last(buffer)
            self._busy[buffer.tp] = buffer
            self._expect_deadline(now)
            linger_elapsed = now if now < self.flush_until else now + self._delivery.linger
            if self.alarm.ask(linger_elapsed):
                self._wake(linger_elapsed)
        elif (
            (count >= self._batch_records or buffer.bytes >= self._batch_bytes)
            and ((why := buffer.why) is None or why.reason not in WHATEVER_WAITS)
            and self._fills(count, buffer.bytes, size)
        ):
            self.alarm.hurry()
            self._wake(0.0)

    def _refuse_last(self, buffer: PartitionBuffer) -> None:
        """The producer was closed while produce() was on its way: by a signal handler in it, or by another thread."""
        assert self.retired is not None  # noqa: S101 - whoever calls has looked
        record = buffer.records.pop()
        buffer.bytes -= record[SIZE]
        self.numbers.release(record[REPORT])
        raise self.retired()

    def _expect_deadline(self, accepted: float) -> None:
        if self._delivery.timeout is not None:
            self._deadline.ask(accepted + self._delivery.timeout)

    def _fills(self, count: int, held_bytes: int, size: int) -> bool:
        """Whether a record of `size` filled a batch: once for each, or every record behind a full one would pump."""
        most = self._batch_bytes
        return count % self._batch_records == 0 or held_bytes // most > (held_bytes - size) // most

    def _chosen(self, topic: str, key: bytes | None, now: float) -> int:
        """The partition of a record that names none; UNKNOWN behind others that are not placed yet."""
        unplaced = self._buffers.get((topic, UNKNOWN))
        if unplaced is not None and (unplaced.records or unplaced.unresolved):
            return UNKNOWN
        return self._holds.partitions.choose(topic, key, now)

    def _refuse_missing(self, topic: str) -> None:
        """As librdkafka does once it knows that there is no such topic; look whether there is one by now."""
        if self._holds.partitions.count(topic):
            self.lanes.missing.discard(topic)
            return
        self._metadata.want(topic)
        raise unable(KafkaError._UNKNOWN_TOPIC)

    def _open(self, topic: str, partition: int) -> PartitionBuffer:
        if not self._holds.partitions.has(topic, partition):
            raise unable(KafkaError._UNKNOWN_PARTITION)
        keyed = self._delivery.own.ordering == "key" and partition != UNKNOWN
        made = PartitionBuffer(topic, partition, Affinity() if keyed else None)
        now = time.monotonic()
        made.held_since = min(self._direct_at, now)
        made.held = self._holds.reason(made, now)
        self._wake(NEVER)
        return self._buffers.setdefault((topic, partition), made)

    @property
    def any_topic(self) -> str | None:
        """The name of a topic that records were accepted for, None before the first."""
        return next(iter(tuple(self._topics)), None)

    def forget_rejections(self) -> None:
        """The brokers know this producer's ID by now."""
        self._rejections.forget()

    def release_reports(self) -> None:
        """Those of records that have ended: nobody may poll again."""
        if self._direct is not None and not len(self._direct):
            self._rejections.forget()

    @property
    def empty(self) -> bool:
        """Whether nothing waits here, nothing is in a batch lane, and nothing that comes must take one."""
        return not (self.record_buffer.waiting or self.busy or self._pinned or self._rejections.count)

    @property
    def expects(self) -> bool:
        """Whether a record waits here or is in a batch lane, as far as the sender knows."""
        return bool(self._busy)

    @property
    def busy(self) -> bool:
        """Whether the batch lanes have something that will be reported."""
        return bool(self.lanes) and (self.alone or self.lanes.busy)

    @property
    def alone(self) -> bool:
        """Whether there is no direct lane."""
        return self._direct is None

    def serve(self) -> None:
        """Queue the reports that the batch lanes have."""
        if self.lanes:
            self.lanes.serve()

    def look_everywhere(self) -> None:
        """Queue what any lane has, an error that it tells of is raised."""
        for lane in self.lanes:
            lane.client.serve()

    # --- handing over ------------------------------------------------------------------------------------------------

    def pump(self, now: float) -> None:
        """Do what is due: expire, hand over, flush trigger."""
        self.alarm.begin()
        self.alarm.end(self._round(now))

    @property
    def waiting(self) -> int:
        """Records that wait here, as far as the sender knows."""
        return sum([buffer.waiting for buffer in tuple(self._busy.values())])

    def find_unrung(self, now: float) -> None:
        """Look now and then for records whose produce() was left by an exception before it rang."""
        if now < self._unrung_at:
            return
        self._unrung_at = now + LONGEST_SLEEP
        for tp, buffer in tuple(self._buffers.items()):
            if buffer.records and tp not in self._busy:
                self._busy[tp] = buffer
                self._expect_deadline(buffer.oldest)
                self.alarm.hurry()

    def _round(self, now: float) -> float:
        if self.failing is not None:
            failing, self.failing = self.failing, None
            self.fail_all(*failing)
        self._complete(now)
        again = self._settle_rejected(now)
        if self._deadline.rings(now):
            self._deadline.begin()
            due = self._purge_stalled(now)
            for buffer in tuple(self._busy.values()):
                due = min(due, self._expire(buffer, now))
            self._deadline.end(due)
        due = min(self._deadline.at, again)
        for tp, buffer in tuple(self._busy.items()):
            self._flush_timer.expect_rest(buffer, now)
            if not buffer.waiting:
                buffer.why = None
                if not buffer.unresolved:
                    self._settle(tp, buffer, now)
                continue
            due = min(due, self._hand_over(buffer, now))
        return min(due, self._flush_timer.trigger_flush(now))

    def _purge_stalled(self, now: float) -> float:
        """Purge a batch lane before librdkafka's own time-out comes; when to look again.

        That would start a new epoch for the whole lane, and write batches of other partitions twice whose answers were
        lost. The lane gets nothing for a while before, so that what is healthy gets out of it.
        """
        limit = self._delivery.stalled_after
        if limit is None or not self.lanes:
            return NEVER
        due = NEVER
        batches: dict[int, list[InFlightBatch]] = {}
        for buffer in tuple(self._busy.values()):
            for batch in buffer.unresolved:
                batches.setdefault(batch.lane, []).append(batch)
        for lane in self.lanes:
            due = min(due, self._purge_lane(lane, batches.get(lane.number, []), limit, now))
        return due

    def _purge_lane(self, lane: BatchLane, batches: list[InFlightBatch], limit: float, now: float) -> float:
        stalled_at = min((batch.at for batch in batches), default=NEVER) + limit
        lane.quarantined = stalled_at <= now
        if not lane.quarantined:
            return stalled_at
        purge_at = stalled_at + BACKSTOP_MARGIN / 2
        if now < purge_at and not all(batch.stalled for batch in batches):
            return min(purge_at, now + self._holds.PATIENCE)
        for batch in batches:
            self._report_expired(batch, now, -NEVER, KafkaError._MSG_TIMED_OUT, _STALLED_WITH)
        lane.purge()
        return now + self._holds.PATIENCE

    def _settle(self, tp: tuple[str, int], buffer: PartitionBuffer, now: float) -> None:
        """Nothing waits and nothing is under way: go directly again if there is no reason to hold any more."""
        self._busy.pop(tp, None)
        buffer.hold(self._holds.reason(buffer, now), now)
        if buffer.waiting:  # accepted meanwhile
            self._busy[tp] = buffer

    def _hand_over(self, buffer: PartitionBuffer, now: float) -> float:
        """Hand over what may go of one partition; when to look again."""
        holds = self._holds
        if buffer.tp in self._rejections.tps:
            buffer.why = _REFUSED
            return now + holds.PATIENCE
        while buffer.waiting:
            way = self._way(buffer, now)
            if way is None or (way is self.lanes and not self._knows(buffer.topic)):
                buffer.why = self._closed_by(buffer, now) if way is None else _WAITS_FOR_METADATA
                if holds.direct is not None and holds.direct.paced_start.open:
                    self._choice.foresee(buffer, holds.cluster.broker(buffer.tp, now).node, now)
                return now + holds.PATIENCE
            if way is self.lanes:
                placeable = buffer.partition == UNKNOWN and not buffer.unresolved
                if placeable and holds.partitions.count(buffer.topic):
                    self._assign(buffer, now)
                    break
            broker = holds.cluster.broker(buffer.tp, now)
            lane = None if way is self._direct else self._choice.lane_for(buffer, broker.node, now)
            verdict = self._admitted(buffer, lane, broker, now)
            if isinstance(verdict, Hold):
                return self._held(buffer, verdict)
            if way is self._direct and holds.direct is not None:
                buffer.why = None
                return self._send_directly(holds.direct, buffer)
            if lane is None or lane.quarantined or self._choice.is_closed(lane, buffer, broker.node, now):
                return self._choice.wait(buffer, lane, broker.node, now)
            buffer.why = None
            self._give_batch(buffer, lane, broker.node, now)
        return NEVER

    def _knows(self, topic: str) -> bool:
        """Whether a broker has told of this topic; asks when none has."""
        known = self._holds.partitions.known(topic)
        if not known:
            self._metadata.want(topic)
        return known

    def _admitted(self, buffer: PartitionBuffer, lane: BatchLane | None, broker: Leader, now: float) -> Admission:
        delivery = self._delivery
        on_lane = [batch for batch in buffer.unresolved if lane is not None and batch.lane == lane.number]
        waiting = buffer.waiting
        return admit(
            Partition(
                waiting,
                buffer.oldest,
                len(on_lane),
                max((batch.leaves_by for batch in on_lane), default=-NEVER),
                waiting >= delivery.batch_records or buffer.bytes >= delivery.batch_bytes,
                len(buffer.unresolved),
                self._choice.budget(buffer, broker.node, now),
            ),
            Broker(
                broker.throttled_until,
                broker.probing,
                self._in_flight.get(broker.node, 0),
                delivery.connection_cap if delivery.spreads else None,
                broker.node,
            ),
            now,
            0.0 if now < self.flush_until else delivery.linger,
            depth(buffer.ack.seconds, min(_LONGEST_WAIT, self._guard)),
        )

    def _held(self, buffer: PartitionBuffer, verdict: Hold) -> float:
        buffer.why = verdict
        if verdict.reason is HoldReason.IN_FLIGHT and self._hint is not None:
            self._suggest_lanes(buffer)
        return NEVER if verdict.until is None else verdict.until

    def _suggest_lanes(self, buffer: PartitionBuffer) -> None:
        """Tell, once, when batches pile up only because one of a partition is under way at a time."""
        hint = self._hint
        if hint is not None and buffer.waiting > _PILED_UP * self._delivery.batch_records:
            self._hint = None
            hint(*buffer.tp)

    def _give_batch(self, buffer: PartitionBuffer, lane: BatchLane, node: int | None, now: float) -> None:
        delivery = self._delivery
        taken = self.record_buffer.taken = []
        buffer.take(delivery.batch_records, delivery.batch_bytes, lane.number, taken)
        if not taken:  # the keys of all that waited are bound to other lanes
            return
        # Records without a partition are spread over several, none of which they fill.
        full = len(taken) == delivery.batch_records and buffer.partition >= 0
        batch = lane.hand_over(buffer, taken, full, now, self._refused, self._handed_over, node)
        if lane.refused:
            self._take_back(buffer, lane)
        if batch is not None:
            self._in_flight[node] = self._in_flight.get(node, 0) + 1
            if not batch.full:
                before = [other for other in buffer.unresolved[:-1] if other.lane == batch.lane]
                self._flush_timer.add(buffer, batch, behind_another=bool(before))
                if before:
                    before[-1].reports.on_answer = partial(_its_turn, weakref.ref(self), batch)

    def _handed_over(self) -> None:
        """The lane counts them."""
        self.record_buffer.taken = []

    def _take_back(self, buffer: PartitionBuffer, lane: BatchLane) -> None:
        """What a lane that has failed for good did not take may go to another one."""
        back, lane.refused = lane.refused, []
        buffer.take_back(back, lane.number)
        for record in back:
            self.numbers.hold_again(record[REPORT])

    def _assign(self, buffer: PartitionBuffer, now: float) -> None:
        """Give records their partitions, now that the topic is known."""
        choose = self._holds.partitions.choose
        while buffer.records:
            record = buffer.records[0]
            tp = (buffer.topic, choose(buffer.topic, record[KEY], now))
            chosen = self._buffers.get(tp) or self._open(*tp)
            chosen.hold(chosen.held or buffer.held, now)  # the direct path is not for records with a timestamp
            # There before it leaves here: until then produce() puts what follows behind it.
            chosen.bytes += record[SIZE]
            chosen.records.append(record)
            self._busy[tp] = chosen
            buffer.bytes -= record[SIZE]
            buffer.records.popleft()
        self.alarm.hurry()

    def _note_rejected(self, batch: InFlightBatch) -> None:
        tp, rejections = batch.tp, self._rejections
        for refusal in batch.reports.rejections:
            self.numbers.hold_again(refusal.record[REPORT])
            rejections.add(tp, refusal)
        if tp in rejections.tps and not batch.reports.rejections and not self._delivery.spreads:
            rejections.tps[tp].overtaken = True

    def _settle_rejected(self, now: float) -> float:
        """What a quota refused goes again, in front, once nothing of its partition is under way; when to look again."""
        due = NEVER
        for tp, refused in tuple(self._rejections.tps.items()):
            buffer = self._buffers.get(tp) or self._open(*tp)
            if buffer.unresolved or not self._has_left_direct(buffer, now):
                due = now + self._holds.PATIENCE
                continue
            proven = self._proven(tp, refused)
            if not proven and now < refused.at + _STATISTICS_COME:
                due = now + self._holds.PATIENCE
                continue
            rejections = self._rejections.take(tp).rejections
            self._report_queue.decide()
            if proven and not refused.overtaken:
                self._put_back(buffer, rejections)
            else:
                self._give_up(buffer, rejections)
        return due

    def _proven(self, tp: tuple[str, int], refused: RejectedPartition) -> bool:
        """Whether each refusal answered the only attempt of its record."""
        if all(self._failures.proves_rejection(refusal.message) for refusal in refused.rejections):
            return True
        lanes = {refusal.lane for refusal in refused.rejections}
        return all(self._sent_once(tp, lane, refused.at) for lane in lanes)

    def _put_back(self, buffer: PartitionBuffer, rejections: list[QuotaRejection]) -> None:
        for refusal in reversed(rejections):
            buffer.put_back(refusal.record, refusal.lane)
        self._expect_deadline(rejections[0].record[ACCEPTED_AT])
        self._busy[buffer.tp] = buffer

    def _give_up(self, buffer: PartitionBuffer, rejections: list[QuotaRejection]) -> None:
        for record, error, message, lane in map(_rejected_parts, rejections):
            told = self._failures.reported(error, message)
            buffer.gives_up(record, lane, getattr(told, "outcome", None) is not Outcome.NOT_WRITTEN)
            self.reports.add(self.numbers[record[REPORT]], told, message)
            self.numbers.release(record[REPORT])

    def _way(self, buffer: PartitionBuffer, now: float) -> Any:
        """Where the next batch goes: the batch lanes, the native producer of the direct lane, or None while it must
        wait.

        A partition changes ways only when the one it leaves has nothing of it any more: lanes have no order.
        """
        direct = self._holds.direct
        if direct is None or buffer.unresolved or buffer.bound or buffer.pinned:
            return self.lanes
        if not self._holds.wants_batch_lane(buffer, now):
            direct.gaps.gives_turn(buffer.tp, not len(self._direct))
            return self._direct if self._holds.reason(buffer, now) is None else None
        if not self._has_left_direct(buffer, now):
            return None
        self.lanes.prepare()
        if self.lanes:
            return self.lanes
        # None can be made now. The direct lane sends well, unless it was refused for good.
        return None if direct.rejected or direct.gaps else self._direct

    def _has_left_direct(self, buffer: PartitionBuffer, now: float) -> bool:
        lane = self._holds.direct
        return lane is None or lane.drained(buffer.tp, buffer.held_since, len(self._direct), now)

    def _closed_by(self, buffer: PartitionBuffer, now: float) -> Hold:
        """Why the next batch may go neither way."""
        reason = self._holds.reason(buffer, now)
        if reason is None or (reason.reason not in _OF_THE_LEADER and self._holds.wants_batch_lane(buffer, now)):
            return _WAITS_FOR_LANE
        return reason

    def release(self, lane: BatchLane) -> bool:
        """Take a lane out that nothing is under way on; what waits for it may take any other. False when it is busy.

        One that failed for good has had its answers: only what a lost connection left in the network may come later.
        """
        if lane.batches or lane.inside or self.lanes.completed or self._rejections.of_lane(lane.number):
            return False
        buffers = tuple(self._buffers.values())
        if lane.client.failed is None and any(each.binds(lane.number) for each in buffers):
            return False
        for buffer in buffers:
            buffer.unbind(lane.number)
            if buffer.waiting:
                self._busy[buffer.tp] = buffer
        self.lanes.remove(lane)
        self.alarm.hurry()
        return True

    def _send_directly(self, lane: DirectLane, buffer: PartitionBuffer) -> float:
        """Give what waits to the direct lane, record by record."""
        produce = self._direct.produce
        topic, partition, records = buffer.topic, buffer.partition, buffer.records
        if self._delivery.owns_timeout:  # else nobody observes the backlogs, and what is noted would stay
            lane.backlogs.released((topic, partition), time.monotonic(), records[0][ACCEPTED_AT])
        while records:
            record = records[0]
            if lane.starting and not lane.takes((topic, partition), record[SIZE] - OVERHEAD):
                buffer.why = PACED if lane.paced_start.open else SLOW_START
                return time.monotonic() + self._holds.PATIENCE
            buffer.held_since = self._direct_at = time.monotonic()
            try:
                produce(
                    topic,
                    record[VALUE],
                    record[KEY],
                    partition,
                    self.numbers[record[REPORT]],
                    None,
                    record[TIMESTAMP],
                    record[HEADERS],
                )
            except BufferError:
                return time.monotonic() + self._holds.PATIENCE
            except KafkaException as error:
                self._refused(buffer, record, error.args[0])
            self._take_first(buffer, records)
        buffer.held = None
        return NEVER

    def _take_first(self, buffer: PartitionBuffer, queue: deque[HeldRecord]) -> None:
        """The first record of one of its queues has ended, or left by the direct lane."""
        record = buffer.take_first(queue)
        self.numbers.release(record[REPORT])

    def answered(self, following: InFlightBatch) -> None:
        """The reports of the batch in front of `following` are being served. Inside a native call, so it makes none."""
        self._flush_timer.let_follow(following, time.monotonic())
        self.alarm.hurry()

    def _complete(self, now: float) -> None:
        """Take note of the batches whose reports have all arrived."""
        completed = self.lanes.completed
        while completed:
            batch = completed.popleft()
            buffer = self._buffers[batch.tp]
            self._note_rejected(batch)
            self.lanes.resolved(batch)
            buffer.ended(batch)
            remember = self._pinned.add if buffer.pinned else self._pinned.discard
            remember(buffer.tp)
            for number, count in batch.runs:
                self.numbers.release(number, count)
            waited = now - batch.sent_at
            much = LATE_TIMES * (buffer.ack.seconds or 0.0)
            if waited > max(LATE, much):
                self._holds.cluster.outdated.answered_late(buffer.tp, batch.lane, batch.sent_at, now)
                waited = much or waited
            if not batch.reports.unknown_outcome:
                self._choice.acknowledged(batch.broker, now)
            if not batch.expired and not batch.reports.rejections:
                buffer.ack.observe(waited)
            self._flush_timer.discard(batch)
            for following in buffer.unresolved[:1]:
                self._flush_timer.let_follow(following, now)
            left = self._in_flight.get(batch.broker, 0) - 1
            if left > 0:
                self._in_flight[batch.broker] = left
            else:
                self._in_flight.pop(batch.broker, None)

    def pump_if_due(self, now: float) -> None:
        if self.alarm.rings(now) or self.lanes.completed:
            self.pump(now)

    # --- ending ------------------------------------------------------------------------------------------------------

    def _refused(self, buffer: PartitionBuffer, record: HeldRecord, error: KafkaError) -> None:
        """librdkafka did not take a record that was given to a lane."""
        if error.code() == KafkaError._UNKNOWN_TOPIC:
            self.lanes.missing.add(buffer.topic)
        if error.code() == KafkaError._FATAL:
            self.met_fatal(error)  # before the record is told of it: then produce() raises
        if buffer.keys is not None and record[KEY] is not None:
            buffer.keys.release(record[KEY])
        self._report(buffer, record, error.code(), error.str(), handed_over=False)

    def _report(self, buffer: PartitionBuffer, record: HeldRecord, code: int, reason: str, handed_over: bool) -> None:
        """Queue a failed record's report, with a message as librdkafka would have made it."""
        error = self._failures.in_process(buffer.topic, buffer.partition, record, code, reason, handed_over)
        message = _failed_message(buffer, record, error)
        self.reports.add(self.numbers[record[REPORT]], error, message, record[SIZE])

    def _report_expired(self, batch: InFlightBatch, now: float, timeout: float, code: int, reason: str) -> None:
        def report(record: HeldRecord) -> None:
            self._report(self._buffers[batch.tp], record, code, reason, handed_over=True)

        batch.expire(now, timeout, report)

    def _expire(self, buffer: PartitionBuffer, now: float) -> float:
        """Fail what is past its deadline; when the next one is."""
        timeout = self._delivery.timeout
        if timeout is None:
            return NEVER
        due = NEVER
        for batch in buffer.unresolved if self._delivery.owns_timeout else ():
            self._report_expired(batch, now, timeout, KafkaError._MSG_TIMED_OUT, _NO_ANSWER)
            due = min(due, batch.next_deadline(timeout) or NEVER)
        unmeetable_until = self._holds.cluster.cannot_meet_until(buffer.tp, now)
        for queue in buffer.queues():
            while queue:
                deadline = queue[0][ACCEPTED_AT] + timeout
                if deadline > now and deadline > unmeetable_until:
                    due = min(due, deadline)
                    break
                reason = _NOT_SENT if deadline <= now else _THROTTLED_TOO_LONG
                held = f" (it {self.record_buffer.waits_for(buffer, now).sentence(now)})"
                self._report(buffer, queue[0], KafkaError._MSG_TIMED_OUT, reason + held, handed_over=False)
                self._take_first(buffer, queue)
        return due

    def fail_all(self, code: int, reason: str) -> None:
        """Fail every waiting record, certainly not written."""
        for tp in tuple(self._rejections.tps):
            self._give_up(self._buffers.get(tp) or self._open(*tp), self._rejections.take(tp).rejections)
        for buffer in tuple(self._buffers.values()):
            for queue in buffer.queues():
                while queue:
                    self._report(buffer, queue[0], code, reason, handed_over=False)
                    self._take_first(buffer, queue)

    def purge(self, in_queue: bool, in_flight: bool, blocking: bool) -> None:
        """As confluent_kafka's purge(), over what waits here and what the batch lanes have."""
        if in_queue:
            self.fail_all(KafkaError._PURGE_QUEUE, "Local: Purged in queue")
        self._report_partly_expired()
        self.lanes.purge(in_queue, in_flight, blocking)

    def _report_partly_expired(self) -> None:
        """A purge does not report in order, and which of a batch's reports to swallow is known by their order alone."""
        now = time.monotonic()
        for buffer in tuple(self._buffers.values()):
            for batch in buffer.unresolved:
                if batch.expired:
                    code = KafkaError._PURGE_INFLIGHT
                    self._report_expired(batch, now, -NEVER, code, KafkaError(code).str())

    def run_reports(self) -> int:
        """Run what is queued, on the application's thread; how many. Raises what a callback raises."""
        thread, running = get_ident(), self.record_buffer.running
        fresh = thread not in running
        try:
            running.add(thread)  # a record takes room until its callback has run
            return self.reports.run()
        finally:
            if fresh:
                running.discard(thread)

    def recheck(self, now: float) -> None:
        """Ask each partition buffer again whether it is held: something about brokers or acknowledgements changed."""
        self.rechecks = False
        for tp, buffer in tuple(self._buffers.items()):
            reason = self._holds.reason(buffer, now)
            if reason is not None or not (buffer.waiting or buffer.unresolved):
                buffer.hold(reason, now)
            if buffer.waiting:
                self._busy[tp] = buffer
        self._deadline.hurry()
        self.alarm.hurry()
        self.record_buffer.look_again()

    def leave_direct_path(self, now: float) -> None:
        """Records of any partition may have gone directly until now."""
        self._direct_at = now
        self.record_buffer.look_again()
        for buffer in tuple(self._buffers.values()):
            buffer.held_since = now

    def held(self) -> dict[tuple[str, int], tuple[int, int]]:
        """(topic, partition) -> (records that wait here, bytes of their keys and values)."""
        return {
            tp: (waiting, max(0, buffer.bytes - waiting * OVERHEAD))
            for tp, buffer in tuple(self._busy.items())
            if (waiting := buffer.waiting)
        }

    def waits(self) -> dict[tuple[str, int], tuple[int, str, HoldReason]]:
        """(topic, partition) -> (records that wait here, why: as a sentence and as a code)."""
        now = time.monotonic()
        return {
            tp: (count, hold.sentence(now), hold.reason)
            for tp, buffer in tuple(self._buffers.items())
            if (count := buffer.waiting)
            for hold in (self.record_buffer.waits_for(buffer, now),)
        }


def _its_turn(dispatcher: weakref.ref[Dispatcher], batch: InFlightBatch) -> None:
    # The native producer holds its callbacks, and must not hold the dispatcher by them.
    if (found := dispatcher()) is not None:
        found.answered(batch)


def _rejected_parts(refusal: QuotaRejection) -> tuple[HeldRecord, KafkaError, Message, int | None]:
    return refusal.record, refusal.error, refusal.message, refusal.lane


def _failed_message(buffer: PartitionBuffer, record: HeldRecord, error: KafkaError) -> Message:
    tp: dict[str, Any] = {} if buffer.partition < 0 else {"partition": buffer.partition}
    return Message(
        topic=buffer.topic,
        **tp,
        value=record[VALUE],
        key=record[KEY],
        error=error,
        timestamp=(_CREATE_TIME, record[TIMESTAMP]),
        latency=time.monotonic() - record[ACCEPTED_AT],
    )
