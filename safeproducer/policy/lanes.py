"""How many lanes are wanted, when an idle one is given up, and whether batches became requests.

Lanes cost each other: threads, a connection to each broker, a producer ID. They come when a batch is ready to go and
only the lanes that are busy keep it back. They come together, as a lane takes several round trips to get ready: by
doubling, 20 took 4 s at a round trip of 100 ms. `IdleLanes` says when they go.

A lane that is re-created has a new producer ID, which the leaders it writes to remember for a day. A load that comes in
bursts must keep its lanes between them. Lanes are given up one at a time, with a pause between two that depends on how
many IDs an hour may take: as only a lane that was given up is re-created, the pause bounds how many are, whatever the
load does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from safeproducer.policy.types import NEVER

_SHORTEST = 0.001  # seconds: no clock and no linger is finer
HOUR = 3600.0
LONGEST_IDLE = 60.0  # seconds after which a lane that was not needed is given up, if that is all there is to it
SHARE = 1 / 4  # share of an hour's producer IDs for lanes that are re-created


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
        """Whether to give up the last of `lanes`, idle since `used_at`. Without `wrote` it is re-created for free."""
        if lanes <= (self.fixed or 1) or now - used_at <= LONGEST_IDLE:
            return False
        return not wrote or now - max(used_at, self._given_up_at) > self.pause

    def gave_up(self, now: float) -> None:
        self._given_up_at = now


class RequestCounts:
    """The sender's thread calls. `batches` that were handed over, and `splits`: how many requests more there were.

    `new`: librdkafka has counted nothing before; else its first counts are where this begins.
    """

    def __init__(self, new: bool = True) -> None:
        self.batches = self.splits = self._records = 0
        self._emptied_at = 0.0
        self._seen = (0, 0, 0, 0) if new else None

    def handed_over(self, records: int) -> None:
        self.batches += 1
        self._records += records

    def resolved(self, partitions: int, emptied_at: float | None) -> None:
        """A batch is; librdkafka made one for each of so many partitions of one that named none."""
        more = max(0, partitions - 1)
        self.batches += more
        self._emptied_at = emptied_at or self._emptied_at

    def observe(self, at: float, requests: int, sent: int) -> int:
        """The requests and records that were sent by then, while nothing is under way; how many splits that shows.

        Between two moments at which the lane was empty, each batch is one request; a retry sends its records again,
        which the count of sent records shows. Surplus requests with no record sent twice are therefore split batches.
        """
        if at <= self._emptied_at:  # may be of records, and not yet of their request
            return 0
        seen, self._seen = self._seen, (requests, sent, self.batches, self._records)
        if seen is None:
            return 0
        more_requests, more_sent, more_batches, more_records = (
            now - before for now, before in zip(self._seen, seen, strict=True)
        )
        if more_requests < 0 or more_sent != more_records:  # librdkafka forgot a broker's counts, or sent again
            return 0
        found = max(0, more_requests - more_batches)
        self.splits += found
        return found
