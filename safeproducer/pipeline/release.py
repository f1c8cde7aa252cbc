"""The end of the native producers of one SafeProducer, once nobody comes to them any more."""

from __future__ import annotations

import time
from typing import Any

from safeproducer.pipeline.lane_pool import LanePool
from safeproducer.pipeline.sender import get_ident

_FAREWELL = 0.5
"""Seconds that close() waits for what a batch lane was purged of, all told by then."""
_SLICE = 0.01


class Release:
    """The native producers that a lane has released, and which threads were inside them then."""

    def __init__(self, lanes: LanePool, native: Any, serving: set[int], closes: bool) -> None:
        self._lanes, self._native, self._serving = lanes, native, serving
        self.closes = closes

    def close(self) -> None:
        """Close them; again after it was interrupted. A batch lane with records reported as unknown is purged of them.

        Not when another thread is inside: the last one that refers to a native producer destroys it.
        """
        lanes = self._lanes
        if lanes.inside:
            lanes.purge()
            deadline = time.monotonic() + _FAREWELL
            while lanes.inside and time.monotonic() < deadline:
                for lane in lanes:
                    lane.wait(_SLICE)
        full = [lane.native for lane in lanes if lane.inside]
        for native in [self._native, *(lane.native for lane in lanes if lane.native is not self._native)]:
            if not (self._serving - {get_ident()} or any(native is other for other in full)):
                native.close()  # with records in it, it would wait for ever; releasing it does not
