"""The buffered path, from the partition buffers on: records leave when no rule holds them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.pipeline.buffer.partition_buffer import PartitionBuffer
from safeproducer.pipeline.dispatch.expiry import Expiry
from safeproducer.pipeline.dispatch.flush_timer import FlushTimer
from safeproducer.pipeline.dispatch.intake import Intake
from safeproducer.pipeline.dispatch.ready_check import ReadyCheck
from safeproducer.pipeline.lanes.batch_lane import BatchLane
from safeproducer.pipeline.lanes.direct_lane import DirectLane
from safeproducer.pipeline.record import ACCEPTED_AT, HEADERS, KEY, OVERHEAD, REPORT, SIZE, TIMESTAMP, VALUE
from safeproducer.pipeline.reports.report_queue import Reports
from safeproducer.pipeline.sender import LONGEST_IDLE_SLEEP, LONGEST_SLEEP
from safeproducer.policy.decision import BATCH, LOOK_AGAIN, TURN, Hold, Wish, decide
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.pacing import LATE, LATE_TIMES
from safeproducer.policy.types import NEVER
from safeproducer.runtime import clock

_AGAIN_EACH = 3e-5  # seconds between two looks for each partition on probation: ten times what a look takes
_PREPARING_LANE = Hold(None, HoldReason.PREPARING_LANE)
_FIRST_ACKNOWLEDGEMENT = Hold(None, HoldReason.FIRST_ACKNOWLEDGEMENT)
_SHARED = (HoldReason.MAX_IN_FLIGHT, HoldReason.PROBING)
"""An answer to another partition's batch may end the wait: they share the connection to a broker."""


@dataclass(eq=False)
class Dispatcher(ReadyCheck):
    """Hands over to the lanes of one producer. The sender's thread calls; any thread may ask `empty` and `busy`, and
    call begin_renewal(). Its parts say who may call them.

    - `lanes`: those that take batches; empty until the first is needed.
    - `reports`: what the application's next poll() or flush() runs.
    """

    intake: Intake
    _flush_timer: FlushTimer
    expiry: Expiry
    reports: Reports
    _unwoken_at: float = 0.0
    _again: float = LOOK_AGAIN

    def __post_init__(self) -> None:
        self.only_batch_lanes = self._delivery.only_batch_lanes

    @property
    def empty(self) -> bool:
        """Whether nothing waits here, nothing is in a batch lane, and nothing that comes must take one."""
        records = self.record_buffer
        if records.pinned or self.quota_retry.rejections.count or self.busy:
            return False
        return not (any(buffer.waiting for buffer in list(records.busy.values())) or records.waiting)

    @property
    def busy(self) -> bool:
        """Whether the batch lanes have something that will be reported."""
        return bool(self.lanes) and (self.only_batch_lanes or self.lanes.busy)

    def serve(self) -> None:
        """Queue the reports that the batch lanes have."""
        if self.lanes:
            self.lanes.serve()

    def look_everywhere(self) -> None:
        """Queue the reports of all lanes. Raises an error that a lane tells of."""
        for lane in self.lanes:
            lane.client.serve()

    def pump(self, now: float) -> None:
        """Do what is due: expire, hand over, flush trigger."""
        # Thousands of partitions may wait, and each answer wakes the sender: to look at all of them would take longer
        # than the next answer does. Those are left out for which nothing has changed, or nothing can have come free.
        self.schedule.alarm.begin()
        self._note_resolved(now)
        due, waits = min(self.quota_retry.act(now), self.expiry.act(now)), 0
        lingers, rest_until = self.schedule.linger(now) > 0.0, now + LONGEST_IDLE_SLEEP
        occupied = set[int | None]()
        for buffer in list(self.record_buffer.busy.values()):
            why = buffer.why
            # NEVER: an exception ended the last look.
            if now < buffer.look_at < NEVER and (lingers or why is None or why.reason is not HoldReason.LINGER):
                due = min(due, buffer.look_at)
                continue
            if self._stays_on_probation(buffer, now):  # most that wait do at the beginning: no more is asked for those
                due = min(due, now + self._again)
                waits += 1
                continue
            self._flush_timer.expect_rest(buffer, now)
            if occupied and why is not None and why.reason in _SHARED and why.node in occupied:
                continue  # one was looked at: no more is asked for thousands of them at each answer
            buffer.looks()
            next_look = NEVER
            if buffer.waiting:
                next_look = self._hand_over(buffer, now)
            else:
                buffer.wait_for(None, now)
                if not buffer.unresolved:
                    self.record_buffer.settle(buffer, now)
            due = min(due, next_look)
            if (why := buffer.why) is not None and why.reason in _SHARED:
                occupied.add(why.node)
                next_look = 0.0  # at the next turn: an answer to another partition may end the wait
            buffer.rest(min(next_look, rest_until))
        self._again = max(LOOK_AGAIN, _AGAIN_EACH * waits)
        self.schedule.alarm.end(min(due, self._flush_timer.trigger_flush(now)))

    def begin_renewal(self, error: KafkaError) -> bool:
        """Have another native producer follow the direct lane's, which met this; whether one will. Any thread."""
        direct = self._holds.direct
        if direct is None or not self._delivery.renews or self.lanes.renewing.end is not None:
            return False
        direct.met_fatal(error)
        return True

    def find_unwoken(self, now: float) -> None:
        """Look now and then for records whose produce() was left by an exception before it rang."""
        if now >= self._unwoken_at:
            self._unwoken_at = now + LONGEST_SLEEP
            busy = self.record_buffer.busy
            for buffer in [each for each in self.record_buffer.all if each.records and each.tp not in busy]:
                busy[buffer.tp] = buffer
                buffer.ring()
                self.schedule.expect_deadline(buffer.oldest)
                self.schedule.alarm.hurry()

    def recheck(self, now: float, topics: Iterable[str] | None = None) -> None:
        """Ask partition buffers of these topics, or all, again whether they are held: brokers or answers changed."""
        if topics is None:
            self.intake.resume()
        self._choice.windows.tell(now)
        self.record_buffer.recheck(now, topics)
        self.schedule.deadline.hurry()
        self.schedule.alarm.hurry()

    def retire(self, lane: BatchLane) -> bool:
        """Take a lane out that nothing is under way on; what waits for it may take any other. False when it is busy.

        One that failed for good has had its answers: only what a lost connection left in the network may come later.
        """
        if lane.batches or lane.inside or self.lanes.completed or self.quota_retry.rejections.of_lane(lane.number):
            return False
        if not self.record_buffer.unbind(lane):
            return False
        self.lanes.remove(lane)
        self.schedule.alarm.hurry()
        return True

    def _stays_on_probation(self, buffer: PartitionBuffer, now: float) -> bool:
        """Whether nothing has changed for records that wait for the first answer of their partition."""
        why, direct = buffer.why, self._holds.direct
        waits = why is not None and why.reason in (HoldReason.FIRST_ACKNOWLEDGEMENT, HoldReason.PREPARING_LANE)
        return waits and direct is not None and buffer.look_at > 0.0 and direct.closes(buffer.tp, now)

    def _hand_over(self, buffer: PartitionBuffer, now: float) -> float:
        """Hand over what may go of one partition; when to look again."""
        # To carry out a wish may place a record, or make a lane: what was found before would send records where they do
        # not belong. So it is found anew, until the partition is held or empty.
        if (until := self._throttled_until(buffer, now)) is not None:
            return until
        while buffer.waiting:
            facts, lane = self.gather(buffer, now)
            if facts.wishes and self._carry_out(facts.wishes, buffer.topic, now):
                continue  # what was found is not so any more
            verdict, direct = decide(facts, now), self._holds.direct
            if isinstance(verdict, Hold):
                self._choice.act_on(verdict, facts, buffer, now)
                owed = self._holds.is_owed(buffer, verdict, now)
                buffer.wait_for(verdict, now, self._holds.code(buffer, verdict, owed, now))
                if owed or not verdict.reason.waits_for_answer:
                    return verdict.again
                silent_from = self._holds.silent_from(buffer)
                return min(verdict.again, silent_from if silent_from > now else now + LATE)
            buffer.wait_for(None, now)
            if verdict != BATCH and direct is not None:
                why, due = self._send_directly(direct, buffer)
                buffer.wait_for(why, now)
                return due
            if lane is None:  # for mypy: LANES_BUSY holds then
                return now + LOOK_AGAIN
            if lane.permit.may_send(None if lane.log is None else lane.log.producer_id):  # its first batch asks
                self._give_batch(buffer, lane, facts.node, now)
        return NEVER

    def _carry_out(self, wishes: Iterable[Wish], topic: str, now: float) -> bool:
        """Carry them out; whether what was found is outdated by that."""
        if Wish.ASK in wishes:
            self._placement.ask(topic)
        if Wish.PLACE in wishes:
            self._placement.place(topic, now)
            return True
        direct = self._holds.direct
        return Wish.LANE in wishes and self.lanes.prepare(None if direct is None else direct.failure)

    def _throttled_until(self, buffer: PartitionBuffer, now: float) -> float | None:
        """Until when a partition waits on that has waited for its leader's throttle time: no more is asked for it."""
        why, cluster = buffer.why, self._holds.cluster
        # It is to be looked at sooner while it changes its lane, or its leader is not known: then all is asked.
        if why is None or why.reason is not HoldReason.THROTTLED or why.until != why.again:
            return None
        until = cluster.throttle.deadline(why.node, now) if cluster.partitions.leader(*buffer.tp) == why.node else None
        if until is not None:
            buffer.wait_for(why._replace(until=until, again=until), now)
        return until

    def _give_batch(self, buffer: PartitionBuffer, lane: BatchLane, node: int | None, now: float) -> None:
        buffer.hold(buffer.held or TURN, now)  # or what comes next would pass it on the direct path
        taken = self.record_buffer.take(buffer, lane.number)
        if not taken:  # the keys of all that waited are bound to other lanes
            return
        self.record_buffer.tell_hold(buffer, taken)
        # Records without a partition are spread over several, none of which they fill.
        full = len(taken) == self._delivery.batch_records and buffer.partition >= 0
        batch = lane.hand_over(buffer, taken, full, now, self.expiry.refused, self.record_buffer.given, node)
        if lane.refused:
            self.record_buffer.take_back(buffer, lane)
        if batch is not None:
            self._choice.handed_over(node)
            # It goes last: those that wait for the same broker would wait for as long as it has more.
            if self.record_buffer.busy.pop(buffer.tp, None) is not None:
                self.record_buffer.busy[buffer.tp] = buffer
            if not batch.full:
                before = [other for other in buffer.unresolved[:-1] if other.lane == batch.lane]
                self._flush_timer.add(buffer, batch, before[-1] if before else None)

    def _send_directly(self, lane: DirectLane, buffer: PartitionBuffer) -> tuple[Hold | None, float]:
        """Give what waits to the direct lane, record by record; why some still waits, and when to look again."""
        # Other threads produce meanwhile. A record leaves the buffer only when librdkafka has it: else one of theirs
        # could pass it, and flush() could end while nobody counts it.
        produce, numbers = self.record_buffer.direct_native.produce, self.record_buffer.numbers
        (topic, partition), records = buffer.tp, buffer.records
        if self._delivery.owns_timeout:  # else nobody observes the backlogs, and what is noted would stay
            lane.backlogs.released(buffer.tp, clock.monotonic(), records[0][ACCEPTED_AT])
        while records:
            record, now = records[0], clock.monotonic()
            if lane.probation.open and not lane.takes(buffer.tp, record[SIZE] - OVERHEAD):
                return _PREPARING_LANE if lane.probation.paced else _FIRST_ACKNOWLEDGEMENT, now + LOOK_AGAIN
            self.record_buffer.went_directly(now)
            buffer.went_directly(now)
            self.record_buffer.tell_hold(buffer, (record,))
            report = numbers[record[REPORT]]
            for durations in self.reports.durations:
                report = durations.after(now - record[ACCEPTED_AT], report)
            try:
                produce(topic, record[VALUE], record[KEY], partition, report, None, record[TIMESTAMP], record[HEADERS])
            except BufferError:
                lane.probation.give_back(buffer.tp, record[SIZE] - OVERHEAD)
                return None, now + LOOK_AGAIN
            except KafkaException as error:
                if error.args[0].code() == KafkaError._FATAL and self.begin_renewal(error.args[0]):
                    lane.probation.give_back(buffer.tp, record[SIZE] - OVERHEAD)
                    return None, now + LOOK_AGAIN
                self.expiry.refused(buffer, record, error.args[0], bound=False)
            numbers.release(buffer.take_out(records)[REPORT])
        buffer.hold(None, clock.monotonic())
        return None, NEVER

    def _note_resolved(self, now: float) -> None:
        """Take note of the batches whose reports have all arrived."""
        while self.lanes.completed:
            batch = self.lanes.completed.popleft()
            buffer = self.record_buffer.buffers[batch.tp]
            self.quota_retry.note(batch)
            self.lanes.resolved(batch)
            buffer.resolved(batch)
            if self._delivery.fails_behind and batch.reports.unknown_outcome and self.lanes.has_failed(batch.lane):
                self.expiry.give_up(batch.tp, {record[KEY] for record in batch.records})
            if buffer.pinned:
                self.record_buffer.pinned.add(buffer.tp)
            else:
                self.record_buffer.pinned.discard(buffer.tp)
            for number, count in batch.runs:
                self.record_buffer.numbers.release(number, count)
            # A batch for a leader that hung is answered late, by the next one, and other lanes would wait for it as
            # long. They are to ask who leads now, and the wait does not count in full as the usual time of an answer.
            waited = now - batch.sent_at
            much = LATE_TIMES * (buffer.ack.seconds or 0.0)
            if waited > max(LATE, much) and not self._holds.cluster.answers(batch.broker, batch.sent_at):
                self._holds.cluster.outdated.answered_late(buffer.tp, batch.lane, batch.sent_at, now)
                self.record_buffer.recheck(now, (buffer.topic,))
                waited = much or waited
            self._choice.resolved(batch)
            if not batch.expired and not batch.reports.rejections:
                buffer.ack.observe(waited, now)
                for durations in () if batch.reports.failed else self.reports.durations:
                    durations.of_batch(batch.tp, batch.records, now)
            self._flush_timer.discard(batch)
            for following in buffer.unresolved[:1]:
                self._flush_timer.let_follow(following, now)
