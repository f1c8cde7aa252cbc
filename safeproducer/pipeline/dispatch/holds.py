"""Why partitions are held back: the order of the reasons."""

from __future__ import annotations

from safeproducer.pipeline.buffer.partition_buffer import PartitionBuffer
from safeproducer.pipeline.cluster.cluster_view import ClusterView
from safeproducer.pipeline.cluster.outdated_leaders import DIRECT
from safeproducer.pipeline.cluster.round_trip import RoundTrip
from safeproducer.pipeline.lanes.direct_lane import DirectLane
from safeproducer.pipeline.process.record import ACCEPTED_AT
from safeproducer.policy import decision
from safeproducer.policy.ack_time import LATE, LATE_TIMES
from safeproducer.policy.decision import DirectFacts, Hold, PartitionFacts
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.never import NEVER
from safeproducer.producer_ids.gate import Gate

HELD = Hold(None, HoldReason.MODE_HELD)
SLOW_START = Hold(None, HoldReason.FIRST_ACKNOWLEDGEMENT)
LONG_ROUND_TRIP = Hold(None, HoldReason.LONG_ROUND_TRIP)
QUOTA = Hold(None, HoldReason.PRODUCER_ID_QUOTA)
PINNED = Hold(None, HoldReason.UNKNOWN_OUTCOME)
OUTDATED = Hold(None, HoldReason.OUTDATED_METADATA)
AFTER_GAP = Hold(None, HoldReason.SEQUENCE_GAP)
PACED = Hold(None, HoldReason.PREPARING_LANE)
DRAINING = Hold(None, HoldReason.EXPIRY)
TURN = Hold(None, HoldReason.TURN)
_NEVER_HELD = PartitionFacts(stays=False)


class Holds:
    """Any thread asks. `direct`: None with safeproducer.mode=held."""

    PATIENCE = 0.01
    """How soon to look again when nothing tells of the change that is waited for."""

    def __init__(self, cluster: ClusterView, round_trip: RoundTrip, direct: DirectLane | None, gate: Gate) -> None:
        self.gate = gate
        self.cluster = cluster
        self.partitions = cluster.partitions
        self.round_trip = round_trip
        self.direct = direct
        self.lane_ready = False

    def lane_is_ready(self) -> None:
        self.lane_ready = True

    @property
    def prefers_batches(self) -> bool:
        """Whether the round trip is so long that buffering pays, and the first batch lane has its producer ID."""
        return self.round_trip.long and self.lane_ready

    @property
    def slow_start(self) -> bool:
        """Whether nothing has been acknowledged yet."""
        return self.direct is not None and self.direct.slow_start.open

    @property
    def starting(self) -> bool:
        """Whether `start()` has to look."""
        direct = self.direct
        return direct is not None and (direct.starting or (self.round_trip.long and not self.lane_ready))

    def start(self, resolved: int, in_lane: int, measuring: bool, lane_ready: bool, now: float) -> bool:
        """Look whether slow start or paced start is over, or begins; whether that changes what may go directly."""
        self.lane_ready = self.lane_ready or lane_ready
        wants_lane, direct = self.round_trip.long and not self.lane_ready, self.direct
        if direct is None:
            return False
        leaders = {self.partitions.leader(*tp) for tp in direct.stalled}
        silent = direct.silent and self.cluster.serves_others(None, leaders, now)
        return direct.start(resolved, in_lane, measuring, silent, wants_lane, now)

    def any(self, now: float) -> bool:
        """Whether there is a reason to hold anything back."""
        if self.gate.hold is not None or not self.cluster.holds_back:
            return self.gate.hold is not None
        return (
            self.direct is None
            or self.direct.limited
            or self.prefers_batches
            or self.cluster.outdated.concern(DIRECT, now)
            or self.cluster.throttle.probes(None, now)
            or bool(self.cluster.throttle.held(now))
        )

    def reason(self, buffer: PartitionBuffer, now: float) -> Hold | None:
        """Why this partition is held back; None when its records may go directly."""
        tp, direct = buffer.tp, self.direct
        if self.gate.hold is not None or not self.cluster.holds_back:
            return self.gate.hold
        if direct is not None and tp in direct.stalled:
            return Hold(None, HoldReason.LEADER_SILENT, self.partitions.leader(*tp))
        leader = self.cluster.broker(tp, now)
        if leader.throttled_until is not None:
            return Hold(leader.throttled_until, HoldReason.THROTTLED, leader.node)
        if leader.probing:
            return Hold(None, HoldReason.PROBING, leader.node)
        if direct is None:
            return HELD
        return self._for_good(direct, buffer) or self._closed(direct, buffer.tp, now)

    def facts(self, buffer: PartitionBuffer, now: float) -> PartitionFacts:
        """All that says whether records of this partition may go directly."""
        if (limit := self.gate.hold) is not None:
            return PartitionFacts(limit.until, self.gate.ask_at)
        if not self.cluster.holds_back:
            return _NEVER_HELD
        tp, direct, leader = buffer.tp, self.direct, self.cluster.broker(buffer.tp, now)
        if direct is None:
            return PartitionFacts(None, NEVER, False, False, False, *leader, only_batches=True)
        of_lane = DirectFacts(
            tp in direct.stalled,
            direct.rejected,
            direct.keeps(tp),
            buffer.pinned,
            self.prefers_batches,
            self.waited_for_id(buffer),
            direct.draining,
            bool(direct.gaps),
            direct.gaps.closed_to(tp),
            self.cluster.outdated.concerns(DIRECT, tp, now),
            direct.paced_start.closes(tp),
            direct.slow_start.closes(tp),
        )
        return PartitionFacts(
            None, NEVER, False, False, False, *leader, only_batches=False, stays=False, direct=of_lane
        )

    def why(self, buffer: PartitionBuffer, now: float) -> Hold | None:
        """Why this partition is held back; None when its records may go directly."""
        return decision.hold(self.facts(buffer, now), decision.DIRECT, now)

    def _for_good(self, direct: DirectLane, buffer: PartitionBuffer) -> Hold | None:
        """Why this partition is held back whatever the brokers do."""
        if direct.rejected:
            return QUOTA
        if buffer.pinned:
            return PINNED
        stays = direct.keeps(buffer.tp) or direct.draining or self.waited_for_id(buffer)
        return LONG_ROUND_TRIP if self.prefers_batches and not stays else None

    def waited_for_id(self, buffer: PartitionBuffer) -> bool:
        """Whether its next record was there before the producer's permit, and leaves by the lane that this is for.

        By a batch lane it would cost a second producer ID.
        """
        opened_at = self.gate.opened_at
        if not opened_at or not buffer.records:
            return False
        return buffer.records[0][ACCEPTED_AT] < opened_at

    def _closed(self, direct: DirectLane, tp: tuple[str, int], now: float) -> Hold | None:
        """Why the direct lane takes nothing of this partition for now."""
        if direct.draining:
            return DRAINING
        if direct.gaps.closed_to(tp):
            return AFTER_GAP
        if self.cluster.outdated.concerns(DIRECT, tp, now):
            return OUTDATED
        if direct.paced_start.closes(tp):
            return PACED
        return SLOW_START if direct.slow_start.closes(tp) else None

    def is_silent(self, buffer: PartitionBuffer, now: float) -> bool:
        """Whether the leader owes this partition an acknowledgement, of either lane, for longer than usual."""
        direct, patience = self.direct, max(LATE, LATE_TIMES * (buffer.ack.seconds or 0.0))
        stalled = direct is not None and buffer.tp in direct.stalled
        return stalled or any(batch.at + patience < now for batch in buffer.unresolved[:1])

    def told(self, hold: Hold, buffer: PartitionBuffer, now: float) -> Hold:
        """What to tell of a partition that waits for `hold`: a broker that owes an answer is what to look at."""
        if not hold.reason.waits_for_answer or not self.is_silent(buffer, now):
            return hold
        return Hold(None, HoldReason.LEADER_SILENT, self.partitions.leader(*buffer.tp))

    def blocks(self, buffer: PartitionBuffer, now: float) -> bool:
        """Whether this partition waits for something that may take long: its broker's throttle time, or its return."""
        return self.is_silent(buffer, now) or self.cluster.broker(buffer.tp, now).throttled_until is not None

    def wants_batch_lane(self, buffer: PartitionBuffer, now: float) -> bool:
        """Whether what waits should leave as counted batches."""
        tp, direct = buffer.tp, self.direct
        if direct is None:
            return True
        if direct.keeps(tp):
            return False
        if direct.rejected or direct.gaps or (self.prefers_batches and not self.waited_for_id(buffer)):
            return True
        if self.cluster.outdated.concerns(DIRECT, tp, now):
            return True  # the batch lane knows better
        leader = self.cluster.broker(tp, now)
        return leader.probing or leader.throttled_until is not None
