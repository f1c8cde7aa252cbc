"""The batch lanes of one producer: made when they are needed, given up when they are not, replaced when they fail.

The first is the one that tells of the cluster by its statistics. The others are made with those switched off, unless
the application wants them: each is a metadata cache, connections and three threads, and would say the same.

A lane that cannot be made is tried again later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from safeproducer.kafka.lane_client import LaneClient
from safeproducer.kafka.native import NativeProducer
from safeproducer.kafka.statistics import Statistics
from safeproducer.pipeline.buffer.in_flight_batch import BatchSinks, InFlightBatch
from safeproducer.pipeline.lanes.batch_lane import BatchLane, LaneLog
from safeproducer.pipeline.lanes.lane import LaneFailure, Renewing
from safeproducer.pipeline.record import ReportNumbers
from safeproducer.pipeline.reports.report_queue import Reports
from safeproducer.policy.lanes import IdleLanes
from safeproducer.policy.types import NEVER
from safeproducer.producer_ids.lane_permits import GRANTED, LanePermit, LanePermits
from safeproducer.runtime import clock
from safeproducer.settings.delivery import SendConfig

MakeNative = Callable[[LaneLog | None], NativeProducer]
"""Makes the native producer of a batch lane; with a LaneLog that does not tell it is one more, without statistics."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_SHORTEST_WAIT = 0.001  # how long to wait at least for an answer that is late: others may come before it
_LATE = 0.1  # the later it is, the longer the wait: nobody answers, or on another lane
_LONGEST_WAIT = 0.02
_ALL_EVERY = 0.25
_BUSY_EVERY = 0.02
_by_due = attrgetter("due")


@dataclass
class LaneMaker:
    """Makes the native producers of batch lanes, and pauses behind a failure. The sender's thread calls.

    - `make`: None when there never is a batch lane.
    - `replaceable`: whether others take over when one meets a fatal error.
    - `not_made(error, seconds)` tells that one cannot be made, and in how many seconds it is tried again.
    """

    make: MakeNative | None
    replaceable: bool
    sinks: BatchSinks
    renewing: Renewing
    not_made: Callable[[Exception, float], None]
    made: int = 0
    _pause: float = 0.0
    _again_at: float = 0.0

    def try_one(self, log: LaneLog | None, needed: bool, failure: LaneFailure | None) -> BatchLane | None:
        """None if it cannot be made now, or is not `needed` and would take a producer ID beyond the limit (KIP-936).

        `failure`: that of the native producer which it helps out for, if there is one.
        """
        make = self.make
        if make is None or clock.monotonic() < self._again_at:
            return None
        if failure is not None:
            made = self.renew(lambda: make(log), failure)
            return None if made is None else self.lane_of(made[0], log, made[1])
        permits = self.renewing.permits()
        if (kind := permits.kind(needed)) is None or (native := self._attempt(lambda: make(log))) is None:
            return None
        return self.lane_of(native, log, permits.of_lane(kind))

    def renew(
        self, make: Callable[[], NativeProducer], failure: LaneFailure
    ) -> tuple[NativeProducer, LanePermit] | None:
        """Another native producer for one that failed, and its permit; None if it cannot be made now."""
        now = clock.monotonic()
        if now < self._again_at or (permit := self.renewing.permit(failure, now)) is None:
            return None
        if (native := self._attempt(make)) is None:
            return None
        self.renewing.used(failure, now)
        return native, permit

    def _attempt(self, make: Callable[[], NativeProducer]) -> NativeProducer | None:
        """None if it cannot be made: files of the configuration may be gone, or files and threads used up."""
        try:
            native = make()
        except Exception as error:
            self._pause = min(_LONGEST_PAUSE, 2 * self._pause or _FIRST_PAUSE)
            self._again_at = clock.monotonic() + self._pause
            self.not_made(error, self._pause)
            return None
        self._pause = 0.0
        return native

    def lane_of(
        self, native: NativeProducer, log: LaneLog | None = None, permit: LanePermit = GRANTED, new: bool = True
    ) -> BatchLane:
        self.made += 1
        return BatchLane(LaneClient(native, self.replaceable), self.made - 1, self.sinks, log, permit, new)


class LanePool:
    """The sender's thread calls; any thread may ask how much is inside.

    - `make`, `not_made`: see LaneMaker. `permits()`: those of the batch lanes.
    - `completed`, `refused_topics`: see BatchSinks.
    - `maker`: makes another native producer in place of the direct lane's, too.
    - `wanted`: how many lanes there should be; `grow()` makes them.
    """

    def __init__(
        self,
        make: MakeNative | None,
        delivery: SendConfig,
        reports: Reports,
        numbers: ReportNumbers,
        permits: Callable[[], LanePermits],
        not_made: Callable[[Exception, float], None],
        renewing: Renewing | None = None,
    ) -> None:
        sinks = BatchSinks(reports, numbers)
        self.renewing = renewing or Renewing(permits)
        self.maker = LaneMaker(make, delivery.spreads or self.renewing.on, sinks, self.renewing, not_made)
        self.permits = permits
        fixed = delivery.own.lanes
        self._idle = IdleLanes(fixed, delivery.own.producer_ids_per_hour if delivery.idempotent else None)
        self._lanes: list[BatchLane] = []
        self.living: list[BatchLane] = []  # lanes that are not to be replaced
        self._login: tuple[str, str] | None = None
        self._tells = delivery.only_batch_lanes
        """Whether the first lane tells the application of the cluster: there is no direct lane."""
        self.completed, self.refused_topics = sinks.completed, sinks.refused_topics
        self._gone = 0, 0  # batches and splits of lanes that are no more
        self.wanted = fixed or 1
        self._all_due = self._busy_due = 0.0
        self._ids_asked_for = True

    def __iter__(self) -> Iterator[BatchLane]:
        return iter(tuple(self._lanes))

    def __len__(self) -> int:
        return len(self._lanes)

    @property
    def first(self) -> BatchLane | None:
        return self._lanes[0] if self._lanes else None

    # --- life cycle --------------------------------------------------------------------------------------------------

    def adopt(self, native: NativeProducer, log: LaneLog | None = None, new: bool = True) -> None:
        """A lane made by somebody else; it is `new` if no other producer had it."""
        self._add(self.maker.lane_of(native, log, new=new))

    def prepare(self, failure: LaneFailure | None = None) -> bool:
        """Make the first lane, which takes a while to get its producer ID and its connections; whether it was made.

        `failure`: that of the direct lane, which it takes over from. In place of one that failed `grow()` makes it.
        """
        if self._lanes or self.renewing.waiting:
            return False
        if (lane := self.maker.try_one(LaneLog(tells=True), True, failure)) is not None:
            self._add(lane)
        return lane is not None

    def want(self, count: int) -> None:
        """Have so many lanes from now on, or more."""
        self.wanted = max(self.wanted, count)

    def grow(self) -> int:
        """Make what is wanted; how many lanes that are. Not inside produce(): making one takes milliseconds."""
        # One batch lane tells of the cluster, by its statistics: two would tell all twice. When that one has failed,
        # the next one to be made does it.
        made = 0
        self._note_failed()
        while self.maker.made and self.maker.make is not None and len(living := self.living) < self.wanted:
            tells = any(lane.log is None or lane.log.tells for lane in living)
            failure = next(iter(self.renewing.waiting), None)
            log = LaneLog(not tells) if tells or failure is not None else None
            lane = self.maker.try_one(log, not tells, failure)
            if lane is None:
                break
            self._add(lane)
            made += 1
            if failure is not None:
                self.renewing.replaced(failure)
        return made

    def has_failed(self, number: int) -> bool:
        """Whether this lane takes nothing more."""
        return any(lane.number == number and lane.client.failed is not None for lane in self._lanes)

    def _note_failed(self) -> None:
        for lane in self._lanes:
            if (failure := lane.newly_failed()) is not None and self.renewing.replaces(failure.error):
                self.renewing.waiting.append(failure)
        replaces = self.renewing.replaces
        self.living = [lane for lane in self._lanes if lane.failure is None or not replaces(lane.failure.error)]

    @property
    def settled(self) -> bool:
        """Whether there is one lane, which works, and no other is wanted: none is to be made or given up."""
        if len(self._lanes) != 1 or self.wanted > 1 or self.renewing.waiting or self.renewing.end is not None:
            return False
        return self._lanes[0].client.failed is None and not self._lanes[0].permit.denied

    def _add(self, lane: BatchLane) -> None:
        self._ids_asked_for = False
        self._lanes.insert(0 if lane.log is None or lane.log.tells else len(self._lanes), lane)
        self._note_failed()
        # Now that it is seen here: it may have been made of the configuration before.
        if self._login is not None:
            lane.client.native.set_sasl_credentials(*self._login)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Set the credentials of all lanes; from any thread."""
        self._login = username, password
        for lane in self:
            lane.client.native.set_sasl_credentials(username, password)

    def spare(self, now: float) -> BatchLane | None:
        """A lane to give up: the last one, when it has been idle for long; or one that failed, or may not send."""
        for lane in self:
            if (lane.client.over or lane.permit.denied) and not lane.inside and not lane.batches:
                return lane
        last = self._lanes[-1] if len(self.living) > 1 else None
        if last is None or last.inside or last.batches:
            return None
        return last if self._idle.spare(len(self._lanes), last.used_at, last.permit.asked, now) else None

    def remove(self, lane: BatchLane) -> None:
        """Take a lane out; the caller closes its native producer. One that failed is replaced."""
        self._lanes.remove(lane)
        self._gone = self._gone[0] + lane.counts.batches, self._gone[1] + lane.counts.splits
        self._note_failed()
        replaced = lane.failure is not None and self.renewing.replaces(lane.failure.error)
        self.permits().ended(lane.permit, lane.counts.batches > 0, bool(lane.client.failed), replaced)
        if lane.failure is not None:
            lane.failure.end(lane.client.failed)
            self.renewing.settle(lane.failure) if replaced else self.renewing.replaced(lane.failure)
        else:
            self.wanted = len(self._lanes)
            self._idle.gave_up(clock.monotonic())

    @property
    def acquired(self) -> bool:
        """Whether the first lane is known to have its producer ID, by its log."""
        log = self._lanes[0].log if self._lanes else None
        return log is not None and log.acquired

    def ask_for_ids(self, topic: str, now: float) -> bool:
        """Have lanes get their producer IDs sooner; whether there is one to look after again soon."""
        if self._ids_asked_for:
            return False
        # One without a log may have its ID: to ask some times costs less than to find out.
        asking = [lane.client.asks_for_id(topic, now) for lane in self if lane.log is None or not lane.log.acquired]
        self._ids_asked_for = not any(asking)
        return not self._ids_asked_for

    # --- all of them -------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Queue the reports that arrived."""
        for lane in self._to_look_at(clock.monotonic()):
            lane.client.serve()

    def near(self, now: float) -> tuple[LaneClient, float] | None:
        """The lane whose answer may come at any moment, and for how long to wait for it.

        There is no waiting on several lanes at once: answers come in about the order in which batches left. And whoever
        wants something else is not heard meanwhile.
        """
        if not self._lanes:
            return None
        lane = min(self._lanes, key=_by_due)
        if lane.soon > now:
            return None
        early = lane.due - now
        return lane.client, min(_LONGEST_WAIT, max(_SHORTEST_WAIT, early, -early * _LATE))

    @property
    def idle(self) -> bool:
        """Whether only a record can change anything: none is under way, and each lane can take one."""
        return not any(lane.batches or lane.inside or not lane.ready for lane in self._lanes)

    def next_look(self, now: float) -> float:
        """When to look at them again, whether or not an answer is near()."""
        if not self._lanes:
            return NEVER
        due = self._all_due
        for lane in self._lanes:
            if now < lane.soon < due:
                due = lane.soon
            if self._busy_due < due and (lane.batches or not lane.ready):
                due = self._busy_due
        return due

    def _to_look_at(self, now: float) -> list[BatchLane]:
        """Lanes whose answer is near, now and then those with records, more seldom all: each look costs the same.

        An answer may come earlier than usual, one that is to get its producer ID tells of it, and others of errors.
        """
        if now >= self._all_due:
            self._all_due = now + _ALL_EVERY
            self._busy_due = now + _BUSY_EVERY
            return self._lanes.copy()
        if now >= self._busy_due:
            self._busy_due = now + _BUSY_EVERY
            return [lane for lane in self._lanes if lane.batches or not lane.ready]
        return [lane for lane in self._lanes if lane.soon <= now]

    def resolved(self, batch: InFlightBatch) -> None:
        """A batch has all its reports."""
        for lane in self._lanes:
            if lane.number == batch.lane:
                if lane.client.failed:
                    self._note_failed()
                lane.resolved(batch)

    def observe(self, statistics: Statistics) -> int:
        """Splits that the first lane's statistics show."""
        return self._lanes[0].observe(statistics) if self._lanes else 0

    def purge(self, *args: Any) -> None:
        for lane in self:
            lane.purge(*args)

    @property
    def busy(self) -> bool:
        """Whether batches are under way."""
        for lane in self._lanes:  # noqa: SIM110 - asked at each poll(), and a generator costs more than all the rest
            if lane.batches:
                return True
        return False

    @property
    def records(self) -> int:
        """Records inside librdkafka; those the application was told are unknown do not count."""
        return sum([batch.open for lane in self._lanes.copy() for batch in lane.batches.copy()])

    @property
    def bytes(self) -> int:
        """Bytes of keys, values and headers inside librdkafka."""
        return sum(lane.bytes for lane in self._lanes)

    @property
    def inside(self) -> int:
        return sum(lane.inside for lane in self._lanes)

    @property
    def events(self) -> int:
        """Events for the application beside its records: nobody waits for statistics of other lanes."""
        first = self.first
        return max(0, len(first.client.native) - first.inside) if self._tells and first is not None else 0

    @property
    def natives(self) -> list[Any]:
        return [lane.client.native for lane in self._lanes]

    @property
    def handed_over(self) -> int:
        return self._gone[0] + sum(lane.counts.batches for lane in self._lanes)

    @property
    def splits(self) -> int:
        return self._gone[1] + sum(lane.counts.splits for lane in self._lanes)
