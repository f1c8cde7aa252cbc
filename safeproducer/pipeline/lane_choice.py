"""Which fed lane takes the next batch of a partition, and what the batch waits for when none does."""

from __future__ import annotations

from collections.abc import Callable

from safeproducer.delivery import Delivery
from safeproducer.pipeline.accumulator import Accumulator
from safeproducer.pipeline.fed_lane import FedLane
from safeproducer.pipeline.holds import BRIDGING, DRAINING, STALE, Holds
from safeproducer.pipeline.lanes import Lanes
from safeproducer.pipeline.partitions import UNKNOWN
from safeproducer.pipeline.record import ACCEPTED_AT
from safeproducer.pipeline.windows import Windows
from safeproducer.policy.admission import Hold
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.lane_count import needed
from safeproducer.policy.never import NEVER
from safeproducer.policy.window import LEAST

WAITS_FOR_FREE_LANE = Hold(None, HoldReason.LANES_BUSY)
WAITS_FOR_KEY = Hold(None, HoldReason.KEY_ORDER)
_TURN = 0.05
"""Seconds for which a lane is closed to others by one look of a partition that waits for it: several looks long."""


class LaneChoice:
    """The sender's thread calls. `wake(due)` has the lanes made that are wanted."""

    def __init__(
        self, delivery: Delivery, holds: Holds, lanes: Lanes, windows: Windows, wake: Callable[[float], None]
    ) -> None:
        self._delivery = delivery
        self._holds = holds
        self._lanes = lanes
        self._windows = windows
        self._wake = wake
        self._acknowledged: dict[int | None, float] = {}
        """When a broker acknowledged a batch last."""

    def acknowledged(self, node: int | None, moment: float) -> None:
        """This broker acknowledged a batch."""
        self._acknowledged[node] = moment

    def budget(self, accumulator: Accumulator, node: int | None, moment: float) -> int:
        """How many batches of this partition may be unresolved, led by that broker."""
        if not self._delivery.spreads or accumulator.partition < 0:  # one lane has fewer under way than that anyway
            return LEAST
        return self._windows.budget(accumulator.place, node, moment).size

    def lane_for(self, accumulator: Accumulator, node: int | None, moment: float) -> FedLane | None:
        """The fed lane for the next batch; None while all are busy that could take it.

        Where one lane after the other is used, it is the first one that is free: so few are used when few are needed.
        """
        if not self._delivery.spreads or accumulator.partition == UNKNOWN:
            return self._only_lane(accumulator, node, moment)
        busy = {batch.lane for batch in accumulator.unresolved}
        free = (
            lane
            for lane in self._lanes
            if lane.number not in busy
            and self._lanes.ready(lane)
            and not self.is_closed(lane, accumulator, node, moment)
        )
        if not accumulator.bound:
            return next(free, None)
        lanes = list(free)
        bound = [lane for lane in lanes if accumulator.bound.get(lane.number)]
        if bound:
            return min(bound, key=lambda lane: accumulator.bound[lane.number][0][ACCEPTED_AT])
        return lanes[0] if lanes and accumulator.records else None

    def is_closed(self, lane: FedLane, accumulator: Accumulator, node: int | None, moment: float) -> bool:
        """Whether nothing of this partition may go by this lane for now."""
        return self._is_stale(lane, accumulator, moment) or not self._bridges(lane, accumulator, node, moment)

    def wait(self, accumulator: Accumulator, lane: FedLane | None, node: int | None, moment: float) -> float:
        """A batch is ready to go, and no lane may take it; when to look again."""
        lanes = self._lanes
        if lane is not None and lane.quarantined:
            accumulator.why = DRAINING
            return moment + self._holds.PATIENCE
        if any(self._is_stale(other, accumulator, moment) for other in ([lane] if lane is not None else lanes)):
            accumulator.why = STALE
            return moment + self._holds.PATIENCE
        if not all(self._bridges(other, accumulator, node, moment) for other in lanes):
            accumulator.why = BRIDGING
            self._await_turn(accumulator, node, moment)
            if len(lanes) == 1 and not (accumulator.unresolved or accumulator.pinned):
                lanes.one_more()
                self._wake(0.0)
            elif self._delivery.spreads and accumulator.records:
                self._is_limited(accumulator, node, moment)
            return moment + self._holds.PATIENCE
        if not accumulator.records:
            accumulator.why = WAITS_FOR_KEY
            return NEVER
        accumulator.why = WAITS_FOR_FREE_LANE
        growing = self._is_limited(accumulator, node, moment)
        return moment + self._holds.PATIENCE if growing or not all(map(lanes.ready, lanes)) else NEVER

    def _is_limited(self, accumulator: Accumulator, node: int | None, moment: float) -> bool:
        """Say that this partition lacks lanes, and have those made that are wanted now; whether any are."""
        lanes = self._lanes
        of_use = self._of_use(accumulator, moment) if self._delivery.spreads else 0
        lanes.limited(self.budget(accumulator, node, moment), sum(map(lanes.ready, lanes)), of_use)
        if wanted := lanes.wanted > len(lanes):
            self._wake(0.0)
        return wanted

    def _of_use(self, accumulator: Accumulator, moment: float) -> int:
        delivery = self._delivery
        waiting = max(accumulator.waiting, accumulator.bytes * delivery.batch_records // max(1, delivery.batch_bytes))
        return needed(
            len(accumulator.unresolved),
            waiting,
            moment - accumulator.oldest,
            accumulator.ack_time or self._holds.ack_time,
            delivery.linger,
            delivery.batch_records,
        )

    def foresee(self, accumulator: Accumulator, node: int | None, moment: float) -> None:
        """Records gather until the fed lanes are ready: have as many made as they will need."""
        if self._delivery.spreads and accumulator.partition >= 0 and len(self._lanes):
            self._is_limited(accumulator, node, moment)

    def _only_lane(self, accumulator: Accumulator, node: int | None, moment: float) -> FedLane | None:
        """Where one lane takes all: another one only while a batch is alone in it, and not for what is bound to it."""
        if len(self._lanes) < 2:
            return self._lanes.first
        used = accumulator.unresolved[0].lane if accumulator.unresolved else accumulator.lane
        lanes = {lane.number: lane for lane in self._lanes}
        if used in lanes and (accumulator.unresolved or accumulator.doubtful):
            return lanes[used]
        free = (
            lane for lane in self._lanes if self._lanes.ready(lane) and self._bridges(lane, accumulator, node, moment)
        )
        return next(free, self._lanes.first)

    def _is_stale(self, lane: FedLane, accumulator: Accumulator, moment: float) -> bool:
        return self._holds.stale.concerns(lane.number, accumulator.place, moment)

    def _bridges(self, lane: FedLane, accumulator: Accumulator, node: int | None, moment: float) -> bool:
        """Whether a gap in sequence numbers is no obstacle, see FedLane.takes().

        A leader that has acknowledged nothing since the purge gets one such batch, which says whether it is well: more
        would close as many lanes to everybody else.
        """
        if not lane.gaps:
            return True
        place = accumulator.place
        return lane.takes(place, moment) and (place not in lane.gaps or self._is_well(node, lane.purged_at))

    def _is_well(self, node: int | None, since: float) -> bool:
        """Whether a broker has acknowledged a batch since then, or none is under way that will tell."""
        return self._acknowledged.get(node, -NEVER) > since or not any(
            batch.bridges and batch.broker == node for lane in self._lanes for batch in lane.batches.copy()
        )

    def _await_turn(self, accumulator: Accumulator, node: int | None, moment: float) -> None:
        """Have a lane emptied for a batch that must be alone in it."""
        place = accumulator.place
        lanes = [
            lane
            for lane in self._lanes
            if place in lane.gaps and (not accumulator.bound or lane.number in accumulator.bound)
        ]
        if lanes and not accumulator.unresolved:
            lane = min(lanes, key=lambda lane: lane.due)
            if self._is_well(node, lane.purged_at):
                lane.awaited_until = moment + _TURN
