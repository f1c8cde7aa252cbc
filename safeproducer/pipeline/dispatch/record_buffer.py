"""The records of one producer that wait here, by partition; how many there are, wherever they are, and may be."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from safeproducer.errors import QueueFullError
from safeproducer.kafka.arguments import unable
from safeproducer.kafka.native import KafkaError
from safeproducer.pipeline.buffer.partition_buffer import MOST_OVERHEAD, PartitionBuffer
from safeproducer.pipeline.dispatch.hold_facts import HoldFacts
from safeproducer.pipeline.lanes.batch_lane import BatchLane
from safeproducer.pipeline.lanes.lane_pool import LanePool
from safeproducer.pipeline.record import ACCEPTED_AT, OVERHEAD, REPORT, HeldRecord, ReportNumbers
from safeproducer.pipeline.reports.hooked_send import tell_hold
from safeproducer.pipeline.reports.quota_rejections import QuotaRejections
from safeproducer.pipeline.reports.report_queue import ReportQueue
from safeproducer.policy.affinity import Affinity
from safeproducer.policy.decision import TURN
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.types import ALWAYS_FREE, NEVER, UNPLACED, Lack, TopicPartition, has_share
from safeproducer.runtime import clock
from safeproducer.runtime.log import logger
from safeproducer.settings.delivery import SendConfig

_BLOCK = HoldReason.LEADER_SILENT, HoldReason.UNKNOWN_TOPIC, HoldReason.NO_BROKER
_BY_OTHERS = HoldReason.EXPIRY, HoldReason.SEQUENCE_GAP  # reasons that other partitions give
_SERVES = 3.0  # seconds after its last answer for which a broker is not silent: statistics tell of it twice a second
_SHARES = 64  # shares of the buffer are looked at once a part of so many is filled: it costs more than a record


@dataclass(eq=False)
class RecordBuffer:
    """Owns the partition buffers. Any thread opens one, asks, and claims room; the sender alone takes records out.

    - `busy`: those with records or batches in flight, as far as the sender knows.
    - `pinned`: those whose next record must take the lane of an earlier one.
    - `direct_native`: the native producer that takes records one by one, None when everything is held back.
    - `numbers`: the callbacks of records that wait here or are in batch lanes.
    """

    _delivery: SendConfig
    _holds: HoldFacts
    direct_native: Any
    _lanes: LanePool
    _report_queue: ReportQueue
    _rejections: QuotaRejections
    numbers: ReportNumbers
    busy: dict[TopicPartition, PartitionBuffer] = field(default_factory=dict)
    _by_topic: dict[str, list[PartitionBuffer]] = field(default_factory=dict)
    pinned: set[TopicPartition] = field(default_factory=set)
    _taken: list[HeldRecord] = field(default_factory=list)
    """Records that the sender has taken from a partition buffer and not given to a lane yet."""
    _maybe_direct_at: float = -NEVER
    """When a record of any partition went directly last: of a new one, too, while librdkafka places it."""
    given_directly_at: float = -NEVER  # when the intake or the sender last gave a record to the direct lane
    _room: list[float] = field(default_factory=lambda: [0, 0.0])
    """How much more is accepted, in records and bytes, before the shares of the buffer are looked at again."""
    room_wanted: deque[tuple[Callable[[], object], int, int]] = field(default_factory=deque)
    """Who waits for room, and how many records and bytes there were then."""

    # --- partition buffers -------------------------------------------------------------------------------------------

    @property
    def buffers(self) -> dict[TopicPartition, PartitionBuffer]:
        return self._holds.buffers

    @property
    def all(self) -> list[PartitionBuffer]:
        return list(self.buffers.values())

    def find(self, tp: TopicPartition) -> PartitionBuffer:
        """The buffer of this partition, which is opened if there is none."""
        if (found := self.buffers.get(tp)) is not None:
            return found
        now = clock.monotonic()
        keys = Affinity() if self._delivery.own.ordering == "key" and tp[1] != UNPLACED else None
        made = PartitionBuffer(*tp, keys, self._holds.times)
        made.went_directly(min(self._maybe_direct_at, now))
        made.hold(self._holds.direct_hold(made, now), made.direct_until)
        if (opened := self.buffers.setdefault(tp, made)) is made:
            self._by_topic.setdefault(tp[0], []).append(made)
        return opened

    def went_directly(self, now: float) -> None:
        """A record of some partition goes to the direct lane."""
        self._maybe_direct_at, self.given_directly_at = max(self._maybe_direct_at, now), now

    def replace_direct_native(self, native: Any) -> None:
        """Another native producer is there for what goes directly."""
        self.direct_native = native

    def has_left_direct(self, buffer: PartitionBuffer, now: float) -> bool:
        """Whether the direct lane has nothing of this partition any more."""
        lane = self._holds.direct
        if lane is not None and lane.failure and self._delivery.fails_behind and self._report_queue.deferred:
            return False  # whether what waits is sent depends on them
        return lane is None or lane.has_nothing_of(buffer.tp, buffer.direct_until, len(self.direct_native), now)

    def may_go_directly(self, until: float) -> None:
        """Note that records of any partition may have gone directly until then; NEVER: may go from now on."""
        self._maybe_direct_at = until
        self.forget_room()
        for buffer in self.all:
            buffer.went_directly(until)

    def of_topics(self, topics: Iterable[str]) -> list[PartitionBuffer]:
        return [buffer for topic in set(topics) for buffer in self._by_topic.get(topic, ())]

    def recheck(self, now: float, topics: Iterable[str] | None = None) -> None:
        """Ask the partition buffers of these topics again whether they are held; all if None are named."""
        self.forget_room()
        for buffer, hold in self._holds.of_each(None if topics is None else self.of_topics(topics), now):
            if hold is not None or not (buffer.waiting or buffer.unresolved):
                buffer.hold(hold, now)
            if buffer.waiting:
                self.busy[buffer.tp] = buffer
                buffer.ring()

    def settle(self, buffer: PartitionBuffer, now: float) -> None:
        """The buffer is empty, and nothing is under way: go directly again if no reason to hold is left."""
        self.busy.pop(buffer.tp, None)
        buffer.hold(self._holds.direct_hold(buffer, now), now)
        if buffer.waiting:  # accepted meanwhile
            self.busy[buffer.tp] = buffer

    def take(self, buffer: PartitionBuffer, lane: int) -> list[HeldRecord]:
        """The next batch of a partition for this lane; nothing when the keys of all that waits belong to others."""
        taken = self._taken = []
        buffer.take(self._delivery.batch_records, self._delivery.batch_bytes, lane, taken)
        return taken

    def given(self) -> None:
        """The lane counts what was taken."""
        self._taken = []

    def take_back(self, buffer: PartitionBuffer, lane: BatchLane) -> None:
        """Records that a lane did not take as it failed for good may go to another one."""
        back, lane.refused = lane.refused, []
        buffer.take_back(back, lane.number)

    def unbind(self, lane: BatchLane) -> bool:
        """Let what is bound to this lane take any other; False where that would break the order of keys."""
        buffers = self.all
        if lane.client.failed is None and any(each.binds(lane.number) for each in buffers):
            return False
        for buffer in buffers:
            buffer.unbind(lane.number)
            if buffer.waiting:
                self.busy[buffer.tp] = buffer
        return True

    def tell_hold(self, buffer: PartitionBuffer, records: Iterable[HeldRecord]) -> None:
        """Tell hooks of records that wait no more why each was held longest, and for how long."""
        now = clock.monotonic()
        for record in records if self.numbers.observed else ():
            since = record[ACCEPTED_AT]
            reason = buffer.waits.longest(since, now) or (buffer.held or TURN).reason
            tell_hold(self.numbers[record[REPORT]], str(reason), now - since)

    # --- counts ------------------------------------------------------------------------------------------------------

    def waits(self) -> dict[TopicPartition, tuple[int, str, HoldReason]]:
        """(topic, partition) -> (records that wait here, why: as a sentence and as a code)."""
        now, addressed = clock.monotonic(), self._holds.cluster.addressed
        found = [(each, count, self._holds.waits_for(each, now)) for each in self.all if (count := each.waiting)]
        by_others = any(hold.reason in _BY_OTHERS for _, _, hold in found)
        sick = self._holds.sick(self.silent(now), now) if by_others else None
        others = "" if sick is None else f": {sick.sentence}"
        return {
            each.tp: (count, addressed(hold.sentence(now) + others * (hold.reason in _BY_OTHERS)), hold.reason)
            for each, count, hold in found
        }

    @property
    def queued(self) -> int:
        """The part of len(producer) that is here and in the lanes."""
        return self.records + self._lanes.events

    @property
    def waiting(self) -> int:
        """How many records wait in this process, those on their way from a partition buffer to a lane included."""
        if not self.numbers.uses:  # each of them uses a number: thousands of idle partitions take long to add up
            return 0
        # In the order in which records go, or one that goes on meanwhile would be missed.
        return sum([buffer.waiting for buffer in self.all]) + len(self._taken)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of keys, values and headers of the records that wait here."""
        return sum([buffer.bytes - OVERHEAD * buffer.waiting for buffer in self.all])

    @property
    def records(self) -> int:
        """Records that count against queue.buffering.max.messages.

        Looked at in the order in which records go, or one that goes on meanwhile would be missed, and flush() end.
        """
        count = self.waiting + self._lanes.records + (0 if self.direct_native is None else len(self.direct_native))
        count += self._rejections.count + self._report_queue.records
        return count or self.waiting  # where what a quota rejected goes back to

    def bytes(self, usual: int = 0) -> int:
        """Bytes that count against queue.buffering.max.kbytes.

        Of the direct lane as many as its records take usually: `usual` as long as no statistics have told. Records
        whose reports nobody has served count, too: they are in memory.
        """
        count = self.waiting_bytes + self._lanes.bytes + self._report_queue.bytes + self._rejections.bytes
        if (direct := self._holds.direct) is not None:
            count += int(len(self.direct_native) * (direct.record_bytes or usual))
        return count

    # --- limits -------------------------------------------------------------------------------------------------------

    def forget_room(self) -> None:
        """Something changed that shares depend on, or records took a path that is not counted here."""
        self._room[0] = 0

    def refuse_excess(self, buffer: PartitionBuffer, size: int, count: int = 1, largest: int = 0) -> None:
        """Raise what produce() raises when a record of `size` bytes is too large, or there is no room for it.

        Of `count` records `size` are the bytes of all, and `largest` those of the largest one.
        """
        if (largest or size) + MOST_OVERHEAD > self._delivery.buffer.record_bytes:
            raise unable(KafkaError.MSG_SIZE_TOO_LARGE)
        if lack := self.lack(buffer, size, count, largest):
            raise QueueFullError(self.full(buffer if lack is Lack.OF_PARTITION else None))

    def lack(self, buffer: PartitionBuffer | None, size: int, count: int = 1, largest: int = 0, spare: int = 0) -> Lack:
        """Which limit leaves no room; NONE if there is room, then it counts as taken. `spare`: 1 to leave as much."""
        # Exact sums over all partitions are too slow for each record. What they leave is granted as `_room` for many
        # records, and they are summed up anew when it is used up.
        cap, room, limit = self._delivery.buffer.bytes, self._room, self._delivery.buffer.records
        if room[0] >= count + spare and size * (1 + spare) <= room[1]:
            room[0] -= count
            room[1] -= size
            return Lack.NONE
        total, total_bytes = self.records + count - 1, self.bytes(size)
        if not spare and self._exceeded(total, total_bytes + size) and (direct := self._holds.direct) is not None:
            # len() counts its events, too. What is refused here is counted as accepted until it is.
            events = max(0, total - (direct.unreported() - 1 + len(self._report_queue.running)))
            total, total_bytes = total - events, total_bytes - int(events * (direct.record_bytes or size))
        if self._exceeded(total, total_bytes + size):
            return Lack.OF_ALL
        amounts = (total, limit), (total_bytes, cap)
        if buffer is not None and any(most is not None and held >= most * ALWAYS_FREE for held, most in amounts):
            records, held_bytes, others = self._group(buffer, count - 1, size - (largest or size))
            groups = zip((records, held_bytes), amounts, strict=True)
            if not all(most is None or has_share(group, held, most, others) for group, (held, most) in groups):
                return Lack.OF_PARTITION
        room[0] = _SHARES if limit is None else max(spare, min(limit // _SHARES, limit - total) - 1)
        room[1] = NEVER if cap is None else max(size * spare, min(cap // _SHARES, cap - total_bytes) - size)
        return Lack.NONE

    def _exceeded(self, records: int, size: int) -> bool:
        most = self._delivery.buffer
        return (most.records is not None and records >= most.records) or (most.bytes is not None and size > most.bytes)

    def when_room(self, wake: Callable[[], object]) -> None:
        """Have `wake()` called once when there is room, for whoever was refused: less is here then than there is now.

        At once if most of the buffer is free, and else on the sender's thread: it must not block, and must not refer to
        the producer. It is not called any more once the producer is closed. An exception of it is logged. Any thread.
        """
        self.room_wanted.append((wake, self.records, self.bytes()))
        self.tell_of_room()

    def tell_of_room(self) -> bool:
        """Wake who waited for room, in order; whether somebody still waits."""
        records, size, most = self.records, self.bytes(), self._delivery.buffer
        free = most.records is None or records < most.records * ALWAYS_FREE
        free = free and (most.bytes is None or size < most.bytes * ALWAYS_FREE)
        for waits in self.room_wanted.copy():
            wake, records_then, size_then = waits
            if not (free or records < records_then or size < size_then):
                continue
            try:
                self.room_wanted.remove(waits)
            except ValueError:  # another thread was quicker
                continue
            try:
                wake()
            except Exception:
                logger.exception("a function that room is to wake raised")
        return bool(self.room_wanted)

    def _group(self, buffer: PartitionBuffer, records: int, held_bytes: int) -> tuple[int, int, bool]:
        """Add up (records, bytes) with what waits for the same broker; whether anybody else is in need."""
        now, cluster, leader_of = clock.monotonic(), self._holds.cluster, self._holds.partitions.leader
        node = leader_of(*buffer.tp)
        # It waits for something that may take long: its broker's throttle time, or its return.
        blocked = self._holds.is_silent(buffer, now) or cluster.leader_state(buffer.tp, now).throttled_until is not None
        for other in self.all:
            if other is buffer or (blocked and leader_of(other.topic, other.partition) == node):
                records += other.waiting
                held_bytes += other.bytes
        if not blocked:
            return records, held_bytes, any(other is not buffer and other.waiting for other in self.all)
        sick, throttled = self.silent(now), set(cluster.throttle.deadlines(now))
        silent = {leader_of(*tp) for tp in sick}
        if self._holds.partitions.nodes() - {node} - throttled - silent:
            return records, held_bytes, True
        # A leader that refuses one partition serves others.
        serves = {node for node in silent - throttled if cluster.answers(node, now - _SERVES)}
        others = any(other.tp not in sick and leader_of(*other.tp) in serves for other in self.all)
        return records, held_bytes, others

    def silent(self, now: float) -> set[TopicPartition]:
        """Partitions whose leaders owe an acknowledgement for longer than usual."""
        direct = self._holds.direct
        owed = {buffer.tp for buffer in list(self.busy.values()) if self._holds.is_silent(buffer, now)}
        return owed if direct is None else owed | direct.silent

    def oldest(self) -> dict[TopicPartition, float]:
        """Partition -> when its oldest record without an acknowledgement was accepted, as far as that is known."""
        direct = self._holds.direct
        found = {} if direct is None else direct.backlogs.oldest()
        for buffer in self.all:
            queues = buffer.records, *buffer.bound.copy().values(), *(batch.records for batch in buffer.unresolved[:1])
            accepted = [queue[0][ACCEPTED_AT] for queue in queues if queue]  # one step each: the sender takes away
            if accepted:
                found[buffer.tp] = min(*accepted, found.get(buffer.tp, NEVER))
        return found

    def full(self, buffer: PartitionBuffer | None = None) -> str:
        """Why no record is accepted now, for one partition if it has used up its share, and what to do."""
        limits = "queue.buffering.max.messages, queue.buffering.max.kbytes"
        subject = f"{self.queued} records and events are waiting in this producer ({limits})"
        if buffer is not None:
            subject = f"{buffer.topic} [{buffer.partition}] has used up its share of the buffer"
        why, cure = self._why_full(clock.monotonic())
        way_out = f"{cure} Then" if cure else "Call poll() to serve delivery reports, then"
        return f"Local: Queue full: {subject}{why}. {way_out} produce the record again"

    def _why_full(self, now: float) -> tuple[str, str | None]:
        """A clause that says what room waits for, and the cure where it is no poll()."""
        addressed = self._holds.cluster.addressed
        most = max((buffer for buffer in self.all if buffer.waiting), key=lambda buffer: buffer.bytes, default=None)
        if most is not None:
            hold, held = self._holds.waits_for(most, now), f"{most.waiting} records of {most.bytes} bytes"
            why, cure = f"it {hold.sentence(now)}", hold.reason.cure if hold.reason in _BLOCK else None
            if hold.reason is HoldReason.LEADER_SILENT and (sick := self._holds.sick((most.tp,), now)) is not None:
                why, cure = sick.sentence, sick.cure
            return f"; most of the memory is held by {most.topic} [{most.partition}], {held}: {addressed(why)}", cure
        sick = self._holds.sick(self.silent(now), now)
        return ("", None) if sick is None else (f"; {addressed(sick.sentence)}", sick.cure)
