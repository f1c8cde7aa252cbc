"""Makes batch lanes, and tries again later when one cannot be made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from safeproducer.kafka.lane_client import LaneClient
from safeproducer.kafka.native import NativeProducer
from safeproducer.pipeline.buffer.in_flight_batch import BatchSinks
from safeproducer.pipeline.lanes.batch_lane import BatchLane
from safeproducer.pipeline.lanes.lane_log import LaneLog
from safeproducer.producer_ids.lane_permits import GRANTED, LanePermit, LanePermits
from safeproducer.runtime import clock

MakeNative = Callable[[LaneLog | None], NativeProducer]
"""Makes the native producer of a batch lane; with a LaneLog that does not tell it is one more, without statistics."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0


@dataclass
class LaneMaker:
    """The sender's thread calls.

    - `make`: None when there never is a batch lane.
    - `spreads`: whether there may be more than one, so that the others take over when one fails for good.
    - `permits()`: of the producer IDs that they take.
    - `not_made(error, seconds)` is called when one cannot be made, and that it is tried again so much later.
    """

    make: MakeNative | None
    spreads: bool
    sinks: BatchSinks
    permits: Callable[[], LanePermits]
    not_made: Callable[[Exception, float], None]
    made: int = 0
    _pause: float = 0.0
    _again_at: float = 0.0

    def try_one(self, log: LaneLog | None, needed: bool) -> BatchLane | None:
        """None if it cannot be made now: files of the configuration may be gone, or files and threads used up.

        None as well if it is not `needed` and would take a producer ID beyond the limit (KIP-936).
        """
        now = clock.monotonic()
        if self.make is None or now < self._again_at or (kind := self.permits().kind(needed)) is None:
            return None
        try:
            native = self.make(log)
        except Exception as error:
            self._pause = min(_LONGEST_PAUSE, 2 * self._pause or _FIRST_PAUSE)
            self._again_at = now + self._pause
            self.not_made(error, self._pause)
            return None
        self._pause = 0.0
        return self.lane_of(native, log, self.permits().of_lane(kind))

    def lane_of(
        self, native: NativeProducer, log: LaneLog | None = None, permit: LanePermit = GRANTED, new: bool = True
    ) -> BatchLane:
        self.made += 1
        return BatchLane(LaneClient(native, self.spreads), self.made - 1, self.sinks, log, permit, new)
