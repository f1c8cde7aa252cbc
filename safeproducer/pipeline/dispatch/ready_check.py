"""The facts for the sender's decision about a partition, gathered once for each look."""

from __future__ import annotations

from dataclasses import dataclass

from safeproducer.pipeline.buffer.partition_buffer import PartitionBuffer
from safeproducer.pipeline.dispatch.hold_facts import HoldFacts
from safeproducer.pipeline.dispatch.lane_choice import LaneChoice
from safeproducer.pipeline.dispatch.placement import Placement
from safeproducer.pipeline.dispatch.quota_retry import QuotaRetry, is_late
from safeproducer.pipeline.dispatch.record_buffer import RecordBuffer
from safeproducer.pipeline.lanes.batch_lane import BatchLane
from safeproducer.pipeline.lanes.direct_lane import DirectLane
from safeproducer.pipeline.lanes.lane_pool import LanePool
from safeproducer.pipeline.schedule import Schedule
from safeproducer.policy.decision import BATCH, CHANGE, BatchFacts, LaneFacts, PartitionFacts, Wish, depth, hold, path
from safeproducer.policy.types import NEVER, UNPLACED
from safeproducer.settings.delivery import SendConfig

_EMPTIES_WITHIN = 0.25  # seconds for which a failed direct lane is awaited before a batch lane takes a producer ID
_LONGEST_WAIT = 1.0  # seconds that a batch may wait in librdkafka: at its deadline the outcome of one is unknown


@dataclass(eq=False)
class ReadyCheck:
    """How the sender looks at a partition: what comes first in policy.decision.RULES is asked first, and what cannot
    matter any more is not asked. The base of Dispatcher: both share these parts."""

    _delivery: SendConfig
    _holds: HoldFacts
    lanes: LanePool
    _placement: Placement
    record_buffer: RecordBuffer
    schedule: Schedule
    _choice: LaneChoice
    quota_retry: QuotaRetry

    def gather(self, buffer: PartitionBuffer, now: float) -> tuple[PartitionFacts, BatchLane | None]:
        """Look at a partition with records that wait; also find the batch lane that would take its next batch."""
        if (facts := self._of_every_path(buffer, now)) is not None:
            return facts, None
        holds = self._holds
        if holds.direct is None or buffer.unresolved or buffer.bound or buffer.pinned:
            return self._of_lane(PartitionFacts(*holds.cluster.leader_state(buffer.tp, now)), buffer, now)
        facts = self._of_direct(holds.direct, buffer, now)
        if (way := path(facts)) == BATCH:
            return self._of_lane(PartitionFacts(*facts[:3]), buffer, now)
        return (facts if way == CHANGE else self._with_batch(facts, None, buffer, now)), None

    def _of_every_path(self, buffer: PartitionBuffer, now: float) -> PartitionFacts | None:
        """Facts that close every path; None when there are none."""
        gate, rejections, placement = self._holds.gate, self.quota_retry.rejections, self._placement
        if gate.hold is not None or self._holds.waits_apart(buffer.tp, now):
            return self._holds.facts(buffer, now)
        if (rejected := rejections.tps.get(buffer.tp)) is not None:
            return PartitionFacts(rejected=not (late := is_late(rejected)), lane=LaneFacts(draining=late))
        if buffer.partition == UNPLACED and placement.cluster.outdated.differ(buffer.topic, now):
            return PartitionFacts(unknown=True)
        wishes = placement.in_front(buffer, now)
        return None if wishes is None else PartitionFacts(unknown=True, wishes=wishes)

    def _of_direct(self, direct: DirectLane, buffer: PartitionBuffer, now: float) -> PartitionFacts:
        facts = self._holds.facts(buffer, now)
        if facts.node is None and facts.throttled_until is not None and not self._holds.partitions.known(buffer.topic):
            facts = facts._replace(wishes=(Wish.ASK,))  # or it waits for whichever broker throttles, as if that led it
        way, native = path(facts), self.record_buffer.direct_native
        if way == CHANGE and self.record_buffer.has_left_direct(buffer, now):
            if direct.failure is None or (len(native) and now > direct.failure.at + _EMPTIES_WITHIN):
                facts = facts._replace(wishes=(*facts.wishes, Wish.LANE))
            facts = facts._replace(lane=facts.lane._replace(emptied=True, batch_lane=bool(self.lanes.living)))
        elif way != CHANGE and direct.gaps:
            closed = not direct.gaps.lets_in(buffer.tp, not len(native), now)
            facts = facts._replace(lane=facts.lane._replace(gap=closed))
        return facts

    def _of_lane(
        self, facts: PartitionFacts, buffer: PartitionBuffer, now: float
    ) -> tuple[PartitionFacts, BatchLane | None]:
        choice = self._choice
        if not self._holds.partitions.known(buffer.topic):
            # A lane that is new asks for its topics; that is no reason as long as the leader throttles anyway.
            return facts._replace(unknown=facts.throttled_until is None, wishes=(Wish.ASK,)), None
        if self._placement.can_place(buffer):
            return facts._replace(wishes=(Wish.PLACE,)), None
        lane = choice.lane_for(buffer, now)
        facts = self._with_batch(facts, lane, buffer, now)
        closed = lane is None or lane.draining or lane.permit.denied or choice.is_closed(lane, buffer, now)
        if closed and hold(facts, BATCH, now) is None:
            facts = facts._replace(lane=self._of_lanes(lane, buffer, now))
        return facts, lane

    def _with_batch(
        self, facts: PartitionFacts, lane: BatchLane | None, buffer: PartitionBuffer, now: float
    ) -> PartitionFacts:
        delivery, unresolved, node = self._delivery, buffer.unresolved, facts.node
        cap = delivery.connection_cap if delivery.spreads and delivery.connection_cap else NEVER
        in_flight, count = self._choice.on_connections(node, cap, now), len(unresolved)
        full = buffer.waiting >= delivery.batch_records or buffer.bytes >= delivery.batch_bytes
        on_lane = [batch for batch in unresolved if batch.lane == lane.number] if lane is not None and count else ()
        alone = not on_lane or buffer.ack.rested(on_lane[0].at)
        batch = BatchFacts(
            in_flight,
            cap,
            count,
            self._choice.budget(buffer, now),
            len(on_lane),
            1 if alone else depth(buffer.ack.seconds, min(_LONGEST_WAIT, delivery.guard_ms / 1000)),
            max([batch.leaves_by for batch in on_lane]) if on_lane else -NEVER,
            full,
            0.0 if full else buffer.oldest + self.schedule.linger(now),
            facts.probing and self._choice.probe_is_out(buffer, node, now),
        )
        return PartitionFacts(*facts[:-1], batch)

    def _of_lanes(self, lane: BatchLane | None, buffer: PartitionBuffer, now: float) -> LaneFacts:
        """Why none takes the next batch; `lane` would, if that were not closed."""
        lanes, choice = self.lanes, self._choice
        wanted = choice.wanted(buffer, now) if buffer.records else 0
        grows = wanted > len(living := lanes.living)
        return LaneFacts(
            draining=lane is not None and lane.draining,
            outdated=any(choice.is_outdated(other, buffer, now) for other in (living if lane is None else [lane])),
            gap=not all(choice.is_exclusive(other, buffer, now) for other in living),
            keys_wait=not buffer.records,
            renewing=lanes.renewing.began and not any(other.ready or other.draining for other in living),
            renews_at=lanes.renewing.due,
            limited=grows and lanes.permits().refused,
            busy=True,
            lanes_come=(grows and not lanes.permits().paused) or not all(other.ready for other in lanes),
            wanted=wanted,
        )
