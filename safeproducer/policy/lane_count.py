"""How many lanes: as many as the budget can use while round trips are the limit, fewer again when they idle.

Lanes cost each other: threads, a connection to each broker, a producer ID. So they come when a batch is ready to go and
only the lanes that are busy keep it back, and go when they have not been needed for a while.
"""

from __future__ import annotations

LONGEST_IDLE = 60.0
"""Seconds after which a lane that was not needed is given up."""


def wanted(lanes: int, ready: int, budget: int, fixed: int | None) -> int:
    """How many lanes there should be when a batch is ready to go and waits only for a lane.

    - `lanes`, `ready`: those that exist, and those of them that have their producer ID.
    - `budget`: how many batches of one partition may be unresolved over all lanes; each lane carries one of them.
    - `fixed`: safeproducer.lanes when it is a number; None for `auto`.
    """
    if fixed is not None:
        return fixed
    if ready < lanes:
        return lanes
    return max(lanes, min(budget, 2 * lanes))


def spare(lanes: int, idle_for: float, fixed: int | None) -> bool:
    """Whether the last of `lanes`, not used for `idle_for` seconds, should be given up."""
    return lanes > (fixed or 1) and idle_for > LONGEST_IDLE
