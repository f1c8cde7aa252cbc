"""Records end here by their time, or because a lane must be empty before its producer ID expires.

librdkafka's time-out would start a new epoch for the whole lane, and write batches of other partitions twice whose
answers were lost. A retry after the leader has forgotten the ID is written twice, too, and reported as delivered. In
both cases the lane gets nothing for a while before, so that what is healthy gets out of it.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Any

from safeproducer.kafka.arguments import is_no_name
from safeproducer.kafka.native import KafkaError, KafkaException, Message
from safeproducer.pipeline.buffer.in_flight_batch import InFlightBatch
from safeproducer.pipeline.buffer.partition_buffer import PartitionBuffer, Ticket
from safeproducer.pipeline.cluster.id_expirations import IdExpirations
from safeproducer.pipeline.dispatch.hold_facts import HoldFacts
from safeproducer.pipeline.dispatch.quota_retry import TIMEOUT, QuotaRetry
from safeproducer.pipeline.dispatch.record_buffer import RecordBuffer
from safeproducer.pipeline.lanes.batch_lane import BatchLane
from safeproducer.pipeline.lanes.direct_lane import DirectLane
from safeproducer.pipeline.lanes.lane_pool import LanePool
from safeproducer.pipeline.record import ACCEPTED_AT, KEY, REPORT, TIMESTAMP, HeldRecord
from safeproducer.pipeline.reports.delivery_errors import Failures, purged_tps
from safeproducer.pipeline.reports.hooked_send import callback_of
from safeproducer.pipeline.reports.report_queue import ReportQueue
from safeproducer.pipeline.schedule import Schedule
from safeproducer.policy.backlog import Backlogs
from safeproducer.policy.decision import LOOK_AGAIN, Wish
from safeproducer.policy.expiry import BACKSTOP_MARGIN, LEAST_LIMIT, Purge, purge_at
from safeproducer.policy.types import DIRECT_LANE, NEVER, UNPLACED, TopicPartition
from safeproducer.runtime import clock
from safeproducer.settings.delivery import SendConfig

_LOOK_EVERY = 0.1  # seconds, less than any lane is closed before its purge: a look at each batch in each turn is felt
_LONGEST_DRAINED = 5.0  # seconds after a deadline in which what is healthy leaves the direct lane before its purge
_TOGETHER = 1.0  # seconds after its deadline for which a batch that was never sent waits for others of its lane
_STALLED_WITH = "Local: Message timed out: it was purged with records that no broker acknowledged"
_CREATE_TIME = 1
_NOT_SENT = "Local: Message timed out: it was not sent within message.timeout.ms"
_NO_PRODUCER_ID = "Local: No producer ID in time"
_BEHIND = "Local: Purged in queue: it was behind a record whose outcome a fatal error left unknown"
_WITHDRAWN = "Local: Withdrawn before it was sent"
_THROTTLED_TOO_LONG = "Local: Message timed out: its broker is throttled for longer than the time it has left"


def timed_out(within: str) -> str:
    """Why a record failed that no broker acknowledged `within` this time, worded as librdkafka does."""
    return f"Local: Message timed out: no broker acknowledged it within {within}"


@dataclass(eq=False)
class Expiry:
    """Queues the reports of records that end here. The sender's thread calls; what is `..._soon()` any thread.

    `refusal_of(error)` is called when librdkafka takes no record because of a fatal error.
    """

    _delivery: SendConfig
    _holds: HoldFacts
    _lanes: LanePool
    _record_buffer: RecordBuffer
    _quota_retry: QuotaRetry
    _schedule: Schedule
    _failures: Failures
    _report_queue: ReportQueue
    _refusal_of: Callable[[Exception], object]
    expirations: IdExpirations
    _look_at: float = 0.0
    _failing: tuple[int, str] | None = None  # the error with which all that waits is to fail
    _asked_back: deque[tuple[Ticket, object, Callable[[bool], object]]] = field(default_factory=deque)

    def fail_soon(self, code: int, reason: str) -> None:
        """Have the sender fail what waits."""
        self._failing = code, reason
        self._schedule.hurry()

    def withdraw_soon(self, ticket: Ticket, callback: object, told: Callable[[bool], object]) -> None:
        """Have the sender take back the record that waits there: it gets its report, as not written.

        A record that was handed over meanwhile goes on, and gets its own report. Each therefore gets exactly one.
        `callback` is the record's own: the number may be another record's by now. `told(found)` is called on the
        sender's thread, behind the report: whether the record was here. It must not block.
        """
        self._asked_back.append((ticket, callback, told))
        self._schedule.hurry()

    def _withdraw(self) -> None:
        """Take all of them back, in one look at each partition that one of them was put into; the order is kept."""
        # Since it was asked back, a record may have been handed over, or placed, or its number may be another one's. So
        # its callback tells whether it is the one, and it is looked for where it may have been placed, too.
        asked = [self._asked_back.popleft() for _ in range(len(self._asked_back))]
        reports, found = self._record_buffer.numbers.reports, set[int]()
        wanted = defaultdict[PartitionBuffer, set[int]](set)
        for (buffer, number), callback, _ in asked:
            if callback_of(reports.get(number)) is callback:
                placed = self._record_buffer.of_topics((buffer.topic,)) if buffer.partition == UNPLACED else ()
                for each in (buffer, *placed):  # it may have its partition by now
                    wanted[each].add(number)
        for buffer, numbers in wanted.items():
            for queue in buffer.queues():
                places = [at for at, record in enumerate(queue.copy()) if record[REPORT] in numbers]
                found.update(queue[at][REPORT] for at in places)
                self._failures.take_back(len(places))
                for before, at in enumerate(places):
                    self._end(buffer, queue, KafkaError._PURGE_QUEUE, _WITHDRAWN, at - before)
        for (_, number), _, told in asked:
            told(number in found)

    def fail_all(self, code: int, reason: str) -> None:
        """Fail every waiting record, certainly not written."""
        self._quota_retry.give_up_all()
        for buffer in self._record_buffer.all:
            for queue in buffer.queues():
                while queue:
                    self._end(buffer, queue, code, reason)

    def give_up(self, tp: TopicPartition, keys: Set[object]) -> None:
        """A record with one of these keys ended unknown: end what waits behind it, also what has no partition yet."""
        of_keys, buffers = self._delivery.own.ordering == "key", self._record_buffer.buffers
        keys = keys - {None}
        for buffer in filter(None, (buffers.get(tp), buffers.get((tp[0], UNPLACED)))):
            for queue in buffer.queues():
                found = [at for at, record in enumerate(queue.copy()) if not of_keys or record[KEY] in keys]
                for before, at in enumerate(found):
                    self._end(buffer, queue, KafkaError._PURGE_QUEUE, _BEHIND, at - before)

    def purge(self, in_queue: bool, in_flight: bool, blocking: bool) -> None:
        """Purge what waits here and what the batch lanes have, as confluent_kafka's purge() does."""
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
            self._lanes.refused_topics.add(buffer.topic)
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
        if self._asked_back:
            self._withdraw()
        deadline = self._schedule.deadline
        if deadline.rings(now):
            deadline.begin()
            due = min([self.purge_lane(lane, now) for lane in self._lanes], default=NEVER)
            for buffer in list(self._record_buffer.busy.values()):
                due = min(due, self._expire(buffer, now))
            deadline.end(due)
        return deadline.at

    def _expire(self, buffer: PartitionBuffer, now: float) -> float:
        """Fail what is past its deadline; when the next one is."""
        due = NEVER
        if (timeout := self._delivery.timeout) is None:
            return due
        for batch in buffer.unresolved if self._delivery.owns_timeout else ():
            if self._takes_out(batch, timeout, now):
                due = min(due, now + LOOK_AGAIN)
                continue
            self._report_expired(batch, now, timeout, KafkaError._MSG_TIMED_OUT, timed_out(TIMEOUT))
            due = min(due, batch.next_deadline(timeout) or NEVER)
        node, throttle = self._holds.partitions.leader(*buffer.tp), self._holds.cluster.throttle
        unmeetable_until = 0.0 if node is None else throttle.deadline(node, now) or 0.0
        for queue in buffer.queues():
            while queue:
                deadline = queue[0][ACCEPTED_AT] + timeout
                if (end := self._end_at(deadline, unmeetable_until, now)) is None:
                    due = min(due, deadline)
                    break
                held = self._holds.cluster.addressed(self._holds.waits_for(buffer, now).sentence(now))
                self._end(buffer, queue, end[0], f"{end[1]} (it {held})")
        return due

    def _takes_out(self, batch: InFlightBatch, timeout: float, now: float) -> bool:
        """Whether it is late and nothing of its lane was ever sent, as far as statistics tell, or is out already.

        librdkafka would go on trying, and its records be unknown. Once they are out, younger statistics prove that they
        are not written. Others in the lane would be purged with them, so it waits for those to be late, too, briefly.
        """
        deadline = batch.next_deadline(timeout)
        if batch.reports.late or self._holds.direct is not None or deadline is None or deadline > now:
            return batch.reports.late
        lane = next((lane for lane in self._lanes if lane.number == batch.lane), None)
        never_sent = self._holds.cluster.never_sent
        if lane is None or not all(never_sent(each.tp, each.lane, each.at, len(each.records)) for each in lane.batches):
            return False
        if any(record[ACCEPTED_AT] + timeout > now for each in lane.batches for record in each.records[-1:]):
            return now < deadline + _TOGETHER
        lane.take_out()
        return True

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
        self._report_queue.reports.add(self._record_buffer.numbers[record[REPORT]], error, message, size)

    def _end(self, buffer: PartitionBuffer, queue: Any, code: int, reason: str, index: int = 0) -> None:
        """A record of one of the queues, most often the first, is not handed over any more."""
        self._record_buffer.tell_hold(buffer, (queue[index],))
        self._report(buffer, queue[index], code, reason, handed_over=False)
        self._record_buffer.numbers.release(buffer.take_out(queue, index)[REPORT])

    def _report_expired(self, batch: InFlightBatch, now: float, timeout: float, code: int, reason: str) -> None:
        """Report what of this batch is past its deadline."""
        buffer = self._record_buffer.find(batch.tp)
        batch.expire(now, timeout, lambda record: self._report(buffer, record, code, reason, handed_over=True))

    # --- lanes that are emptied in time -------------------------------------------------------------------------------

    @property
    def _age(self) -> float | None:
        """The age from which nothing may be sent again; None while it is not known, and where nobody cares."""
        horizon = self.expirations.current
        watched = self._delivery.idempotent and not self._delivery.transactional
        return horizon.limit if horizon is not None and watched else None

    @property
    def limit(self) -> float | None:
        """The age at which what has no acknowledgement is purged; None where that is never."""
        guards = self._delivery.own.expiry == "guard" and self._delivery.owns_timeout
        return self._age if guards else None

    def look(self, now: float) -> None:
        """In each turn: learn, and see to it that lanes are purged in time."""
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_EVERY
        self.expirations.look(now)
        age, guards, horizon = self._age, self.limit is not None, self.expirations.current
        if age is None or horizon is None:
            return
        if not guards:
            self._failures.retries_beyond(age)
        due = min([self._due(batch, age) for lane in self._lanes for batch in lane.batches.copy()], default=NEVER)
        if guards and due < NEVER:
            at = due - self._lead(age)
            self._schedule.deadline.ask(at)
            self._schedule.alarm.ask(at)
        elif due <= now:
            self.expirations.tell_of_late_retries(age)

    def direct_lane(self, backlogs: Backlogs, now: float, longer: float = 0.0) -> Purge | None:
        """When the direct lane is emptied, `longer` after a deadline; None when nothing in it waits."""
        if (earliest := backlogs.earliest()) is None:
            return None
        rules = []
        if (timeout := self._delivery.timeout) is not None:
            rules.append(Purge(earliest + timeout + longer, earliest + timeout - self._lead(timeout), TIMEOUT))
        if (age := self._age) is not None:
            at, within, old = earliest + age, age, self.expirations.timestamps
            if old or now >= at - self._lead(age):  # to look at each partition takes longer
                at = backlogs.purge_at(age, old.oldest)
                within = LEAST_LIMIT if at < earliest + age else age
            if self.limit is not None:
                rules.append(Purge(at, at - self._lead(within), self._within(within)))
            elif at <= now:
                self.expirations.tell_of_late_retries(age)
        return min(rules, default=None)

    def empty_direct(self, now: float) -> Wish | None:
        """Have the direct lane purged when a record in it reaches its deadline, after what is healthy has left it."""
        # A purge ends the epoch of the whole lane, and fails healthy records that are in it. So the lane takes nothing
        # for a while before the deadline, and is purged when what is healthy has left, or stays open if nothing is late
        # any more.
        if (lane := self._holds.direct) is None or not self._delivery.owns_timeout:
            return None
        if lane.purge is not None:
            return self._tell_of_purged(lane, *lane.purge, now)
        longer = 0.0
        if lane.draining and not self._holds.cluster.away:
            # What leaders do not owe is on its way, or gathers for linger.ms: it would fail, too.
            left, timeout = lane.backlogs.open(), self._delivery.timeout or 0.0
            comes = len(self._record_buffer.direct_native) > sum(left[tp] for tp in lane.silent)
            longer = min(timeout / 4, _LONGEST_DRAINED) * comes
        due = self.direct_lane(lane.backlogs, now, longer)
        if due is None and lane.draining:
            lane.drain(False)  # it was acknowledged after all
            return Wish.LOOK
        if due is None or now < (due.at if lane.draining else due.closes):
            return None
        if not lane.draining:
            lane.drain(True)
            return Wish.HOLD  # now: what followed the purge into the lane would meet the end of its epoch
        self._report_queue.defer(True)
        lane.purging(now, due.within)
        return Wish.PURGE

    def _tell_of_purged(self, lane: DirectLane, at: float, within: str, now: float) -> Wish | None:
        """Report the purged records when younger statistics tell which of them were sent; then the lane goes on."""
        found, deferred = self._holds.cluster.statistics.get(DIRECT_LANE), self._report_queue.deferred
        if found is None or found.at <= at or found.messages:
            return None
        if deferred and deferred[0].by <= lane.counts.since:  # of a lane that failed, and told before
            return None
        self._report_queue.defer(False)
        kept = list(deferred)
        never_sent = lane.counts.unsent.counts(found, max(self._failures.failed_at, self._report_queue.failed_at))
        if found.no_id_yet:
            queued = [each.message for each in kept if each.error.code() == KafkaError._PURGE_QUEUE]
            never_sent = Counter((message.topic(), message.partition()) for message in queued)
        self._report_queue.tell(self._failures.expired(kept, never_sent, within))
        lane.purged(purged_tps(kept), found.producer_epoch, now)
        lane.drain(False)
        return Wish.LOOK

    def purge_lane(self, lane: BatchLane, now: float) -> float:
        """Purge a batch lane if it is time; when to look again."""
        batches = lane.batches.copy()
        stalled, forgotten = self._stalled(batches), self._forgotten(batches)
        closes = min(stalled.closes, forgotten.closes)
        lane.draining = closes <= now
        if not lane.draining:
            return closes
        over = stalled.closes <= now and all(batch.stalled for batch in batches)
        if now < min(stalled.at, forgotten.at) and not over:
            return min(stalled.at, forgotten.at, now + LOOK_AGAIN)
        why = _STALLED_WITH if forgotten.at > now else timed_out(forgotten.within)
        for batch in batches:
            self._report_expired(batch, now, -NEVER, KafkaError._MSG_TIMED_OUT, why)
        lane.purge()
        return now + LOOK_AGAIN

    def _stalled(self, batches: list[InFlightBatch]) -> Purge:
        limit = self._delivery.stalled_after
        at = NEVER if limit is None else min([batch.at for batch in batches], default=NEVER) + limit
        return Purge(at + BACKSTOP_MARGIN / 2, at, TIMEOUT)

    def _forgotten(self, batches: list[InFlightBatch]) -> Purge:
        if (limit := self.limit) is None:
            return Purge(NEVER, NEVER, "")
        at, handed = min([(self._due(batch, limit), batch.at) for batch in batches], default=(NEVER, 0.0))
        within = min(limit, at - handed)
        return Purge(at, at - self._lead(within), self._within(within))

    def _due(self, batch: InFlightBatch, limit: float) -> float:
        """When a batch without an acknowledgement must not be sent again."""
        if not batch.records:
            return purge_at(batch.at, batch.at, limit)
        newest, stamped = batch.records[-1], NEVER
        if self.expirations.timestamps and self.expirations.timestamps.keeps(batch.tp[0]):
            stamped = clock.monotonic() - clock.time() + newest[TIMESTAMP] / 1000
        return purge_at(batch.at, newest[ACCEPTED_AT], limit, stamped)

    def _lead(self, timeout: float) -> float:
        """For how long the lane gets nothing before it is purged."""
        return min(timeout / 4, max(0.25, 3 * self._holds.round_trip.seconds))

    def _within(self, limit: float) -> str:
        horizon = self.expirations.current
        known = "" if horizon is None else f" of {horizon.seconds * 1000:.0f}"
        return (
            f"{limit:g} s, and its leader forgets this producer after producer.id.expiration.ms{known} "
            f"(KIP-854, safeproducer.expiry=guard)"
        )
