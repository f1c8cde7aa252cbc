"""The lane of the direct path: how it starts, what it has not had answered, and what a purge left.

librdkafka's counts go on for as long as the native producer lives, whoever owns it. All that was learned from them
therefore goes over to the next owner with it: measured against nothing, records of the former one would be the next's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from safeproducer.kafka.statistics import PartitionStatistics, Statistics
from safeproducer.pipeline.lanes.lane import USED_UP, Lane
from safeproducer.pipeline.reports.counters import DeliveryCounters
from safeproducer.policy.backlog import Backlogs
from safeproducer.policy.cluster_metadata import BrokerInfo
from safeproducer.policy.pacing import LATE, LATE_TIMES
from safeproducer.policy.probation import LATE_THREADS, Probation, Seen
from safeproducer.policy.types import DIRECT_LANE, NEVER, TopicPartition
from safeproducer.runtime import clock
from safeproducer.settings.delivery import SendConfig

_OLD_SHARE = 1 / 3  # a record in the lane that is older than this share of its time: its partition takes no more


class BatchCount(NamedTuple):
    """Records that the native produce_batch() may have taken by a moment, and those that it certainly had."""

    most: int = 0
    least: int = 0


class BatchCall:
    """A call of the native produce_batch(), begun now; it took `count` records, or will take as many at most."""

    __slots__ = ("began", "count", "ended")

    def __init__(self, count: int) -> None:
        self.count = count
        self.began = clock.monotonic()
        self.ended = NEVER

    def end(self, taken: int) -> None:
        self.count = taken
        self.ended = clock.monotonic()


class BatchCalls:
    """The calls of the native produce_batch() for one partition."""

    __slots__ = ("_calls", "_earlier")

    def __init__(self) -> None:
        self._calls: deque[BatchCall] = deque()
        self._earlier = 0

    def add(self, call: BatchCall) -> None:
        self._calls.append(call)

    def by(self, now: float) -> BatchCount:
        """Counts as they were at `moment`. One thread asks, and never for an earlier moment than before."""
        calls = self._calls
        while calls and calls[0].ended <= now:
            count = calls.popleft().count
            self._earlier += count
        later = calls.copy()
        return BatchCount(
            self._earlier + sum(call.count for call in later if call.began <= now),
            self._earlier + sum(call.count for call in later if call.ended <= now),
        )


_NONE = BatchCount()
Batches = Mapping[TopicPartition, BatchCount]


class UnsentRecords:
    """How many records were never in a request, which proves them not written. The sender calls.

    Since the lane was last seen empty, what it was given without what it sent was never sent.
    """

    def __init__(self, since: float = 0.0) -> None:
        self._since = since
        self._empty: Statistics | None = None
        self._batches: Batches = {}
        self._seen: Mapping[TopicPartition, PartitionStatistics] = {}
        self._anew = set[TopicPartition]()  # partitions that librdkafka began to count anew since the lane was empty
        self._purged: tuple[Statistics | None, set[TopicPartition], dict[TopicPartition, int]] = None, self._anew, {}
        """What was known of the last empty moment before the purge, and what produce_batch() has given since."""

    def emptied(self, found: Statistics, batches: Batches) -> None:
        """Statistics show the lane empty."""
        self._empty, self._batches = found, batches
        self._anew = set()

    def seen(self, found: Statistics) -> None:
        for tp, before in self._seen.items():
            entry = found.partitions.get(tp)
            if entry is None or entry.accepted < before.accepted or entry.sent < before.sent:
                self._anew.add(tp)
        self._seen = found.partitions

    def purging(self, batches: Batches) -> None:
        """The lane is about to be purged: from now on it is empty for another reason."""
        since = {tp: count.least - self._batches.get(tp, _NONE).most for tp, count in batches.items()}
        self._purged = self._empty, self._anew, since

    def counts(self, found: Statistics, failed_at: float) -> dict[TopicPartition, int]:
        """How many of each partition's last purged records were in no request, by later statistics.

        What ended since the lane was empty must be known for that, so none may have failed since.
        """
        empty, anew, batches = self._purged
        if failed_at > (self._since if empty is None else empty.at):
            return {}
        never = {}
        for tp, entry in found.partitions.items():
            before = None if empty is None else empty.partitions.get(tp)
            if tp in anew or (before is not None and entry.accepted < before.accepted):
                continue  # librdkafka forgot the partition meanwhile, and began to count anew
            earlier = 0 if before is None else before.accepted - before.sent
            if not batches.get(tp) and tp not in self._batches:
                earlier = max(0, earlier)  # what was sent twice before is not proof that something was not sent
            never[tp] = entry.accepted - entry.sent - earlier + batches.get(tp, 0)
        return never


class DirectLaneCounts:
    """The sender changes it; any thread may ask.

    `since`: what is older is of a former owner. `suspects`: what a purge may have ended records of, until reports tell.
    """

    def __init__(self, since: float = 0.0) -> None:
        self.backlogs = Backlogs()
        self.unsent = UnsentRecords(since)
        self.since = since
        self._calls: dict[TopicPartition, BatchCalls] = {}
        self.suspects: frozenset[TopicPartition] = frozenset()
        self._seen: Statistics | None = None

    def begin_batch(self, tp: TopicPartition, call: BatchCall) -> None:
        self._calls.setdefault(tp, BatchCalls()).add(call)

    def batches(self, at: float) -> Batches:
        """By partition, what the native produce_batch() took by then, for all owners."""
        return {tp: calls.by(at) for tp, calls in self._calls.copy().items()}

    def observe(self, found: Statistics, batches: Batches) -> None:
        """Statistics of the lane, and `batches()` as they were then."""
        before = {} if self._seen is None else self._seen.partitions
        for tp, entry in found.partitions.items():
            if entry is before.get(tp) and tp not in batches and self.backlogs.observe_same(tp, found.at):
                continue
            # Records without a partition leave that queue when they get one.
            acknowledged = entry.acknowledged if tp[1] >= 0 else entry.accepted - entry.queued
            under_way = entry.in_flight, entry.sent
            self.backlogs.observe(tp, entry.accepted, acknowledged, found.at, *batches.get(tp, _NONE), under_way)
        self._seen = found
        self.backlogs.looked(found.at)
        self.unsent.seen(found)
        if not found.messages:
            self.backlogs.forgive()
            self.unsent.emptied(found, batches)

    def silent(self, patience: float, broker: Callable[[int], BrokerInfo]) -> frozenset[TopicPartition]:
        """Partitions as of Backlogs.silent(), by the last statistics."""
        if (found := self._seen) is None:
            return frozenset()

        def answered(tp: TopicPartition) -> float:
            entry = found.partitions.get(tp)
            if entry is None or (entry.leader < 0 and not entry.sent):
                return found.at  # who leads it is not known yet: nobody owes anything
            return broker(entry.leader).answered[1]

        return self.backlogs.silent(found.at, patience, answered)

    def has_nothing_of(self, tp: TopicPartition, since: float) -> bool:
        """Whether it was seen without a backlog at a look after `since`, or without the topic, which it never had."""
        found = self._seen
        new = found is not None and found.at > since and tp[0] not in found.metadata_ages and tp not in found.partitions
        return new or self.backlogs.has_nothing_of(tp, since)

    def taken_over(self, now: float) -> None:
        """The next owner begins: all that the former one gave was acknowledged."""
        self.since, self._seen = now, None
        self.backlogs.all_ended(now)


class DirectLane(Lane):
    """The sender changes it, each time by one assignment; threads that produce read, and take from `probation`.

    It refers to no native producer: that one holds its callbacks, and they this. `rejected`: a quota on producer
    IDs rejected the lane's, and it is not used any more. `purge`: when it was purged, and within what nothing was
    answered, until that is told. `old`: partitions with records that have used up a third of their time.
    `record_bytes`: what a record of it takes, on average.
    """

    def __init__(
        self, delivery: SendConfig, counters: DeliveryCounters, counts: DirectLaneCounts | None = None
    ) -> None:
        super().__init__(DIRECT_LANE)
        self._delivery = delivery
        self.probation = self._begins(delivery.mode == "auto" and delivery.holds_back)
        self.rejected = False
        self.purge: tuple[float, str] | None = None
        self._silent: dict[TopicPartition, int] = {}  # by the last statistics: how many records were delivered then
        self.old: frozenset[TopicPartition] = frozenset()
        self.counts = counts or DirectLaneCounts()
        self.record_bytes = 0.0
        self._unknown_outcomes: dict[TopicPartition, int | None] = {}
        """With how many records were acknowledged by then, None before statistics have told."""
        self._empty_at = self._observed_at = self.counts.since
        self._counters = counters

    def _begins(self, wanted: bool, rest: bool = False) -> Probation:
        delivery = self._delivery
        return Probation(delivery.batch_records, delivery.batch_bytes, delivery.linger, wanted, rest)

    @property
    def is_sound(self) -> bool:
        """Whether it never failed nor was purged, and no quota has rejected its producer ID."""
        return super().is_sound and not self.rejected

    @property
    def backlogs(self) -> Backlogs:
        """How old its oldest records are."""
        return self.counts.backlogs

    @property
    def knows_backlogs(self) -> bool:
        """Whether statistics are compared with what it was given: its records are timed out here."""
        return self._delivery.owns_timeout

    def begin_batch(self, tp: TopicPartition, call: BatchCall) -> None:
        """The native produce_batch() is about to take records, which librdkafka does not count. Any thread."""
        if self.knows_backlogs:
            self.counts.begin_batch(tp, call)

    def renewed(self, counts: DirectLaneCounts) -> DirectLane:
        """Another direct lane in place of this one."""
        return DirectLane(self._delivery, self._counters, counts)

    def is_silent(self, tp: TopicPartition) -> bool:
        """Whether its leader owes acknowledgements, and has given none since the last statistics."""
        count = self._silent.get(tp)
        return count is not None and self._counters.answers(tp)[0] == count

    @property
    def silent(self) -> frozenset[TopicPartition]:
        return frozenset(filter(self.is_silent, self._silent.copy()))

    @property
    def limited(self) -> bool:
        """Whether there is a partition that it takes nothing of, though that has no batch on probation."""
        return bool(self.rejected or self.failure or self.draining or self.gaps or self._silent or self.old)

    def takes(self, tp: TopicPartition, size: int) -> int:
        """While its probation is open: whether a record more may go; see Probation.takes()."""
        return self.probation.takes(tp, size, self._counters.answers, clock.monotonic())

    def closes(self, tp: TopicPartition, now: float) -> bool:
        """Whether records of this partition wait for the answer to its batch on probation."""
        return self.probation.open and self.probation.closes(tp, self._counters.answers, now)

    def rest(self) -> None:
        """Begin probation anew: nothing was accepted for a while, and nothing is under way."""
        self.probation = self._begins(True, rest=True)

    def keeps(self, tp: TopicPartition) -> bool:
        """Whether this partition must not leave for a batch lane, as a record of it is of unknown outcome.

        Here its late copy is fenced by the new epoch, and on another lane it would appear behind its successors.
        """
        return tp in self._unknown_outcomes

    def has_nothing_of(self, tp: TopicPartition, direct_until: float, in_lane: int, now: float) -> bool:
        """Whether the lane has nothing of this partition any more; it has so many records and events.

        Seen empty once is enough: what is in it later is of others, or an event that nobody has asked for yet.
        """
        if not in_lane:
            self._empty_at = now
        since = direct_until + LATE_THREADS
        return self._empty_at > since or self.counts.has_nothing_of(tp, since)

    def unreported(self) -> int:
        """How many records of the producer have no report yet, on whichever path."""
        accepted, delivered, failed = self._counters.totals()
        return accepted - delivered - failed

    def unacknowledged(self, since: float) -> int | None:
        """How many records' reports librdkafka has not given away, by statistics from after `since`, if any."""
        return self.backlogs.unacknowledged() if self._observed_at > since else None

    def look(self, seen: Seen, in_lane: int, now: float) -> bool:
        """Look whether probation is over, or begins; whether that changes what may go."""
        return self.probation.look(self._counters.answers, seen, in_lane, now)

    def reject(self) -> None:
        """A quota on producer IDs rejected the lane's."""
        self.rejected = True

    def drain(self, draining: bool) -> None:
        """Take nothing, until a purge is told of, or is not needed after all."""
        self.draining = draining
        if not draining:
            self.purge = None

    def purging(self, now: float, within: str = "") -> None:
        """The lane is about to be purged, unless it was: its records may be in the log, or get there late."""
        if self.purge is not None:
            return
        self.purge = now, within
        self.counts.suspects = self.backlogs.waiting() - self._unknown_outcomes.keys()
        self._unknown_outcomes.update(dict.fromkeys(self.counts.suspects))
        self._silent, self.old = {}, frozenset()
        self.counts.unsent.purging(self.counts.batches(now))

    def purged(self, tps: set[TopicPartition], epoch: int | None, now: float) -> None:
        """Records of these partitions were purged, and the lane was in this epoch after that.

        The lane is empty: what it had of others was acknowledged, and they need not wait there for an answer.
        """
        for tp in self.counts.suspects - tps:
            self._unknown_outcomes.pop(tp, None)
        self._unknown_outcomes.update(dict.fromkeys(tps))
        self.gaps.purged(tps, now, epoch)
        self.gaps.end_exclusive()

    def look_at_epochs(self, found: Statistics, fenced: int) -> None:
        """Statistics of it; so many records were refused for its producer ID."""
        requests = sum(broker.produce_requests for broker in found.brokers.values())
        acknowledged = sum(entry.acknowledged for entry in found.partitions.values())
        self.look_at_epoch(found.producer_epoch)
        if self.epochs.only_fenced(requests, acknowledged, fenced):
            self.fail(USED_UP)

    def update(
        self, found: Statistics, rtt: float, broker: Callable[[int], BrokerInfo], refused: set[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Statistics of it; the partitions that were silent and are not now. To be `refused` is an answer."""
        # Statistics that come out of order would show records as waiting that were acknowledged since, and their leader
        # as silent. Backlogs therefore take only those that are not older than the last.
        self.gaps.in_epoch(found.producer_epoch)
        if found.messages:
            self.record_bytes = found.message_bytes / found.messages
        owns, timeout, before = self._delivery.owns_timeout, self._delivery.timeout, frozenset(self._silent)
        if found.at < self._observed_at or not (owns or all(self._over(*row) for row in found.partitions.items())):
            return frozenset()
        self._observed_at = found.at
        if not owns:  # without backlogs, only whether all reports are given away is asked
            return frozenset()
        self.counts.observe(found, self.counts.batches(found.at))
        if self.probation.open:
            self.probation.acknowledged(self.backlogs.has_nothing_of)
        for tp, entry in found.partitions.items():
            self._acknowledged(tp, entry.acknowledged)
        age = NEVER if timeout is None else max(LATE, timeout * _OLD_SHARE)
        self.old = self.backlogs.old(found.at, age)
        silent = self.counts.silent(max(LATE, LATE_TIMES * rtt) + self._delivery.linger, broker).difference(refused)
        self._silent = {tp: self._counters.answers(tp)[0] for tp in silent}
        return before - silent

    def _over(self, tp: TopicPartition, entry: PartitionStatistics) -> bool:
        """Whether librdkafka has nothing of it. What waits for linger is neither queued nor in flight."""
        ended = entry.acknowledged if self._delivery.idempotent else entry.sent
        return not (entry.in_flight or entry.queued) and (tp[1] < 0 or ended >= entry.accepted)

    def _acknowledged(self, tp: TopicPartition, count: int) -> None:
        """An acknowledgement clears a partition of suspicion."""
        if tp in self._unknown_outcomes:
            known = self._unknown_outcomes[tp]
            if known is None:
                self._unknown_outcomes[tp] = count
            elif count > known:
                del self._unknown_outcomes[tp]
                self.gaps.acknowledged(tp)
