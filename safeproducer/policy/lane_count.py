"""How many lanes: as many as the budget can use while round trips are the limit.

Lanes cost each other: threads, a connection to each broker, a producer ID. They come when a batch is ready to go and
only the lanes that are busy keep it back. They come together, as a lane takes several round trips to get ready: by
doubling, 20 took 4 s at a round trip of 100 ms. `idle_lanes` says when they go.
"""

from __future__ import annotations

from math import ceil

_SHORTEST = 0.001
"""Seconds: no clock and no linger is finer."""


def needed(under_way: int, waiting: int, waited: float, ack_time: float, linger: float, batch: int) -> int:
    """How many batches of a partition are under way at once when none has to wait for a lane.

    `waiting` records have come within `waited` seconds, while `under_way` batches kept them back; a batch holds `batch`
    of them. Times are seconds.
    """
    rate = (waiting - 1) / max(waited, _SHORTEST)
    batches = max(min(rate, 1 / max(linger, _SHORTEST)), rate / batch)
    return min(under_way + waiting, ceil(batches * ack_time))


def wanted(lanes: int, ready: int, budget: int, fixed: int | None, needed: int = 0) -> int:
    """How many lanes there should be when a batch is ready to go and waits only for a lane.

    - `lanes`, `ready`: those that exist, and those of them that have their producer ID.
    - `needed`: how many its partition could make use of. Without that they double when all are ready and busy.
    - `budget`: how many batches of one partition may be unresolved over all lanes; each lane carries one of them.
    - `fixed`: safeproducer.lanes when it is a number; None for `auto`.
    """
    if fixed is not None:
        return fixed
    return max(lanes, min(budget, max(needed, 2 * lanes if ready == lanes else 0)))
