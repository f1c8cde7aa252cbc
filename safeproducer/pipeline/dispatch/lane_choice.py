"""Which of several batch lanes takes the next batch of a partition, and how many lanes there should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from safeproducer.pipeline.buffer.in_flight_batch import InFlightBatch
from safeproducer.pipeline.buffer.partition_buffer import PartitionBuffer
from safeproducer.pipeline.cluster.windows import Windows
from safeproducer.pipeline.dispatch.hold_facts import HoldFacts
from safeproducer.pipeline.lanes.batch_lane import BatchLane
from safeproducer.pipeline.lanes.lane_pool import LanePool
from safeproducer.pipeline.record import ACCEPTED_AT
from safeproducer.policy.decision import BATCH, Hold, PartitionFacts, path
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.lanes import needed, wanted
from safeproducer.policy.pacing import LATE
from safeproducer.policy.sequence_gaps import KEPT_OUT
from safeproducer.policy.types import UNPLACED
from safeproducer.policy.window import LEAST
from safeproducer.settings.delivery import SendConfig

_PILED_UP = 3
_PROBES = 5  # batches at a time to a broker that is probed: librdkafka's max.in.flight.requests.per.connection


@dataclass(eq=False)
class LaneChoice:
    """The sender's thread calls. `in_flight`: how many batches each broker has.

    - `wake(due)` has the lanes made that are wanted.
    - `hint(topic, partition)` is called once, when round trips limit a partition and another ordering would cure it.
    """

    _delivery: SendConfig
    _holds: HoldFacts
    _lanes: LanePool
    windows: Windows
    _wake: Callable[[float], None]
    _hint: Callable[[str, int], None] | None
    in_flight: Counter[int | None] = field(default_factory=Counter)

    def handed_over(self, node: int | None) -> None:
        self.in_flight[node] += 1

    def resolved(self, batch: InFlightBatch) -> None:
        """A batch has all its reports; one without records was not taken."""
        if batch.records:
            self.in_flight[batch.broker] -= 1

    def on_connections(self, node: int | None, most: float, now: float) -> int:
        """How many batches of a broker are in requests, where `most` may be."""
        count = self.in_flight[node]
        return sum(1 for _ in islice(self._in_requests(node, now), int(most))) if count >= most else count

    def probe_is_out(self, buffer: PartitionBuffer, node: int | None, now: float) -> bool:
        """Whether a broker that is probed has so much under way that the next batch of this partition were too much.

        Small ones of several partitions may be as much as one batch, or with many partitions each would wait for a
        round trip of each. More of them than librdkafka has in flight would wait unread behind a throttle time.
        """
        if not self.in_flight[node]:
            return False
        delivery, batches = self._delivery, list(islice(self._in_requests(node, now), _PROBES))
        if len(batches) in (0, _PROBES):
            return bool(batches)
        size = sum([batch.bytes for batch in batches]) + buffer.bytes
        count = sum([len(batch.records) for batch in batches]) + buffer.waiting
        return size > delivery.batch_bytes or count > delivery.batch_records

    def _in_requests(self, node: int | None, now: float) -> Iterator[InFlightBatch]:
        """The batches of a broker that are, the newest first: those that are refused may be many.

        One that has no answer for long, or was seen to be refused, waits for another try: it would keep others back.
        """
        late, answers = now - LATE, self._holds.cluster.answers
        for batch in (batch for lane in self._lanes.living for batch in reversed(lane.batches)):
            if batch.broker == node and batch.sent_at > late and not answers(node, batch.sent_at):
                yield batch

    def act_on(self, hold: Hold, facts: PartitionFacts, buffer: PartitionBuffer, now: float) -> None:
        """A partition waits: have done what may end that."""
        reason, lacks, direct = hold.reason, facts.lane, self._holds.direct
        ahead = direct is not None and direct.probation.paced and self._delivery.spreads and len(self._lanes)
        if reason is HoldReason.IN_FLIGHT:
            self._suggest_lanes(buffer)
        elif reason in (HoldReason.LANES_BUSY, HoldReason.LANES_LIMITED):
            self._want(lacks.wanted)
        elif facts.must_batch and reason is HoldReason.SEQUENCE_GAP:
            self._await_turn(buffer, now)
            if len(self._lanes) == 1 and not (buffer.unresolved or buffer.pinned):
                self._want(2)  # the only one is not to be used by others for a while
            elif self._delivery.spreads:
                self._want(lacks.wanted)
        elif ahead and buffer.partition >= 0 and reason is not HoldReason.LINGER and path(facts) != BATCH:
            self._want(self.wanted(buffer, now))  # as many as what gathers meanwhile will need

    def _suggest_lanes(self, buffer: PartitionBuffer) -> None:
        """Tell, once, when batches pile up only because one of a partition is under way at a time."""
        hint, delivery = self._hint, self._delivery
        helps = delivery.idempotent and not delivery.spreads
        if hint is not None and helps and buffer.waiting > _PILED_UP * delivery.batch_records:
            self._hint = None
            hint(*buffer.tp)

    def _want(self, count: int) -> None:
        """Have lanes made now, unless permits are to be waited for."""
        self._lanes.want(count)
        if self._lanes.wanted > len(self._lanes.living) and not self._lanes.permits().paused:
            self._wake(0.0)

    def budget(self, buffer: PartitionBuffer, now: float) -> int:
        """How many batches of this partition may be unresolved."""
        if not self._delivery.spreads or buffer.partition < 0:  # one lane has fewer under way than that anyway
            return LEAST
        return self.windows.budget(buffer.tp, now).size

    def lane_for(self, buffer: PartitionBuffer, now: float) -> BatchLane | None:
        """The batch lane for the next batch: the first that is free, so that few are used; None while all are busy."""
        # With ordering by key, records wait in `bound` for the lane that has earlier ones of their keys: on another
        # lane they could pass those. The lane whose bound records have waited longest goes first, any free one takes
        # new keys.
        if not self._delivery.spreads or buffer.partition == UNPLACED:
            return self._only_lane(buffer, now)
        busy = {batch.lane for batch in buffer.unresolved}
        free = (
            lane
            for lane in self._lanes
            if lane.number not in busy and lane.ready and not self.is_closed(lane, buffer, now)
        )
        if not buffer.bound:
            return next(free, None)
        lanes = list(free)
        bound = [lane for lane in lanes if buffer.bound.get(lane.number)]
        if bound:
            return min(bound, key=lambda lane: buffer.bound[lane.number][0][ACCEPTED_AT])
        return lanes[0] if lanes and buffer.records else None

    def is_closed(self, lane: BatchLane, buffer: PartitionBuffer, now: float) -> bool:
        """Whether nothing of this partition may go by this lane for now."""
        return self.is_outdated(lane, buffer, now) or not self.is_exclusive(lane, buffer, now)

    def wanted(self, buffer: PartitionBuffer, now: float) -> int:
        """How many lanes there should be while this partition lacks one."""
        lanes, delivery, budget = self._lanes, self._delivery, self.budget(buffer, now)
        of_use = self._of_use(buffer, now) if delivery.spreads else 0
        ready = sum(lane.ready for lane in lanes)
        return max(lanes.wanted, wanted(len(lanes.living), ready, budget, delivery.own.lanes, of_use))

    def _of_use(self, buffer: PartitionBuffer, now: float) -> int:
        delivery = self._delivery
        waiting = max(buffer.waiting, buffer.bytes * delivery.batch_records // max(1, delivery.batch_bytes))
        return needed(
            len(buffer.unresolved),
            waiting,
            now - buffer.oldest,
            buffer.ack.seconds or self._holds.round_trip.seconds,
            delivery.linger,
            delivery.batch_records,
        )

    def _only_lane(self, buffer: PartitionBuffer, now: float) -> BatchLane | None:
        """Where one lane takes all: another one only while a batch is alone in it, and not for what is bound to it."""
        # Two lanes have no common order. So a partition with unresolved batches stays on their lane, or waits if that
        # failed; one with an unknown outcome stays there for as long as the lane lives.
        lanes = {lane.number: lane for lane in self._lanes if lane.client.failed is None}
        used = buffer.unresolved[0].lane if buffer.unresolved else buffer.lane
        if used in lanes and (buffer.unresolved or buffer.unknown_outcome):
            return lanes[used]
        if buffer.unresolved:  # in a lane that failed
            return None
        free = (lane for lane in lanes.values() if lane.ready and self.is_exclusive(lane, buffer, now))
        if (found := next(free, None)) is not None or self._lanes.renewing.began:
            return found  # before one that came in place of another has its ID, a batch would wait for half a second
        return next(iter(lanes.values()), None)

    def is_outdated(self, lane: BatchLane, buffer: PartitionBuffer, now: float) -> bool:
        return self._holds.cluster.outdated.concerns(lane.number, buffer.tp, now)

    def is_exclusive(self, lane: BatchLane, buffer: PartitionBuffer, now: float) -> bool:
        """Whether a gap in sequence numbers is no obstacle, see BatchLane.takes()."""
        if not lane.gaps:
            return True
        return lane.takes(buffer.tp, now) and (buffer.tp not in lane.gaps or self._may_be_alone(lane, buffer))

    def _may_be_alone(self, lane: BatchLane, buffer: PartitionBuffer) -> bool:
        """Whether a partition with a gap may close this lane to others; its leader may refuse it for long.

        Once it was acknowledged after the purge, it may. Else in no other lane, and while others have one left.
        """
        others = [other for other in self._lanes.living if other is not lane]
        closed = [other.gaps.exclusive for other in others if other.gaps.exclusive is not None]
        proven = buffer.ack.at > lane.gaps.purged_at
        return proven or not others or (buffer.tp not in closed and len(closed) < len(others))

    def _await_turn(self, buffer: PartitionBuffer, now: float) -> None:
        """Have a lane emptied for a batch that must be alone in it."""
        tp = buffer.tp
        living, bound = self._lanes.living, buffer.bound
        lanes = [lane for lane in living if tp in lane.gaps and (not bound or lane.number in bound)]
        if lanes and not buffer.unresolved:
            lane = min(lanes, key=lambda lane: lane.due)
            if self._may_be_alone(lane, buffer):
                lane.gaps.keep_others_out(now + KEPT_OUT)
