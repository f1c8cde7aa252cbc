"""The records of one partition that wait in this process."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from contextlib import suppress
from itertools import accumulate, islice
from operator import itemgetter

from safeproducer.pipeline.buffer.in_flight_batch import InFlightBatch
from safeproducer.pipeline.record import ACCEPTED_AT, KEY, SIZE, TIMESTAMP, HeldRecord
from safeproducer.policy.affinity import Affinity
from safeproducer.policy.decision import Hold
from safeproducer.policy.pacing import AckTime
from safeproducer.policy.types import NEVER, TopicPartition

_NEAR_MS = 8191
_FAR_TIMES = 3  # bytes more that a time takes beyond that distance, up to 24 days
MOST_OVERHEAD = 36  # what librdkafka counts, and what the number of headers and an application's own times may take up

Times = dict[tuple[TopicPartition, str], tuple[int, float]]
"""(partition, reason) -> (1 if it waits for it now, ends of the waits for it minus their beginnings, in seconds)."""
_REMEMBERED = 16  # changes of what a partition waits for: of a record held through more, only these are looked at
Ticket = tuple["PartitionBuffer", int]
"""Where a record waits: the buffer that it was put into, and the number of its report, which no other record has."""


class Waits:
    """Reasons for which the next batch of a partition waited lately; `times`: of all. The sender's thread."""

    __slots__ = ("_lately", "_now", "_tp", "times")

    def __init__(self, tp: TopicPartition, times: Times) -> None:
        self._tp, self.times = tp, times
        self._now: str | None = None
        self._lately: tuple[tuple[float, str | None], ...] = ()

    def change(self, reason: str | None, now: float) -> None:
        """The next batch waits for `reason` from now on."""
        before, self._now = self._now, reason
        if before == reason:
            return
        self._lately = (*self._lately[1 - _REMEMBERED :], (now, reason))
        for each, change in ((before, -1), (reason, 1)):
            if each is not None:
                key = self._tp, each
                waits, seconds = self.times.get(key, (0, 0.0))
                self.times[key] = waits + change, seconds - change * now

    def take_over(self, earlier: Waits, now: float) -> None:
        """Records come here that waited there until now."""
        since = self._lately[-1][0] if self._lately else -NEVER
        if later := [each for each in earlier._lately if each[0] > since]:
            self._lately = (*self._lately, *later, (now, None))[-_REMEMBERED:]

    def longest(self, since: float, until: float) -> str | None:
        """For what it waited longest between these moments; None for nothing."""
        found: dict[str, float] = {}
        for began, reason in reversed(self._lately):
            if reason is not None:
                found[reason] = found.get(reason, 0.0) + until - max(began, since)
            until = began
            if began <= since:
                break
        return max(found, key=found.__getitem__, default=None)


class PartitionBuffer:
    """Any thread appends to `records`; only the sender takes away.

    Counters change by in-place addition, which is one step under the interpreter lock (see counters.py). `held` is why
    records of this partition are held back at all, None while they go directly; `direct_until`: when the last of them
    may have gone directly. `why` is what the next batch waits for, `waits` what it waited for before. `look_at`: until
    then the sender finds nothing to do here, unless something rings. `bound`: records whose keys are bound to a lane,
    by lane, and `keys` which keys are; None while every record of the partition stays on one lane. `unknown_outcome`:
    the last batch of it that left `lane` ended so.
    """

    __slots__ = (
        *("tp", "records", "bound", "keys", "bytes", "unresolved", "ack", "held"),
        *("direct_until", "why", "waits", "unknown_outcome", "lane", "look_at"),
    )

    def __init__(self, topic: str, partition: int, keys: Affinity | None = None, times: Times | None = None) -> None:
        self.tp = (topic, partition)
        self.records: deque[HeldRecord] = deque()
        self.bound: dict[int, deque[HeldRecord]] = {}
        self.keys = keys
        self.bytes = 0
        self.unresolved: list[InFlightBatch] = []
        self.ack = AckTime()
        self.held: Hold | None = None
        self.direct_until = 0.0
        self.why: Hold | None = None
        self.look_at = 0.0
        self.waits = Waits(self.tp, {} if times is None else times)
        self.unknown_outcome = False
        self.lane: int | None = None

    @property
    def topic(self) -> str:
        return self.tp[0]

    @property
    def partition(self) -> int:
        return self.tp[1]

    def hold(self, hold: Hold | None, now: float) -> None:
        """Hold records back for `hold` from now on, or let them go directly again if that is None."""
        if hold is not None and self.held is None:
            self.direct_until = now
        self.held = hold

    def looks(self) -> None:
        """The sender looks: what rings from now on is not part of that."""
        self.look_at = NEVER

    def ring(self) -> None:
        """Something changed that its records may wait for. Any thread."""
        self.look_at = 0.0

    def rest(self, until: float) -> None:
        """The sender found nothing to do here until then; unless it has rung since."""
        if self.look_at == NEVER:  # one step with the next line: no call, no jump
            self.look_at = until

    def wait_for(self, hold: Hold | None, now: float, code: str | None = None) -> None:
        """The next batch waits for this from now on, for nothing if it is None; `code`: of the cause. The sender's."""
        self.why = hold
        self.waits.change(code or (hold and hold.reason), now)

    def went_directly(self, now: float) -> None:
        """A record of it may have gone directly until then."""
        self.direct_until = now

    @property
    def waiting(self) -> int:
        """How many records wait here."""
        count = len(self.records)
        # A copy, made in one step under the interpreter lock: any thread may ask.
        return count + sum(map(len, list(self.bound.values()))) if self.bound else count

    @property
    def pinned(self) -> bool:
        """Whether the next record must take the lane that an earlier one took, though nothing is under way."""
        return self.unknown_outcome or (self.keys is not None and self.keys.unknown_outcome)

    @property
    def oldest(self) -> float:
        """When the longest waiting record was accepted; something waits."""
        return min([queue[0][ACCEPTED_AT] for queue in self.queues()])

    def queues(self) -> list[deque[HeldRecord]]:
        """The queues that hold something, each in the order in which its records were accepted."""
        return [queue for queue in (*self.bound.values(), self.records) if queue]

    def take(self, count: int, size: int, lane: int, taken: list[HeldRecord]) -> None:
        """Into `taken` the next batch for a lane: up to `count` records of up to `size` bytes, or one if it is larger.

        A record is there before it leaves here, so that at no moment nobody counts it. Records whose keys are bound to
        another lane are set aside for that one. Each is looked at once and taken once: the work is linear in records.
        """
        records, keys, own = self.records, self.keys, self.bound.get(lane)
        first, last = (own or records)[0], (records or own or records)[-1]
        extra = _FAR_TIMES if last[TIMESTAMP] - first[TIMESTAMP] > _NEAR_MS else 0
        room = size
        if keys is None:
            self._take_first(count, room, extra, taken)
            return
        while own and len(taken) < count and ((room := room - own[0][SIZE] - extra) >= 0 or not taken):
            taken.append(own[0])
            own.popleft()
        if own is not None and not own:
            del self.bound[lane]
        while records and not own and len(taken) < count:
            record = records[0]
            left = room - record[SIZE] - extra
            if left < 0 and taken:
                break
            if (key := record[KEY]) is not None and (owner := keys.bind(key, lane)) != lane:
                self.bound.setdefault(owner, deque()).append(record)
                records.popleft()
                continue
            room = left
            taken.append(record)
            records.popleft()
        taken_bytes = sum([record[SIZE] for record in taken])
        self.bytes -= taken_bytes  # one step, see counters.py: what others add meanwhile must not be lost

    def take_back(self, records: list[HeldRecord], lane: int) -> None:
        """Records that a lane was to have and did not take wait again, before what came later."""
        aside = self.bound.get(lane)
        if aside:  # then all of them had been set aside for it, and stay so
            aside.extendleft(reversed(records))
        else:
            if self.keys is not None:
                self.keys.release_all([record[KEY] for record in records if record[KEY] is not None])
            self.records.extendleft(reversed(records))
        back_bytes = sum([record[SIZE] for record in records])
        self.bytes += back_bytes
        self.ring()

    def _take_first(self, count: int, room: int, extra: int, taken: list[HeldRecord]) -> None:
        """As take(), where all records stay on one lane."""
        records = self.records
        first: list[HeldRecord] | None = None
        while first is None:  # not "while empty": the sender would look for ever where nothing waits
            with suppress(RuntimeError):  # any thread may append, also between these two calls
                first = list(islice(records, count))
        ends = list(accumulate([record[SIZE] + extra for record in first]))
        fit = max(1, bisect_right(ends, room))
        taken += first[:fit]
        for _ in range(fit):
            records.popleft()
        taken_bytes = ends[fit - 1] - extra * fit
        self.bytes -= taken_bytes  # as in take()

    def take_out(self, queue: deque[HeldRecord], index: int = 0) -> HeldRecord:
        """Remove a record that will not be handed over from one of the queues, the first if no index is given."""
        record = queue[index]
        del queue[index]  # one step under the interpreter lock: any thread may append
        self.bytes -= record[SIZE]
        if queue is not self.records and self.keys is not None:
            self.keys.release(record[KEY])
        return record

    def take_last(self) -> HeldRecord:
        """The record that came last, which does not wait after all."""
        record = self.records.pop()
        self.bytes -= record[SIZE]
        return record

    def move_first(self, other: PartitionBuffer) -> None:
        """The first record belongs to another partition: there before it leaves here, or what follows would pass it.

        It goes before what was accepted later and named that partition.
        """
        record = self.records[0]
        other.bytes += record[SIZE]
        other.records.insert(bisect_right(other.records, record[ACCEPTED_AT], key=itemgetter(ACCEPTED_AT)), record)
        self.bytes -= record[SIZE]
        self.records.popleft()
        other.ring()

    def resolved(self, batch: InFlightBatch) -> None:
        """A batch has all its reports: its keys are free, or bound as long as its outcome is unknown."""
        self.unresolved.remove(batch)
        self.ring()
        if not batch.records:
            return
        self.unknown_outcome, self.lane = batch.reports.unknown_outcome, batch.lane
        if self.keys is None:
            return
        answered = batch.records
        if batch.reports.rejections:  # their keys stay bound until they go again
            rejected = {id(rejection.record) for rejection in batch.reports.rejections}
            answered = [record for record in answered if id(record) not in rejected]
        keys = [record[KEY] for record in answered if record[KEY] is not None]
        if batch.reports.unknown_outcome:
            self.keys.note_unknown(keys, batch.lane)
        else:
            self.keys.release_all(keys)
            if keys or not batch.reports.rejections:
                self.keys.acknowledged(batch.lane)

    def put_back(self, record: HeldRecord, lane: int | None) -> None:
        """A record that was handed over and certainly not written is to go again, before what came later."""
        if self.keys is not None and lane is not None and record[KEY] is not None:
            self.bound.setdefault(lane, deque()).appendleft(record)
        else:
            self.records.appendleft(record)
        self.bytes += record[SIZE]
        self.ring()

    def gives_up(self, record: HeldRecord, lane: int | None, unknown_outcome: bool) -> None:
        """A record that a quota rejected does not go again after all."""
        if self.keys is None or lane is None or record[KEY] is None:
            return
        if unknown_outcome:
            self.keys.note_unknown([record[KEY]], lane)
        else:
            self.keys.release(record[KEY])

    def binds(self, lane: int) -> bool:
        """Whether records must take that lane, those that wait or those that come."""
        if self.keys is None:
            return self.unknown_outcome and self.lane == lane
        return bool(self.bound.get(lane)) or self.keys.has_unknown(lane)

    def unbind(self, lane: int) -> None:
        """That lane is no more: what was set aside for it may take any other, before what came later."""
        self.ring()
        if self.keys is not None:
            self.keys.forget(lane)
            self.records.extendleft(reversed(self.bound.pop(lane, deque())))
