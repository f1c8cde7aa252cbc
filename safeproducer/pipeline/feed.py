"""The held-back feed: records wait in accumulators, and leave when admission says go.

produce() appends without a lock. `pump()` takes from the accumulators under the feed's lock, and never waits for it:
whoever holds it looks again before letting go. Reports of fed batches, and of records that failed here, go into
`reports`; the application's thread runs them in its poll() or flush().
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable
from operator import index
from threading import RLock
from typing import Any

from safeproducer.delivery import GUARD_MS, Delivery
from safeproducer.errors import QueueFullError
from safeproducer.kafka.native import KafkaError, KafkaException, Message, NativeProducer
from safeproducer.pipeline.accumulator import (
    ACCEPTED_AT,
    HEADERS,
    KEY,
    MOST_OVERHEAD,
    OVERHEAD,
    REPORT,
    SIZE,
    TIMESTAMP,
    VALUE,
    Accumulator,
    HeldRecord,
)
from safeproducer.pipeline.away import Away
from safeproducer.pipeline.failures import Failures
from safeproducer.pipeline.fed_lane import FedLane
from safeproducer.pipeline.hand_over import HandOver, Report
from safeproducer.pipeline.holds import COLD, Holds
from safeproducer.pipeline.ledger import DeliveryCallback
from safeproducer.pipeline.metadata import Metadata
from safeproducer.pipeline.partitions import UNKNOWN
from safeproducer.policy.admission import Broker, Hold, Partition, admit, depth
from safeproducer.policy.deadline import BACKSTOP_MARGIN
from safeproducer.policy.share import ALWAYS_FREE, has_share

NEVER = float("inf")
WAITS_FOR_LANE = "waits until the records before it have left the other lane"
WAITS_FOR_METADATA = "waits for a broker to tell of its topic"
WAITS_FOR_PURGE = "waits until records that no broker answers have been taken out of librdkafka"
_GUARD = GUARD_MS / 1000
_FIRST_KICK_AGAIN = 0.02
_KICKS_AGAIN = (0.005, 0.02)
_VALIDATOR = NativeProducer.__new__(NativeProducer)
"""Has no handle: its produce() checks the arguments as stock does, and then says that it is closed."""
_CREATE_TIME = 1
_PLAIN = frozenset({bytes, type(None)})


class Feed:
    """Owns the accumulators of one producer, and hands over to its lanes. Thread-safe.

    - `straight`: the native producer that takes records one by one, None when everything is held back.
    - `fed`: the lane that takes batches; None until it is first needed, and for ever when `make_fed` is None.
    - `due`: when `pump()` has something to do again, in seconds of time.monotonic().
    """

    def __init__(
        self,
        delivery: Delivery,
        holds: Holds,
        straight: NativeProducer | None,
        fed: FedLane | None,
        make_fed: Callable[[], NativeProducer] | None,
        away: Away,
        failures: Failures,
        metadata: Metadata | None,
        wake: Callable[[float], None],
    ) -> None:
        self._delivery = delivery
        self._holds = holds
        self._straight: Any = straight
        self._make_fed = make_fed
        self._failures = failures
        self._metadata = metadata
        self._wake = wake
        self._lock = RLock()
        self._pumping = False
        self._quarantined = False
        self._again = False
        self._accumulators: dict[tuple[str, int], Accumulator] = {}
        self._topics: set[str] = set()
        self._busy: dict[tuple[str, int], Accumulator] = {}
        self._in_flight: dict[int | None, int] = {}
        self._partial: set[HandOver] = set()
        self.reports: deque[Report] = away.reports
        self._away = away
        self.waiting = 0
        self.waiting_bytes = 0
        self.due = NEVER
        self.flushing = 0
        self._running = 0
        self.fed = fed

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
            value, key, headers_size = _checked(topic, value, key, partition, report, timestamp, headers)
            size += headers_size
            overhead = MOST_OVERHEAD
            partition = index(partition)
            self._topics.add(topic)
        moment = time.monotonic()
        if self.fed is not None and topic in self.fed.missing:
            self._refuse_missing(topic, self.fed.missing)
        place = (topic, self._chosen(topic, key, moment) if partition == UNKNOWN else partition)
        accumulator = self._accumulators.get(place)
        if accumulator is None:
            accumulator = self._open(*place)
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        if not accumulator.held and not accumulator.records and not self._holds.cools(place, size):
            if self.waiting or self.reports or self._away.deferred or self.fed is not None:
                self._refuse_excess(accumulator, size)
            self._straight.produce(topic, value, key, place[1], report, None, timestamp, headers)
            return
        self._refuse_excess(accumulator, size)
        size += overhead
        records = accumulator.records
        self.waiting += 1
        self.waiting_bytes += size - OVERHEAD
        accumulator.bytes += size
        records.append((value, key, report, timestamp or int(time.time() * 1000), headers, size, moment))
        count = len(records)
        if count == 1:
            self._busy[place] = accumulator
            ripe = moment if self.flushing else moment + self._delivery.linger
            if ripe < self.due:
                self.due = ripe
                self._wake(ripe)
        elif count % self._delivery.batch_records == 0 or self._fills(accumulator.bytes, size):
            self.pump(moment)

    def _fills(self, held_bytes: int, size: int) -> bool:
        """Whether a record of `size` filled a batch: once for each, or every record behind a full one would pump."""
        most = max(1, self._delivery.batch_bytes)
        return held_bytes >= most and held_bytes // most > (held_bytes - size) // most

    def _chosen(self, topic: str, key: bytes | None, moment: float) -> int:
        """The partition of a record that names none; UNKNOWN behind others that are not placed yet."""
        unplaced = self._accumulators.get((topic, UNKNOWN))
        if unplaced is not None and (unplaced.records or unplaced.unresolved):
            return UNKNOWN
        return self._holds.partitions.choose(topic, key, moment)

    def _refuse_missing(self, topic: str, missing: set[str]) -> None:
        """As librdkafka does once it knows that there is no such topic; look whether there is one by now."""
        if self._holds.partitions.count(topic):
            missing.discard(topic)
            return
        if self._metadata is not None:
            self._metadata.want(topic)
        raise _unable(KafkaError._UNKNOWN_TOPIC)

    def _open(self, topic: str, partition: int) -> Accumulator:
        if not self._holds.partitions.has(topic, partition):
            raise _unable(KafkaError._UNKNOWN_PARTITION)
        made = Accumulator(topic, partition)
        made.held_since = time.monotonic()
        made.held = self._holds.reason(made, made.held_since)
        self._wake(NEVER)
        return self._accumulators.setdefault((topic, partition), made)

    def _refuse_excess(self, accumulator: Accumulator, size: int) -> None:
        delivery = self._delivery
        if size + MOST_OVERHEAD > delivery.record_bytes:
            raise _unable(KafkaError.MSG_SIZE_TOO_LARGE)
        limit, most_bytes = delivery.buffer_records, delivery.buffer_bytes
        total, total_bytes = self.records, self.bytes
        if (limit is not None and total >= limit) or (most_bytes is not None and total_bytes + size > most_bytes):
            raise QueueFullError(self.full())
        crowded = limit is not None and total >= limit * ALWAYS_FREE
        crowded_bytes = most_bytes is not None and total_bytes >= most_bytes * ALWAYS_FREE
        if crowded or crowded_bytes:
            records, held_bytes, others = self._group(accumulator)
            if (crowded and limit is not None and not has_share(records, total, limit, others)) or (
                crowded_bytes and most_bytes is not None and not has_share(held_bytes, total_bytes, most_bytes, others)
            ):
                raise QueueFullError(self.full(accumulator))

    def _group(self, accumulator: Accumulator) -> tuple[int, int, bool]:
        """(records, bytes) that wait with this partition for the same broker, and whether anybody else is in need."""
        moment = time.monotonic()
        leader_of = self._holds.partitions.leader
        node = leader_of(accumulator.topic, accumulator.partition)
        blocked = self._holds.blocks(accumulator, moment)
        records = held_bytes = 0
        for other in tuple(self._busy.values()):
            if other is accumulator or (blocked and leader_of(other.topic, other.partition) == node):
                records += len(other.records)
                held_bytes += other.bytes
        others = (
            self._holds.serves_others(node, moment)
            if blocked
            else any(other is not accumulator and other.records for other in tuple(self._busy.values()))
        )
        return records, held_bytes, others

    def full(self, accumulator: Accumulator | None = None) -> str:
        """Why no record is accepted now, for one partition if it has used up its share, and what to do."""
        subject = (
            f"{self.queued} records and events are waiting in this producer (queue.buffering.max.messages, "
            f"queue.buffering.max.kbytes)"
            if accumulator is None
            else f"{accumulator.topic} [{accumulator.partition}] has used up its share of the buffer"
        )
        return (
            f"Local: Queue full: {subject}{self._largest()}. Call poll() to serve delivery reports, then produce the "
            f"record again"
        )

    def _largest(self) -> str:
        busy = [accumulator for accumulator in tuple(self._busy.values()) if accumulator.records]
        if not busy:
            return ""
        most = max(busy, key=lambda accumulator: accumulator.bytes)
        return (
            f"; most of the memory is held by {most.topic} [{most.partition}]: {len(most.records)} records of "
            f"{most.bytes} bytes, because it {most.why or most.held or 'waits its turn'}"
        )

    @property
    def queued(self) -> int:
        """What len(producer) says of what is here and in the lanes."""
        return self.records + (0 if self.fed is None else self.fed.events)

    @property
    def records(self) -> int:
        """What counts against queue.buffering.max.messages."""
        count = self.waiting + len(self.reports) + len(self._away.deferred) + self._running
        if self._straight is not None:
            count += len(self._straight)
        if self.fed is not None:
            count += self.fed.records
        return count

    @property
    def bytes(self) -> int:
        """What counts against queue.buffering.max.kbytes; of the straight lane as many as its records take usually."""
        count = self.waiting_bytes
        if self.fed is not None:
            count += self.fed.bytes
        if self._straight is not None and self._holds.record_bytes:
            count += int(len(self._straight) * self._holds.record_bytes)
        return count

    @property
    def empty(self) -> bool:
        """Whether nothing waits here and nothing is in the fed lane."""
        return not (self.waiting or self.busy)

    @property
    def busy(self) -> bool:
        """Whether the fed lane has something that will be reported."""
        return self.fed is not None and (self.fed.unresolved > 0 or self.alone)

    @property
    def alone(self) -> bool:
        """Whether there is no straight lane."""
        return self._straight is None

    def serve(self, timeout: float) -> None:
        """Queue the reports that the fed lane has; wait up to `timeout` seconds for the first."""
        if self.fed is not None:
            self.fed.serve(timeout)

    # --- handing over ------------------------------------------------------------------------------------------------

    def pump(self, moment: float) -> None:
        """Do what is due: expire, hand over, kick. Returns at once when another thread is doing it."""
        self._again = True
        while self._again and not self._pumping and self._lock.acquire(blocking=False):
            try:
                if self._is_pumping():  # re-entered by a signal handler on this thread
                    return
                self._pumping = True
                self._again = False
                self.due = NEVER
                until = self._round(moment)
                self.due = min(self.due, until)
            finally:
                self._pumping = False
                self._lock.release()

    def _is_pumping(self) -> bool:
        return self._pumping

    def _round(self, moment: float) -> float:
        self._complete(moment)
        due = self._purge_stuck(moment)
        kick = False
        for place, accumulator in tuple(self._busy.items()):
            due = min(due, self._expire(accumulator, moment))
            if not accumulator.records:
                if not accumulator.unresolved:
                    self._settle(place, accumulator, moment)
                continue
            until, kicks = self._hand_over(accumulator, moment)
            due = min(due, until)
            kick = kick or kicks
        return min(due, self._kick(kick, moment))

    def _purge_stuck(self, moment: float) -> float:
        """Purge the fed lane before librdkafka's own time-out comes; when to look again.

        That would start a new epoch for the whole lane, and write batches of other partitions twice whose answers were
        lost. The lane is fed nothing for a while before, so that what is healthy gets out of it.
        """
        limit = self._delivery.stuck_after
        pending = [accumulator.unresolved[0].at for accumulator in tuple(self._busy.values()) if accumulator.unresolved]
        if limit is None or self.fed is None or not pending or (stuck_at := min(pending) + limit) > moment:
            self._quarantined = False
            return stuck_at if limit is not None and self.fed is not None and pending else NEVER
        self._quarantined = True
        batches = [batch for accumulator in tuple(self._busy.values()) for batch in accumulator.unresolved]
        purge_at = stuck_at + BACKSTOP_MARGIN / 2
        if moment < purge_at and not all(batch.stuck for batch in batches):
            return min(purge_at, moment + self._holds.PATIENCE)
        for batch in batches:
            for record in batch.expire(moment, -NEVER):
                self._report(batch.accumulator, record, KafkaError._MSG_TIMED_OUT, _STUCK_WITH, handed_over=True)
        self.fed.native.purge()
        return moment + self._holds.PATIENCE

    def _settle(self, place: tuple[str, int], accumulator: Accumulator, moment: float) -> None:
        """Nothing waits and nothing is under way: go straight again if there is no reason to hold any more."""
        self._busy.pop(place, None)
        accumulator.why = None
        accumulator.hold(self._holds.reason(accumulator, moment), moment)
        if accumulator.records:  # accepted meanwhile
            self._busy[place] = accumulator

    def _hand_over(self, accumulator: Accumulator, moment: float) -> tuple[float, bool]:
        """(when to look again, whether a kick is needed)."""
        holds, delivery = self._holds, self._delivery
        kick = False
        while accumulator.records:
            lane = self._lane_of(accumulator, moment)
            if lane is None:
                accumulator.why = WAITS_FOR_LANE
                return moment + holds.PATIENCE, kick
            if lane is self.fed and not holds.partitions.known(accumulator.topic):
                accumulator.why = WAITS_FOR_METADATA
                if self._metadata is not None:
                    self._metadata.want(accumulator.topic)
                return moment + holds.PATIENCE, kick
            placeable = accumulator.partition == UNKNOWN and not accumulator.unresolved
            if placeable and holds.partitions.count(accumulator.topic):
                self._assign(accumulator, moment)
                break
            records = accumulator.records
            many = len(records) >= delivery.batch_records
            unresolved = accumulator.unresolved
            # Records without a partition are spread over several, none of which they fill.
            full_count = (
                many
                and accumulator.partition >= 0
                and accumulator.fills_count(delivery.batch_records, delivery.batch_bytes)
            )
            if lane is self.fed and self._quarantined:
                accumulator.why = WAITS_FOR_PURGE
                return moment + holds.PATIENCE, kick
            broker = holds.broker(accumulator, moment)
            verdict = admit(
                Partition(
                    len(records),
                    records[0][ACCEPTED_AT],
                    len(unresolved),
                    all(batch.full for batch in unresolved),
                    many or accumulator.bytes >= delivery.batch_bytes,
                    full_count,
                ),
                Broker(broker.throttled_until, broker.probing, self._in_flight.get(broker.node, 0)),
                moment,
                0.0 if self.flushing else delivery.linger,
                depth(accumulator.ack_time, _GUARD),
            )
            if isinstance(verdict, Hold):
                accumulator.why = verdict.why
                return (NEVER if verdict.until is None else verdict.until), kick
            accumulator.why = None
            if lane is self._straight:
                return self._release(accumulator), kick
            taken = accumulator.take(delivery.batch_records, delivery.batch_bytes)
            self.waiting -= len(taken)
            self.waiting_bytes -= sum(record[SIZE] for record in taken) - OVERHEAD * len(taken)
            batch = lane.hand_over(accumulator, taken, full_count, moment, self._refused)
            if batch is not None:
                batch.broker = broker.node
                self._in_flight[broker.node] = self._in_flight.get(broker.node, 0) + 1
                if not batch.full:
                    self._partial.add(batch)
                    kick = True
        return NEVER, kick

    def _assign(self, accumulator: Accumulator, moment: float) -> None:
        """Give records their partitions, now that the topic is known."""
        choose = self._holds.partitions.choose
        while accumulator.records:
            record = accumulator.records[0]
            place = (accumulator.topic, choose(accumulator.topic, record[KEY], moment))
            chosen = self._accumulators.get(place) or self._open(*place)
            chosen.hold(chosen.held or accumulator.held, moment)  # the straight way is not for records with a timestamp
            accumulator.records.popleft()
            accumulator.bytes -= record[SIZE]
            chosen.records.append(record)
            chosen.bytes += record[SIZE]
            self._busy[place] = chosen
        self._again = True

    def _lane_of(self, accumulator: Accumulator, moment: float) -> Any:
        """Where the next batch goes: a FedLane, the straight native producer, or None while it must wait.

        A partition changes lanes only when the lane it leaves has nothing of it any more: two lanes have no order.
        """
        if self._straight is None or accumulator.unresolved:
            return self.fed
        if not self._holds.wants_fed(accumulator, moment):
            return self._straight if self._holds.reason(accumulator, moment) is None else None
        if self._make_fed is None:
            return self._straight
        if not self._holds.drained(accumulator, len(self._straight)):
            return None
        self.prepare()
        return self.fed

    def prepare(self) -> None:
        """Make the fed lane, which takes a while to get its producer ID and its connections."""
        if self.fed is None and self._make_fed is not None:
            self.fed = FedLane(self._make_fed(), self.reports)

    def _release(self, accumulator: Accumulator) -> float:
        """Give what waits to the straight lane, record by record."""
        produce = self._straight.produce
        topic, partition, records = accumulator.topic, accumulator.partition, accumulator.records
        self._holds.backlogs.released((topic, partition), time.monotonic(), records[0][ACCEPTED_AT])
        while records:
            record = records[0]
            if self._holds.cools((topic, partition), record[SIZE] - OVERHEAD):
                accumulator.why = COLD
                return time.monotonic() + self._holds.PATIENCE
            try:
                produce(
                    topic,
                    record[VALUE],
                    record[KEY],
                    partition,
                    record[REPORT],
                    None,
                    record[TIMESTAMP],
                    record[HEADERS],
                )
            except BufferError:
                return time.monotonic() + self._holds.PATIENCE
            except KafkaException as error:
                self._take_first(accumulator)
                self._refused(accumulator, record, error.args[0])
                continue
            self._take_first(accumulator)
        accumulator.held = None
        return NEVER

    def _take_first(self, accumulator: Accumulator) -> HeldRecord:
        record = accumulator.records.popleft()
        accumulator.bytes -= record[SIZE]
        self.waiting -= 1
        self.waiting_bytes -= record[SIZE] - OVERHEAD
        return record

    def _kick(self, needed: bool, moment: float) -> float:
        """Kick partial batches, and again while they are not reported: a busy broker thread misses a kick."""
        due = NEVER
        if self.fed is None or not self._partial:
            return due
        for batch in tuple(self._partial):
            if not batch.left or moment - batch.at > _GUARD:
                self._partial.discard(batch)
                continue
            if batch.kick_at <= moment:
                needed = True
                batch.kick_at = moment + self._kick_again(batch, moment - batch.at)
            due = min(due, batch.kick_at)
        if needed:
            self.fed.kick()
        return due

    def _kick_again(self, batch: HandOver, age: float) -> float:
        ack_time = batch.accumulator.ack_time
        if ack_time is None:  # connecting, or getting a producer ID: no kick is heard before that is done
            return _FIRST_KICK_AGAIN
        for early in _KICKS_AGAIN:  # a missed one costs no round trip; none is near the answer
            if age < early < ack_time / 2:
                return early - age
        return max(_FIRST_KICK_AGAIN, 1.5 * ack_time)

    def _complete(self, moment: float) -> None:
        """Take note of the batches whose reports have all arrived."""
        lane = self.fed
        while lane is not None and lane.completed:
            batch = lane.completed.popleft()
            lane.resolved(batch)
            if not batch.expired:
                batch.accumulator.observe_ack(moment - batch.at)
            self._partial.discard(batch)
            left = self._in_flight.get(batch.broker, 0) - 1
            if left > 0:
                self._in_flight[batch.broker] = left
            else:
                self._in_flight.pop(batch.broker, None)

    def pump_if_due(self, moment: float) -> None:
        if self.due <= moment or (self.fed is not None and self.fed.completed):
            self.pump(moment)

    # --- ending ------------------------------------------------------------------------------------------------------

    def _refused(self, accumulator: Accumulator, record: HeldRecord, error: KafkaError) -> None:
        """librdkafka did not take a record."""
        if error.code() == KafkaError._UNKNOWN_TOPIC and self.fed is not None:
            self.fed.missing.add(accumulator.topic)
        self._report(accumulator, record, error.code(), error.str(), handed_over=False)

    def _report(self, accumulator: Accumulator, record: HeldRecord, code: int, reason: str, handed_over: bool) -> None:
        """Queue a failed record's report, with a message as librdkafka would have made it."""
        error = self._failures.in_process(accumulator.topic, accumulator.partition, record, code, reason, handed_over)
        self.reports.append((record[REPORT], error, _failed_message(accumulator, record, error)))

    def _expire(self, accumulator: Accumulator, moment: float) -> float:
        """Fail what is past its deadline; when the next one is."""
        timeout = self._delivery.timeout
        if timeout is None:
            return NEVER
        due = NEVER
        for batch in accumulator.unresolved if self._delivery.owns_timeout else ():
            for record in batch.expire(moment, timeout):
                self._report(accumulator, record, KafkaError._MSG_TIMED_OUT, _NO_ANSWER, handed_over=True)
            due = min(due, batch.next_deadline(timeout) or NEVER)
        records = accumulator.records
        hopeless = self._holds.hopeless_until(accumulator, moment)
        while records:
            deadline = records[0][ACCEPTED_AT] + timeout
            if deadline > moment and deadline > hopeless:
                return min(due, deadline)
            reason = _NOT_SENT if deadline <= moment else _THROTTLED_TOO_LONG
            held = f" (it {accumulator.why or accumulator.held or 'waited'})"
            self._report(
                accumulator, self._take_first(accumulator), KafkaError._MSG_TIMED_OUT, reason + held, handed_over=False
            )
        return due

    def fail_all(self, code: int, reason: str) -> None:
        """Fail every waiting record, certainly not written."""
        with self._lock:
            for accumulator in tuple(self._accumulators.values()):
                while accumulator.records:
                    self._report(accumulator, self._take_first(accumulator), code, reason, handed_over=False)

    def purge(self, in_queue: bool, in_flight: bool, blocking: bool) -> None:
        """As stock's purge(), over what waits here and what the fed lane has."""
        with self._lock:
            if in_queue:
                self.fail_all(KafkaError._PURGE_QUEUE, "Local: Purged in queue")
            if self.fed is not None and self._straight is not None:
                self.fed.native.purge(in_queue, in_flight, blocking)

    def run_reports(self) -> int:
        """Run what is queued, on the application's thread; how many. Raises what a callback raises."""
        ran = 0
        reports = self.reports
        self._running += 1  # a record takes room until its callback has run
        try:
            while reports:
                report, error, message = reports.popleft()
                ran += 1
                report(error, message)
        finally:
            self._running -= 1
        return ran

    def recheck(self, moment: float) -> None:
        """Ask each accumulator again whether it is held: something about brokers or acknowledgements changed."""
        for place, accumulator in tuple(self._accumulators.items()):
            reason = self._holds.reason(accumulator, moment)
            if reason is not None or not (accumulator.records or accumulator.unresolved):
                accumulator.hold(reason, moment)
            if accumulator.records:
                self._busy[place] = accumulator
        self.due = 0.0
        self._wake(0.0)

    def leave_straight(self, moment: float) -> None:
        """Records of any partition may have gone straight until now."""
        for accumulator in tuple(self._accumulators.values()):
            accumulator.held_since = moment

    def waits(self) -> dict[tuple[str, int], tuple[int, str]]:
        """(topic, partition) -> (records that wait here, why)."""
        return {
            place: (len(accumulator.records), accumulator.why or accumulator.held or "waits its turn")
            for place, accumulator in tuple(self._accumulators.items())
            if accumulator.records
        }


_NO_ANSWER = "Local: Message timed out: no broker answered within message.timeout.ms"
_STUCK_WITH = "Local: Message timed out: it was purged with records that no broker answered"
_NOT_SENT = "Local: Message timed out: it was not sent within message.timeout.ms"
_THROTTLED_TOO_LONG = "Local: Message timed out: its broker is throttled for longer than the time it has left"


def _unable(code: int) -> KafkaException:
    """What the native produce() raises."""
    return KafkaException(KafkaError(code, f"Unable to produce message: {KafkaError(code).str()}"))


def _checked(
    topic: Any, value: Any, key: Any, partition: Any, report: Any, timestamp: Any, headers: Any
) -> tuple[bytes | None, bytes | None, int]:
    """(value, key, bytes of the headers), copied as stock copies them; raises what stock raises for the arguments."""
    with contextlib.suppress(RuntimeError):
        _VALIDATOR.produce(topic, value, key, partition, report, None, timestamp, headers)
    size = 0
    if headers:
        for name, content in headers.items() if isinstance(headers, dict) else headers:
            size += len(str(name)) + len(content or b"")
    return _copied(value), _copied(key), size


def _copied(content: Any) -> bytes | None:
    if content is None or type(content) is bytes:
        return content
    return content.encode() if isinstance(content, str) else bytes(memoryview(content))


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
