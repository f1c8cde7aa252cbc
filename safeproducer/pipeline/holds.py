"""Why partitions are held back: what is known of brokers, throttle times and acknowledgements, put together."""

from __future__ import annotations

from safeproducer.delivery import Delivery
from safeproducer.pipeline.cluster_view import ClusterView
from safeproducer.pipeline.outdated_leaders import DIRECT
from safeproducer.pipeline.partition_buffer import PartitionBuffer
from safeproducer.pipeline.round_trip import RoundTrip
from safeproducer.policy.admission import Hold
from safeproducer.policy.backlog import Backlogs
from safeproducer.policy.hold_reason import HoldReason

HELD = Hold(None, HoldReason.MODE_HELD)
SLOW_START = Hold(None, HoldReason.FIRST_ACKNOWLEDGEMENT)
LONG_ROUND_TRIP = Hold(None, HoldReason.LONG_ROUND_TRIP)
QUOTA = Hold(None, HoldReason.PRODUCER_ID_QUOTA)
PINNED = Hold(None, HoldReason.UNKNOWN_OUTCOME)
OUTDATED = Hold(None, HoldReason.OUTDATED_METADATA)
AFTER_GAP = Hold(None, HoldReason.SEQUENCE_GAP)
PACED = Hold(None, HoldReason.PREPARING_LANE)
DRAINING = Hold(None, HoldReason.EXPIRY)
LATE = 1.5
"""Seconds after which the leader of an unanswered batch is in doubt."""
_LATE_THREADS = 0.05
"""A thread that was on its direct path when the hold began has given its record away by then."""
_FIRST_PART = 0.1
_LONGEST_PACE = 10.0
"""Seconds after which a lane that is still not ready is not waited for any more."""


class Holds:
    """Changed by the threads that serve, read by those that produce; each change is one assignment.

    `quota_rejected`: a quota on producer IDs refused the direct lane's: from then on the other lanes' are used alone.
    A long round trip is acted on once the batch lane is `lanes_ready`. `slow_start_full`: more was accepted than may
    go before the first acknowledgement. `pacing`: round trips are known to be long and the batch lane
    is not ready: a batch of each partition goes directly, the next one when all that went is answered. `draining`: the
    direct lane is about to be purged. `gaps`: partitions whose sequence numbers that may have broken; as in
    BatchLane.takes(), no others use the lane until each has had an acknowledgement, or a new epoch has begun, and one
    at a time. `stalled`: partitions whose acknowledgements stopped. `record_bytes`: what a record of the direct lane
    takes, on average.
    """

    PATIENCE = 0.01
    """How soon to look again when nothing tells of the change that is waited for."""

    def __init__(self, delivery: Delivery, cluster: ClusterView, round_trip: RoundTrip) -> None:
        self.cluster = cluster
        self.partitions = cluster.partitions
        self.round_trip = round_trip
        self.lanes_ready = False
        self.record_bytes = 0.0
        self.slow_start = delivery.mode == "auto" and delivery.holds_back
        self.slow_start_full = False
        self.pacing = False
        self._unready_since: float | None = None
        self._opened_at = 0.0
        self._room: dict[tuple[str, int], tuple[int, int]] | None = None
        """While pacing: (records, bytes) that may still go of each partition, a batch if it is not there; None while
        nothing may."""
        self.quota_rejected = False
        self.draining = False
        self.gaps: set[tuple[str, int]] = set()
        self._gap_epoch: int | None = None
        self._exclusive_partition: tuple[str, int] | None = None
        self.stalled: frozenset[tuple[str, int]] = frozenset()
        self.backlogs = Backlogs()
        self._direct_empty_at = 0.0
        self._always = delivery.mode == "held"
        self._delivery = delivery
        self._unknown_outcomes: dict[tuple[str, int], int | None] = {}
        self._sent = 0
        self._needed: int | None = None
        self._started: set[tuple[str, int]] = set()
        self._slow_start_records = delivery.batch_records
        self._slow_start_bytes = delivery.batch_bytes

    # --- questions ---------------------------------------------------------------------------------------------------

    def any(self, now: float) -> bool:
        """Whether there is a reason to hold anything back."""
        return bool(
            self._always
            or self.quota_rejected
            or (self.round_trip.long and self.lanes_ready)
            or self.slow_start
            or self.pacing
            or self.draining
            or self.gaps
            or self.stalled
            or self.cluster.outdated.concern(DIRECT, now)
            or self.cluster.any_throttled(now)
        )

    def reason(self, buffer: PartitionBuffer, now: float) -> Hold | None:
        """Why this partition is held back; None when its records may go directly."""
        tp = buffer.tp
        if tp in self.stalled:
            return Hold(None, HoldReason.LEADER_SILENT, self.partitions.leader(*tp))
        leader = self.cluster.broker(tp, now)
        if leader.throttled_until is not None:
            return Hold(leader.throttled_until, HoldReason.THROTTLED, leader.node)
        if leader.probing:
            return Hold(None, HoldReason.PROBING, leader.node)
        if (always := self._for_good(buffer)) is not None:
            return always
        if self.round_trip.long and self.lanes_ready and tp not in self._unknown_outcomes and not self.draining:
            return LONG_ROUND_TRIP
        return self._closed(tp, now)

    def _closed(self, tp: tuple[str, int], now: float) -> Hold | None:
        """Why the direct lane takes nothing of this partition for now."""
        if self.draining:
            return DRAINING
        if self.gaps and tp != self._exclusive_partition:
            return AFTER_GAP
        if self.cluster.outdated.concerns(DIRECT, tp, now):
            return OUTDATED
        if self.pacing and not self._has_room(tp):
            return PACED
        return (
            SLOW_START
            if self.slow_start_full or (self.slow_start and self._closed_to_others() and tp not in self._started)
            else None
        )

    def _for_good(self, buffer: PartitionBuffer) -> Hold | None:
        """Why this partition is held back whatever the brokers do."""
        if self._always:
            return HELD
        if self.quota_rejected:
            return QUOTA
        return PINNED if buffer.pinned else None

    def blocks(self, buffer: PartitionBuffer, now: float) -> bool:
        """Whether this partition waits for something that may take long: its broker's throttle time, or its return."""
        tp = buffer.tp
        return (
            tp in self.stalled
            or self.cluster.broker(tp, now).throttled_until is not None
            or bool(buffer.unresolved and buffer.unresolved[0].at + LATE < now)
        )

    def serves_others(self, node: int | None, now: float) -> bool:
        """Whether a broker other than `node` takes records."""
        return self.cluster.serves_others(node, {self.partitions.leader(*tp) for tp in self.stalled}, now)

    def wants_batch_lane(self, buffer: PartitionBuffer, now: float) -> bool:
        """Whether what waits should leave as counted batches.

        Not while a record of this partition that the direct lane had is of unknown outcome: there its late copy is
        fenced by the new epoch, and on another lane it would appear behind its successors.
        """
        tp = buffer.tp
        if tp in self._unknown_outcomes:
            return False
        if self.quota_rejected or (self.round_trip.long and self.lanes_ready) or self.gaps:
            return True
        if self.cluster.outdated.concerns(DIRECT, tp, now):
            return True  # the batch lane knows better
        leader = self.cluster.broker(tp, now)
        return leader.probing or leader.throttled_until is not None

    def drained(self, buffer: PartitionBuffer, direct_records: int, now: float) -> bool:
        """Whether the direct lane has nothing of this partition any more; it has so many records and events.

        Seen empty once is enough: what is in it later is of others, or an event that nobody has asked for yet.
        """
        if not direct_records:
            self._direct_empty_at = now
        since = buffer.held_since + _LATE_THREADS
        return self._direct_empty_at > since or self.backlogs.drained(buffer.tp, since)

    def exclusive(self, buffer: PartitionBuffer, direct_records: int) -> bool:
        """Whether it is the turn of this partition to use the direct lane, which has so many records and events."""
        tp = buffer.tp
        if tp in self.gaps and not direct_records:
            self._exclusive_partition = tp
        return not self.gaps or tp == self._exclusive_partition

    def exceeds_slow_start(self, tp: tuple[str, int], size: int) -> bool:
        """Whether a record more would be too much for brokers that have not acknowledged anything yet.

        About one batch may go to find out how they are: an answer may announce a throttle time, and what was sent
        behind that batch would wait unread until it times out. Its first part says which partitions it is made of, so
        that no batch of another one is cut in two by the end of it.
        """
        if self.pacing:
            return not self._takes_room(tp, size)
        if not self.slow_start or self.slow_start_full:
            return self.slow_start_full
        first = not self._sent  # goes whatever its size: nothing else would end the wait
        if tp not in self._started:
            if self._closed_to_others():
                return True
            self._started.add(tp)
        self._sent += 1
        self._slow_start_records -= 1
        self._slow_start_bytes -= size
        self.slow_start_full = self._slow_start_records < 0 or self._slow_start_bytes < 0
        return self.slow_start_full and not first

    def refused(self, size: int) -> None:
        """A record was not sent after all, so no answer to it will end the wait."""
        if self.slow_start:
            self._sent -= 1
            self._slow_start_records += 1
            self._slow_start_bytes += size
            self.slow_start_full = self._slow_start_records < 0 or self._slow_start_bytes < 0

    def _has_room(self, tp: tuple[str, int]) -> bool:
        room = self._room
        return room is not None and room.get(tp, (1, 1)) > (0, 0)

    def _takes_room(self, tp: tuple[str, int], size: int) -> bool:
        """Whether a record more may go directly, as the last one of its batch perhaps."""
        room = self._room
        if room is None:
            return False
        records, left = room.get(tp, (self._delivery.batch_records, self._delivery.batch_bytes))
        fits = records > 0 and (left >= size or records == self._delivery.batch_records)
        room[tp] = (records - 1, left - size) if fits else (0, 0)
        return fits

    def _closed_to_others(self) -> bool:
        share = 1 - _FIRST_PART
        return self._sent > 0 and (
            self._slow_start_records < share * self._delivery.batch_records
            or self._slow_start_bytes < share * self._delivery.batch_bytes
        )

    def drain_time(self, timeout: float) -> float:
        """How long before a deadline the direct lane stops taking records, so that healthy ones are out of it."""
        return min(timeout / 4, max(0.25, 3 * self.round_trip.ack_time))

    # --- news --------------------------------------------------------------------------------------------------------

    def ends_slow_start(self, resolved: int, in_lane: int, measuring: bool) -> bool:
        """Whether what was sent by the time of the first report has been answered: so many records are `resolved`.

        The first answer alone says little: that of a small batch comes before a large one's, and without its throttle.
        """
        if self._needed is None and resolved:
            self._needed = self._sent
        if measuring:
            return False  # or all that comes would go directly, just before it turns out that the round trips are long
        if self._needed is not None and (resolved >= self._needed or not in_lane):
            self.slow_start = self.slow_start_full = False
        return not self.slow_start

    def paces(self, in_lane: int, now: float) -> bool:
        """Note that the direct lane has so many records and events; whether that changes what may go directly.

        With a long round trip it sends one batch of a partition at a time, and what is more in it than that would keep
        the partition from leaving it when the batch lane is ready.
        """
        before, self.pacing = self.pacing, self._is_to_pace(now)
        if self.pacing and in_lane:
            if not before or self._opened_at + self._delivery.linger <= now:
                self._room = None  # what comes now goes with the next batch
        elif self.pacing:
            before = before and self._room == {}
            self._room, self._opened_at = {}, now
        return self.pacing is not before

    def _is_to_pace(self, now: float) -> bool:
        if not self.round_trip.long or self.lanes_ready or self._always or not self._delivery.holds_back:
            self._unready_since = None
            return False
        if self._unready_since is None:
            self._unready_since = now
        return not self.slow_start and now <= self._unready_since + _LONGEST_PACE

    def expired(self) -> None:
        """The direct lane is purged: what it had of these partitions may be in the log, or get there late."""
        self._unknown_outcomes.update(dict.fromkeys(self.backlogs.waiting()))
        self.stalled = frozenset()

    def purged(self, tps: set[tuple[str, int]], epoch: int | None) -> None:
        """Records of these partitions were purged from the direct lane, which was in this epoch after that."""
        self._unknown_outcomes.update(dict.fromkeys(tps))
        self.gaps |= tps
        self._gap_epoch = epoch
        self._exclusive_partition = None

    def in_epoch(self, epoch: int | None) -> None:
        """The direct lane's epoch: a new one has new sequence numbers, without gaps."""
        if self.gaps and epoch is not None and self._gap_epoch is not None and epoch > self._gap_epoch:
            self.gaps.clear()

    def acknowledged(self, tp: tuple[str, int], count: int) -> None:
        """What the direct lane's statistics say of a partition: an acknowledgement clears it of suspicion."""
        if tp in self._unknown_outcomes:
            known = self._unknown_outcomes[tp]
            if known is None:
                self._unknown_outcomes[tp] = count
            elif count > known:
                del self._unknown_outcomes[tp]
                self.gaps.discard(tp)
