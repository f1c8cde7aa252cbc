"""When a lane that nobody needs is given up (KIP-936): so seldom that making it again takes few producer IDs.

A lane that is re-created has a new producer ID, which the leaders it writes to remember for a day. A load that comes in
bursts must keep its lanes between them. Lanes are given up one at a time, with a pause between two that depends on how
many IDs an hour may take: as only a lane that was given up is re-created, the pause bounds how many are, whatever the
load does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from safeproducer.policy.never import NEVER

HOUR = 3600.0
LONGEST_IDLE = 60.0
"""Seconds after which a lane that was not needed is given up, if that is all there is to it."""
SHARE = 1 / 4
"""Share of an hour's producer IDs for lanes that are re-created."""


@dataclass(slots=True)
class IdleLanes:
    """The idle lanes of one producer. It is not thread-safe: the sender calls it. Times are seconds of its clock.

    - `fixed`: safeproducer.lanes when it is a number; None for `auto`.
    - `rate`: producer IDs an hour; None where lanes take none, because they are not idempotent.
    """

    fixed: int | None
    rate: float | None
    _given_up_at: float = field(default=-NEVER)

    @property
    def pause(self) -> float:
        """Between two lanes that are given up."""
        return 0.0 if self.rate is None else HOUR / (SHARE * self.rate)

    def spare(self, lanes: int, used_at: float, wrote: bool, now: float) -> bool:
        """Whether the last of `lanes`, not used since `used_at`, should be given up.

        `wrote`: whether its ID has been used. One that was not costs nothing when it is re-created.
        """
        if lanes <= (self.fixed or 1) or now - used_at <= LONGEST_IDLE:
            return False
        return not wrote or now - max(used_at, self._given_up_at) > self.pause

    def gave_up(self, now: float) -> None:
        """One was."""
        self._given_up_at = now
