"""The held-back feed: records wait in accumulators, and leave when admission says go.

produce() appends, in one step, and rings. All else is done by the sender's thread. Reports of fed batches, and of
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
from safeproducer.pipeline.accumulator import MOST_OVERHEAD, OVERHEAD, Accumulator
from safeproducer.pipeline.alarm import Alarm
from safeproducer.pipeline.arguments import Headers, checked
from safeproducer.pipeline.away import Away
from safeproducer.pipeline.buffer import Buffer, unable
from safeproducer.pipeline.failures import Failures
from safeproducer.pipeline.fed_lane import FedLane
from safeproducer.pipeline.hand_over import HandOver
from safeproducer.pipeline.holds import COLD, OVERDUE, PACED, Holds, Leader
from safeproducer.pipeline.kicks import Kicks
from safeproducer.pipeline.lane_choice import LaneChoice
from safeproducer.pipeline.lanes import Lanes
from safeproducer.pipeline.metadata import Metadata
from safeproducer.pipeline.partitions import UNKNOWN
from safeproducer.pipeline.record import (
    ACCEPTED_AT,
    HEADERS,
    KEY,
    REPORT,
    SIZE,
    TIMESTAMP,
    VALUE,
    DeliveryCallback,
    HeldRecord,
)
from safeproducer.pipeline.refusals import Refusal, Refusals, Refused
from safeproducer.pipeline.report_numbers import ReportNumbers
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
"""Seconds that a batch may wait behind others inside librdkafka; at its deadline nobody knows what became of it."""
_CREATE_TIME = 1
_PILED_UP = 3
_OVERDUE_TIMES = 5
"""An answer that took so many times as long as usual was not on its way all that time."""
_STATISTICS_COME = 1.2
"""Seconds within which a lane's next statistics are served."""
_PLAIN = frozenset({bytes, type(None)})
_NO_ANSWER = "Local: Message timed out: no broker answered within message.timeout.ms"
_STUCK_WITH = "Local: Message timed out: it was purged with records that no broker answered"
_NOT_SENT = "Local: Message timed out: it was not sent within message.timeout.ms"
_THROTTLED_TOO_LONG = "Local: Message timed out: its broker is throttled for longer than the time it has left"


class Feed:
    """Owns the accumulators of one producer, and hands over to its lanes.

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
        straight: NativeProducer | None,
        lanes: Lanes,
        windows: Windows,
        away: Away,
        failures: Failures,
        metadata: Metadata,
        wake: Callable[[float], None],
        hint: Callable[[str, int], None],
        refusals: Refusals,
        numbers: ReportNumbers,
        sent_once: Callable[[tuple[str, int], int | None, float], bool],
    ) -> None:
        self._delivery = delivery
        self._guard = delivery.guard_ms / 1000
        self._batch_records = delivery.batch_records
        self._batch_bytes = max(1, delivery.batch_bytes)
        self._holds = holds
        self._straight: Any = straight
        self.lanes = lanes
        self._failures = failures
        self._metadata = metadata
        self._wake = wake
        self._accumulators: dict[tuple[str, int], Accumulator] = {}
        self._topics: set[str] = set()
        self._busy: dict[tuple[str, int], Accumulator] = {}
        self._in_flight: dict[int | None, int] = {}
        self.reports = away.reports
        self._away = away
        self.alarm = Alarm()
        self._deadline = Alarm()
        """When a record's time is over, or a lane must be purged: what is looked at costs more than a hand-over."""
        self._unrung_at = 0.0
        self.flush_until = 0.0
        """Until when linger does not count: a time, as a count would be wrong for good after a handler that raises."""
        self.rechecks = False
        """Brokers may be worse off than the accumulators tell: nothing goes straight until the sender has looked."""
        self.retired: Callable[[], Exception] | None = None
        """What produce() raises when nobody sends any more. Nothing waits then, so each record is the first one."""
        self.met_fatal: Callable[[KafkaError], object] = bool
        """Called when librdkafka takes no record because of a fatal error."""
        self.failing: tuple[int, str] | None = None
        """The error with which all that waits is to fail."""
        self._refusals = refusals
        self.numbers = numbers
        self._choice = LaneChoice(delivery, holds, lanes, windows, wake)
        self._kicks = Kicks(holds, lanes, self._guard)
        self.buffer = Buffer(delivery, holds, straight, lanes, away, refusals, self._accumulators)
        self._sent_once = sent_once
        self._pinned: set[tuple[str, int]] = set()
        self._straight_at = -NEVER
        """When a record of any partition went straight last: of a new one, too, while librdkafka places it."""
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
        moment = time.monotonic()
        if topic in self.lanes.missing:
            self._refuse_missing(topic)
        place = (topic, self._chosen(topic, key, moment) if partition == UNKNOWN else partition)
        accumulator = self._accumulators.get(place)
        if accumulator is None:
            accumulator = self._open(*place)
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        straight = not (accumulator.held or accumulator.records or self.rechecks)
        if straight and not self._holds.cools(place, size):
            if self._busy or self._away.reports or self._away.deferred or self.lanes:
                self.buffer.refuse_excess(accumulator, size)
            if self._holds.warming:
                stamp = timestamp or int(time.time() * 1000)
                record = (value, key, id(report), stamp, headers, size + OVERHEAD, moment)
                self._refusals.remember(topic, report, record)
            self._straight_at = moment
            try:
                self._straight.produce(topic, value, key, place[1], report, None, timestamp, headers)
            except BaseException:
                self._holds.refused(size)
                raise
            return
        self.buffer.refuse_excess(accumulator, size)
        self._append(
            accumulator, value, key, report, timestamp or int(time.time() * 1000), headers, size + overhead, moment
        )

    def _append(
        self,
        accumulator: Accumulator,
        value: bytes | None,
        key: bytes | None,
        report: DeliveryCallback,
        timestamp: int,
        headers: Headers | None,
        size: int,
        moment: float,
    ) -> None:
        """The record waits from here on; what follows has the sender know, which looks at everything now and then."""
        records, reports, uses, number = accumulator.records, self.numbers.reports, self.numbers.uses, id(report)
        # Up to the end of append() there is no place where a signal handler could come between: a call is the first.
        uses[number] += 1
        reports[number] = report
        accumulator.bytes += size
        records.append((value, key, number, timestamp, headers, size, moment))
        count = len(records)
        if count == 1:
            if self.retired is not None:
                self._refuse_last(accumulator)
            self._busy[accumulator.place] = accumulator
            self._expect_deadline(moment)
            ripe = moment if moment < self.flush_until else moment + self._delivery.linger
            if self.alarm.ask(ripe):
                self._wake(ripe)
        elif (
            (count >= self._batch_records or accumulator.bytes >= self._batch_bytes)
            and ((why := accumulator.why) is None or why.reason not in WHATEVER_WAITS)
            and self._fills(count, accumulator.bytes, size)
        ):
            self.alarm.hurry()
            self._wake(0.0)

    def _refuse_last(self, accumulator: Accumulator) -> None:
        """The producer was closed while produce() was on its way: by a signal handler in it, or by another thread."""
        assert self.retired is not None  # noqa: S101 - whoever calls has looked
        record = accumulator.records.pop()
        accumulator.bytes -= record[SIZE]
        self.numbers.let_go(record[REPORT])
        raise self.retired()

    def _expect_deadline(self, accepted: float) -> None:
        if self._delivery.timeout is not None:
            self._deadline.ask(accepted + self._delivery.timeout)

    def _fills(self, count: int, held_bytes: int, size: int) -> bool:
        """Whether a record of `size` filled a batch: once for each, or every record behind a full one would pump."""
        most = self._batch_bytes
        return count % self._batch_records == 0 or held_bytes // most > (held_bytes - size) // most

    def _chosen(self, topic: str, key: bytes | None, moment: float) -> int:
        """The partition of a record that names none; UNKNOWN behind others that are not placed yet."""
        unplaced = self._accumulators.get((topic, UNKNOWN))
        if unplaced is not None and (unplaced.records or unplaced.unresolved):
            return UNKNOWN
        return self._holds.partitions.choose(topic, key, moment)

    def _refuse_missing(self, topic: str) -> None:
        """As librdkafka does once it knows that there is no such topic; look whether there is one by now."""
        if self._holds.partitions.count(topic):
            self.lanes.missing.discard(topic)
            return
        self._metadata.want(topic)
        raise unable(KafkaError._UNKNOWN_TOPIC)

    def _open(self, topic: str, partition: int) -> Accumulator:
        if not self._holds.partitions.has(topic, partition):
            raise unable(KafkaError._UNKNOWN_PARTITION)
        keyed = self._delivery.ordering == "key" and partition != UNKNOWN
        made = Accumulator(topic, partition, Affinity() if keyed else None)
        now = time.monotonic()
        made.held_since = min(self._straight_at, now)
        made.held = self._holds.reason(made, now)
        self._wake(NEVER)
        return self._accumulators.setdefault((topic, partition), made)

    @property
    def any_topic(self) -> str | None:
        """The name of a topic that records were accepted for, None before the first."""
        return next(iter(tuple(self._topics)), None)

    def forget_refusals(self) -> None:
        """The brokers know this producer's ID by now."""
        self._refusals.forget()

    def let_go_of_reports(self) -> None:
        """Those of records that have ended: nobody may poll again."""
        if self._straight is not None and not len(self._straight):
            self._refusals.forget()

    @property
    def empty(self) -> bool:
        """Whether nothing waits here, nothing is in a fed lane, and nothing that comes must take one."""
        return not (self.buffer.waiting or self.busy or self._pinned or self._refusals.count)

    @property
    def expects(self) -> bool:
        """Whether a record waits here or is in a fed lane, as far as the sender knows."""
        return bool(self._busy)

    @property
    def busy(self) -> bool:
        """Whether the fed lanes have something that will be reported."""
        return bool(self.lanes) and (self.alone or self.lanes.busy)

    @property
    def alone(self) -> bool:
        """Whether there is no straight lane."""
        return self._straight is None

    def serve(self) -> None:
        """Queue the reports that the fed lanes have."""
        if self.lanes:
            self.lanes.serve()

    def look_everywhere(self) -> None:
        """Queue what any lane has, an error that it tells of is raised."""
        for lane in self.lanes:
            lane.serve()

    # --- handing over ------------------------------------------------------------------------------------------------

    def pump(self, moment: float) -> None:
        """Do what is due: expire, hand over, kick."""
        self.alarm.begin()
        self.alarm.end(self._round(moment))

    @property
    def waiting(self) -> int:
        """Records that wait here, as far as the sender knows."""
        return sum([accumulator.waiting for accumulator in tuple(self._busy.values())])

    def find_unrung(self, moment: float) -> None:
        """Look now and then for records whose produce() was left by an exception before it rang."""
        if moment < self._unrung_at:
            return
        self._unrung_at = moment + LONGEST_SLEEP
        for place, accumulator in tuple(self._accumulators.items()):
            if accumulator.records and place not in self._busy:
                self._busy[place] = accumulator
                self._expect_deadline(accumulator.oldest)
                self.alarm.hurry()

    def _round(self, moment: float) -> float:
        if self.failing is not None:
            failing, self.failing = self.failing, None
            self.fail_all(*failing)
        self._complete(moment)
        again = self._settle_refused(moment)
        if self._deadline.rings(moment):
            self._deadline.begin()
            due = self._purge_stuck(moment)
            for accumulator in tuple(self._busy.values()):
                due = min(due, self._expire(accumulator, moment))
            self._deadline.end(due)
        due = min(self._deadline.at, again)
        for place, accumulator in tuple(self._busy.items()):
            self._kicks.expect_rest(accumulator, moment)
            if not accumulator.waiting:
                accumulator.why = None
                if not accumulator.unresolved:
                    self._settle(place, accumulator, moment)
                continue
            due = min(due, self._hand_over(accumulator, moment))
        return min(due, self._kicks.kick(moment))

    def _purge_stuck(self, moment: float) -> float:
        """Purge a fed lane before librdkafka's own time-out comes; when to look again.

        That would start a new epoch for the whole lane, and write batches of other partitions twice whose answers were
        lost. The lane is fed nothing for a while before, so that what is healthy gets out of it.
        """
        limit = self._delivery.stuck_after
        if limit is None or not self.lanes:
            return NEVER
        due = NEVER
        batches: dict[int, list[HandOver]] = {}
        for accumulator in tuple(self._busy.values()):
            for batch in accumulator.unresolved:
                batches.setdefault(batch.lane, []).append(batch)
        for lane in self.lanes:
            due = min(due, self._purge_lane(lane, batches.get(lane.number, []), limit, moment))
        return due

    def _purge_lane(self, lane: FedLane, batches: list[HandOver], limit: float, moment: float) -> float:
        stuck_at = min((batch.at for batch in batches), default=NEVER) + limit
        lane.quarantined = stuck_at <= moment
        if not lane.quarantined:
            return stuck_at
        purge_at = stuck_at + BACKSTOP_MARGIN / 2
        if moment < purge_at and not all(batch.stuck for batch in batches):
            return min(purge_at, moment + self._holds.PATIENCE)
        for batch in batches:
            self._report_expired(batch, moment, -NEVER, KafkaError._MSG_TIMED_OUT, _STUCK_WITH)
        lane.purge()
        return moment + self._holds.PATIENCE

    def _settle(self, place: tuple[str, int], accumulator: Accumulator, moment: float) -> None:
        """Nothing waits and nothing is under way: go straight again if there is no reason to hold any more."""
        self._busy.pop(place, None)
        accumulator.hold(self._holds.reason(accumulator, moment), moment)
        if accumulator.waiting:  # accepted meanwhile
            self._busy[place] = accumulator

    def _hand_over(self, accumulator: Accumulator, moment: float) -> float:
        """Hand over what may go of one partition; when to look again."""
        holds = self._holds
        if accumulator.place in self._refusals.places:
            accumulator.why = _REFUSED
            return moment + holds.PATIENCE
        while accumulator.waiting:
            way = self._way(accumulator, moment)
            if way is None or (way is self.lanes and not self._knows(accumulator.topic)):
                accumulator.why = self._closed_by(accumulator, moment) if way is None else _WAITS_FOR_METADATA
                if holds.pacing:
                    self._choice.foresee(accumulator, holds.broker(accumulator, moment).node, moment)
                return moment + holds.PATIENCE
            if way is self.lanes:
                placeable = accumulator.partition == UNKNOWN and not accumulator.unresolved
                if placeable and holds.partitions.count(accumulator.topic):
                    self._assign(accumulator, moment)
                    break
            broker = holds.broker(accumulator, moment)
            lane = None if way is self._straight else self._choice.lane_for(accumulator, broker.node, moment)
            verdict = self._admitted(accumulator, lane, broker, moment)
            if isinstance(verdict, Hold):
                return self._held(accumulator, verdict)
            if way is self._straight:
                accumulator.why = None
                return self._release(accumulator)
            if lane is None or lane.quarantined or self._choice.is_closed(lane, accumulator, broker.node, moment):
                return self._choice.wait(accumulator, lane, broker.node, moment)
            accumulator.why = None
            self._feed_lane(accumulator, lane, broker.node, moment)
        return NEVER

    def _knows(self, topic: str) -> bool:
        """Whether a broker has told of this topic; asks when none has."""
        known = self._holds.partitions.known(topic)
        if not known:
            self._metadata.want(topic)
        return known

    def _admitted(self, accumulator: Accumulator, lane: FedLane | None, broker: Leader, moment: float) -> Admission:
        delivery = self._delivery
        on_lane = [batch for batch in accumulator.unresolved if lane is not None and batch.lane == lane.number]
        waiting = accumulator.waiting
        return admit(
            Partition(
                waiting,
                accumulator.oldest,
                len(on_lane),
                max((batch.leaves_by for batch in on_lane), default=-NEVER),
                waiting >= delivery.batch_records or accumulator.bytes >= delivery.batch_bytes,
                len(accumulator.unresolved),
                self._choice.budget(accumulator, broker.node, moment),
            ),
            Broker(
                broker.throttled_until,
                broker.probing,
                self._in_flight.get(broker.node, 0),
                delivery.connection_cap if delivery.spreads else None,
                broker.node,
            ),
            moment,
            0.0 if moment < self.flush_until else delivery.linger,
            depth(accumulator.ack_time, min(_LONGEST_WAIT, self._guard)),
        )

    def _held(self, accumulator: Accumulator, verdict: Hold) -> float:
        accumulator.why = verdict
        if verdict.reason is HoldReason.IN_FLIGHT and self._hint is not None:
            self._suggest_lanes(accumulator)
        return NEVER if verdict.until is None else verdict.until

    def _suggest_lanes(self, accumulator: Accumulator) -> None:
        """Tell, once, when batches pile up only because one of a partition is under way at a time."""
        hint = self._hint
        if hint is not None and accumulator.waiting > _PILED_UP * self._delivery.batch_records:
            self._hint = None
            hint(*accumulator.place)

    def _feed_lane(self, accumulator: Accumulator, lane: FedLane, node: int | None, moment: float) -> None:
        delivery = self._delivery
        taken = self.buffer.taken = []
        accumulator.take(delivery.batch_records, delivery.batch_bytes, lane.number, taken)
        if not taken:  # the keys of all that waited are bound to other lanes
            return
        # Records without a partition are spread over several, none of which they fill.
        full = len(taken) == delivery.batch_records and accumulator.partition >= 0
        batch = lane.hand_over(accumulator, taken, full, moment, self._refused, self._handed_over)
        if lane.refused:
            self._take_back(accumulator, lane)
        if batch is not None:
            batch.broker = node
            self._in_flight[node] = self._in_flight.get(node, 0) + 1
            if not batch.full:
                before = [other for other in accumulator.unresolved[:-1] if other.lane == batch.lane]
                self._kicks.add(batch, behind_another=bool(before))
                if before:
                    before[-1].on_answer = partial(_its_turn, weakref.ref(self), batch)

    def _handed_over(self) -> None:
        """The lane counts them."""
        self.buffer.taken = []

    def _take_back(self, accumulator: Accumulator, lane: FedLane) -> None:
        """What a lane that has failed for good did not take may go to another one."""
        back, lane.refused = lane.refused, []
        accumulator.take_back(back, lane.number)
        for record in back:
            self.numbers.hold_again(record[REPORT])

    def _assign(self, accumulator: Accumulator, moment: float) -> None:
        """Give records their partitions, now that the topic is known."""
        choose = self._holds.partitions.choose
        while accumulator.records:
            record = accumulator.records[0]
            place = (accumulator.topic, choose(accumulator.topic, record[KEY], moment))
            chosen = self._accumulators.get(place) or self._open(*place)
            chosen.hold(chosen.held or accumulator.held, moment)  # the straight way is not for records with a timestamp
            # There before it leaves here: until then produce() puts what follows behind it.
            chosen.bytes += record[SIZE]
            chosen.records.append(record)
            self._busy[place] = chosen
            accumulator.bytes -= record[SIZE]
            accumulator.records.popleft()
        self.alarm.hurry()

    def _note_refused(self, batch: HandOver) -> None:
        accumulator, refusals = batch.accumulator, self._refusals
        place = accumulator.place
        for refusal in batch.refusals:
            self.numbers.hold_again(refusal.record[REPORT])
            refusals.add(place, refusal)
        if place in refusals.places and not batch.refusals and not self._delivery.spreads:
            refusals.places[place].overtaken = True

    def _settle_refused(self, moment: float) -> float:
        """What a quota refused goes again, in front, once nothing of its partition is under way; when to look again."""
        due = NEVER
        for place, refused in tuple(self._refusals.places.items()):
            accumulator = self._accumulators.get(place) or self._open(*place)
            straight = 0 if self._straight is None else len(self._straight)
            if accumulator.unresolved or not self._holds.drained(accumulator, straight, moment):
                due = moment + self._holds.PATIENCE
                continue
            proven = self._proven(place, refused)
            if not proven and moment < refused.at + _STATISTICS_COME:
                due = moment + self._holds.PATIENCE
                continue
            refusals = self._refusals.take(place).refusals
            self._away.decide()
            if proven and not refused.overtaken:
                self._put_back(accumulator, refusals)
            else:
                self._give_up(accumulator, refusals)
        return due

    def _proven(self, place: tuple[str, int], refused: Refused) -> bool:
        """Whether each refusal answered the only attempt of its record."""
        if all(self._failures.proves_refusal(refusal.message) for refusal in refused.refusals):
            return True
        lanes = {refusal.lane for refusal in refused.refusals}
        return all(self._sent_once(place, lane, refused.at) for lane in lanes)

    def _put_back(self, accumulator: Accumulator, refusals: list[Refusal]) -> None:
        for refusal in reversed(refusals):
            accumulator.put_back(refusal.record, refusal.lane)
        self._expect_deadline(refusals[0].record[ACCEPTED_AT])
        self._busy[accumulator.place] = accumulator

    def _give_up(self, accumulator: Accumulator, refusals: list[Refusal]) -> None:
        for record, error, message, lane in map(_refused_parts, refusals):
            told = self._failures.reported(error, message)
            accumulator.gives_up(record, lane, getattr(told, "outcome", None) is not Outcome.NOT_WRITTEN)
            self.reports.add(self.numbers[record[REPORT]], told, message)
            self.numbers.let_go(record[REPORT])

    def _way(self, accumulator: Accumulator, moment: float) -> Any:
        """Where the next batch goes: the fed lanes, the straight native producer, or None while it must wait.

        A partition changes ways only when the one it leaves has nothing of it any more: lanes have no order.
        """
        if self._straight is None or accumulator.unresolved or accumulator.bound or accumulator.pinned:
            return self.lanes
        if not self._holds.wants_fed(accumulator, moment):
            if not self._holds.bridges(accumulator, len(self._straight)):
                return None
            return self._straight if self._holds.reason(accumulator, moment) is None else None
        if not self._holds.drained(accumulator, len(self._straight), moment):
            return None
        self.lanes.prepare()
        if self.lanes:
            return self.lanes
        # None can be made now. The straight lane sends well, unless it was refused for good.
        return None if self._holds.quota_refused or self._holds.gaps else self._straight

    def _closed_by(self, accumulator: Accumulator, moment: float) -> Hold:
        """Why the next batch may go neither way."""
        holds = self._holds
        reason = holds.reason(accumulator, moment)
        if reason is None or (reason.reason not in _OF_THE_LEADER and holds.wants_fed(accumulator, moment)):
            return _WAITS_FOR_LANE
        return reason

    def let_go(self, lane: FedLane) -> bool:
        """Take a lane out that nothing is under way on; what waits for it may take any other. False when it is busy.

        One that failed for good has had its answers: only what a lost connection left in the network may come later.
        """
        if lane.unresolved or lane.inside or self.lanes.completed or self._refusals.of_lane(lane.number):
            return False
        accumulators = tuple(self._accumulators.values())
        if lane.failed is None and any(each.binds(lane.number) for each in accumulators):
            return False
        for accumulator in accumulators:
            accumulator.unbind(lane.number)
            if accumulator.waiting:
                self._busy[accumulator.place] = accumulator
        self.lanes.remove(lane)
        self.alarm.hurry()
        return True

    def _release(self, accumulator: Accumulator) -> float:
        """Give what waits to the straight lane, record by record."""
        produce = self._straight.produce
        topic, partition, records = accumulator.topic, accumulator.partition, accumulator.records
        if self._delivery.owns_timeout:  # else nobody observes the backlogs, and what is noted would stay
            self._holds.backlogs.released((topic, partition), time.monotonic(), records[0][ACCEPTED_AT])
        while records:
            record = records[0]
            if self._holds.cools((topic, partition), record[SIZE] - OVERHEAD):
                accumulator.why = PACED if self._holds.pacing else COLD
                return time.monotonic() + self._holds.PATIENCE
            accumulator.held_since = self._straight_at = time.monotonic()
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
                self._refused(accumulator, record, error.args[0])
            self._take_first(accumulator, records)
        accumulator.held = None
        return NEVER

    def _take_first(self, accumulator: Accumulator, queue: deque[HeldRecord]) -> None:
        """The first record of one of its queues has ended, or left by the straight lane."""
        record = accumulator.take_first(queue)
        self.numbers.let_go(record[REPORT])

    def answered(self, following: HandOver) -> None:
        """The reports of the batch in front of `following` are being served. Inside a native call, so it makes none."""
        self._kicks.let_follow(following, time.monotonic())
        self.alarm.hurry()

    def _complete(self, moment: float) -> None:
        """Take note of the batches whose reports have all arrived."""
        completed = self.lanes.completed
        while completed:
            batch = completed.popleft()
            accumulator = batch.accumulator
            self._note_refused(batch)
            self.lanes.resolved(batch)
            accumulator.ended(batch)
            remember = self._pinned.add if accumulator.pinned else self._pinned.discard
            remember(accumulator.place)
            for number, count in batch.runs:
                self.numbers.let_go(number, count)
            waited = moment - batch.sent_at
            much = _OVERDUE_TIMES * (accumulator.ack_time or 0.0)
            if waited > max(OVERDUE, much):
                place = accumulator.place
                self._holds.stale.answered_late(place, batch.lane, batch.sent_at, moment)
                waited = much or waited
            if not batch.doubtful:
                self._choice.acknowledged(batch.broker, moment)
            if not batch.expired and not batch.refusals:
                accumulator.observe_ack(waited)
            self._kicks.discard(batch)
            for following in accumulator.unresolved[:1]:
                self._kicks.let_follow(following, moment)
            left = self._in_flight.get(batch.broker, 0) - 1
            if left > 0:
                self._in_flight[batch.broker] = left
            else:
                self._in_flight.pop(batch.broker, None)

    def pump_if_due(self, moment: float) -> None:
        if self.alarm.rings(moment) or self.lanes.completed:
            self.pump(moment)

    # --- ending ------------------------------------------------------------------------------------------------------

    def _refused(self, accumulator: Accumulator, record: HeldRecord, error: KafkaError) -> None:
        """librdkafka did not take a record that was given to a lane."""
        if error.code() == KafkaError._UNKNOWN_TOPIC:
            self.lanes.missing.add(accumulator.topic)
        if error.code() == KafkaError._FATAL:
            self.met_fatal(error)  # before the record is told of it: then produce() raises
        if accumulator.keys is not None and record[KEY] is not None:
            accumulator.keys.release(record[KEY])
        self._report(accumulator, record, error.code(), error.str(), handed_over=False)

    def _report(self, accumulator: Accumulator, record: HeldRecord, code: int, reason: str, handed_over: bool) -> None:
        """Queue a failed record's report, with a message as librdkafka would have made it."""
        error = self._failures.in_process(accumulator.topic, accumulator.partition, record, code, reason, handed_over)
        message = _failed_message(accumulator, record, error)
        self.reports.add(self.numbers[record[REPORT]], error, message, record[SIZE])

    def _report_expired(self, batch: HandOver, moment: float, timeout: float, code: int, reason: str) -> None:
        def report(record: HeldRecord) -> None:
            self._report(batch.accumulator, record, code, reason, handed_over=True)

        batch.expire(moment, timeout, report)

    def _expire(self, accumulator: Accumulator, moment: float) -> float:
        """Fail what is past its deadline; when the next one is."""
        timeout = self._delivery.timeout
        if timeout is None:
            return NEVER
        due = NEVER
        for batch in accumulator.unresolved if self._delivery.owns_timeout else ():
            self._report_expired(batch, moment, timeout, KafkaError._MSG_TIMED_OUT, _NO_ANSWER)
            due = min(due, batch.next_deadline(timeout) or NEVER)
        hopeless = self._holds.hopeless_until(accumulator, moment)
        for queue in accumulator.queues():
            while queue:
                deadline = queue[0][ACCEPTED_AT] + timeout
                if deadline > moment and deadline > hopeless:
                    due = min(due, deadline)
                    break
                reason = _NOT_SENT if deadline <= moment else _THROTTLED_TOO_LONG
                held = f" (it {self.buffer.waits_for(accumulator, moment).sentence(moment)})"
                self._report(accumulator, queue[0], KafkaError._MSG_TIMED_OUT, reason + held, handed_over=False)
                self._take_first(accumulator, queue)
        return due

    def fail_all(self, code: int, reason: str) -> None:
        """Fail every waiting record, certainly not written."""
        for place in tuple(self._refusals.places):
            self._give_up(self._accumulators.get(place) or self._open(*place), self._refusals.take(place).refusals)
        for accumulator in tuple(self._accumulators.values()):
            for queue in accumulator.queues():
                while queue:
                    self._report(accumulator, queue[0], code, reason, handed_over=False)
                    self._take_first(accumulator, queue)

    def purge(self, in_queue: bool, in_flight: bool, blocking: bool) -> None:
        """As stock's purge(), over what waits here and what the fed lanes have."""
        if in_queue:
            self.fail_all(KafkaError._PURGE_QUEUE, "Local: Purged in queue")
        self._report_partly_expired()
        self.lanes.purge(in_queue, in_flight, blocking)

    def _report_partly_expired(self) -> None:
        """A purge does not report in order, and which of a batch's reports to swallow is known by their order alone."""
        now = time.monotonic()
        for accumulator in tuple(self._accumulators.values()):
            for batch in accumulator.unresolved:
                if batch.expired:
                    code = KafkaError._PURGE_INFLIGHT
                    self._report_expired(batch, now, -NEVER, code, KafkaError(code).str())

    def run_reports(self) -> int:
        """Run what is queued, on the application's thread; how many. Raises what a callback raises."""
        thread, running = get_ident(), self.buffer.running
        fresh = thread not in running
        try:
            running.add(thread)  # a record takes room until its callback has run
            return self.reports.run()
        finally:
            if fresh:
                running.discard(thread)

    def recheck(self, moment: float) -> None:
        """Ask each accumulator again whether it is held: something about brokers or acknowledgements changed."""
        self.rechecks = False
        for place, accumulator in tuple(self._accumulators.items()):
            reason = self._holds.reason(accumulator, moment)
            if reason is not None or not (accumulator.waiting or accumulator.unresolved):
                accumulator.hold(reason, moment)
            if accumulator.waiting:
                self._busy[place] = accumulator
        self._deadline.hurry()
        self.alarm.hurry()
        self.buffer.look_again()

    def leave_straight(self, moment: float) -> None:
        """Records of any partition may have gone straight until now."""
        self._straight_at = moment
        self.buffer.look_again()
        for accumulator in tuple(self._accumulators.values()):
            accumulator.held_since = moment

    def held(self) -> dict[tuple[str, int], tuple[int, int]]:
        """(topic, partition) -> (records that wait here, bytes of their keys and values)."""
        return {
            place: (waiting, max(0, accumulator.bytes - waiting * OVERHEAD))
            for place, accumulator in tuple(self._busy.items())
            if (waiting := accumulator.waiting)
        }

    def waits(self) -> dict[tuple[str, int], tuple[int, str, HoldReason]]:
        """(topic, partition) -> (records that wait here, why: as a sentence and as a code)."""
        now = time.monotonic()
        return {
            place: (count, hold.sentence(now), hold.reason)
            for place, accumulator in tuple(self._accumulators.items())
            if (count := accumulator.waiting)
            for hold in (self.buffer.waits_for(accumulator, now),)
        }


def _its_turn(feed: weakref.ref[Feed], batch: HandOver) -> None:
    # The native producer holds its callbacks, and must not hold the feed by them.
    if (found := feed()) is not None:
        found.answered(batch)


def _refused_parts(refusal: Refusal) -> tuple[HeldRecord, KafkaError, Message, int | None]:
    return refusal.record, refusal.error, refusal.message, refusal.lane


def _failed_message(accumulator: Accumulator, record: HeldRecord, error: KafkaError) -> Message:
    place: dict[str, Any] = {} if accumulator.partition < 0 else {"partition": accumulator.partition}
    return Message(
        topic=accumulator.topic,
        **place,
        value=record[VALUE],
        key=record[KEY],
        error=error,
        timestamp=(_CREATE_TIME, record[TIMESTAMP]),
        latency=time.monotonic() - record[ACCEPTED_AT],
    )
