"""How soon another native producer may follow one that failed, and when its producer epochs are used up or given up.

Each takes a producer ID (KIP-936). An error that comes back at once must not take one after the other: a bucket of a
quarter of the permit rate bounds how many there are in the long run, and a pause that doubles how many in a row. A
topic that causes several in a row waits alone for that, as long as the bucket needs for another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from safeproducer.policy.types import NEVER

HOUR = 3600.0
SHARE = 1 / 4  # share of an hour's producer IDs
SHORTEST, LONGEST = 0.1, 5.0  # seconds between two; it doubles until a record of the topic is acknowledged
ALONE = 3  # so many in a row that one topic caused; from then on it waits, and no other
LATEST = 32_000
"""A producer ID has 32 768 epochs. librdkafka goes on at 0 behind the last one, and brokers refuse each batch then."""
FENCED = 3  # batches in a row that are answered by an error of the producer ID are no accident


class Renewals:
    """The sender's thread calls. Times are seconds of its clock; `rate`: producer IDs an hour."""

    def __init__(self, rate: float) -> None:
        self._most = max(1.0, SHARE * rate)
        self._each = HOUR / (SHARE * rate)
        self._used_until = self._made_at = -NEVER
        self._rows: dict[str | None, tuple[int, int]] = {}
        """By topic, how many it caused in a row, and how many of its records were delivered by then."""

    def due(self, now: float, delivered: int, topic: str | None = None) -> float:
        """When the next one may be made, `now` at the earliest.

        `topic` caused it, None if that is not known; so many records were delivered, of that topic alone.
        """
        count = self._in_a_row(delivered, topic)
        pause = SHORTEST if topic is not None and count >= ALONE else min(LONGEST, _doubled(count))
        return max(now, self._made_at + pause, self._used_until - (self._most - 1) * self._each)

    def made(self, now: float, delivered: int, topic: str | None = None) -> float:
        """Another one was made; until when its topic waits alone, `now` if it does not."""
        count = self._in_a_row(delivered, topic) + 1
        self._rows[topic] = count, delivered
        self._used_until = max(self._used_until, now) + self._each
        self._made_at = now
        return now + min(max(LONGEST, self._each), _doubled(count)) if topic is not None and count >= ALONE else now

    def _in_a_row(self, delivered: int, topic: str | None) -> int:
        count, before = self._rows.get(topic, (0, delivered))
        return count if delivered == before else 0


def _doubled(count: int) -> float:
    return float(SHORTEST * 2 ** min(max(0, count - 1), 40))


@dataclass(slots=True)
class Epochs:
    """Epochs of one native producer. The sender's thread calls."""

    _first: int | None = None
    _last: int = -1
    _fenced: int = 0
    _before: tuple[int, int, int] = (0, 0, 0)

    def used_up(self, epoch: int | None) -> bool:
        """Whether it needs another producer ID, as statistics show this epoch; one that began so late has no other."""
        if epoch is None:
            return False
        self._first = epoch if self._first is None else self._first
        before, self._last = self._last, epoch
        return epoch < before or epoch >= max(LATEST, self._first + 1)

    def only_fenced(self, requests: int, acknowledged: int, refused: int) -> bool:
        """Whether a lane whose batches are not known needs another producer ID.

        Records were `refused` for it since the last counts, none was acknowledged, and FENCED requests were sent.
        """
        sent, before, fenced = self._before
        only = acknowledged == before and refused > fenced
        if only and requests < sent + FENCED:
            return False  # too few to tell
        self._before = requests, acknowledged, refused
        return only

    def fenced(self, refused: bool) -> bool:
        """Whether it needs another producer ID, as one more batch was refused for this one, or was not."""
        self._fenced = self._fenced + 1 if refused else 0
        return self._fenced >= FENCED


class Identity(NamedTuple):
    """A producer ID and its epoch."""

    producer_id: int
    epoch: int


@dataclass(slots=True)
class Session:
    """An epoch of a transactional producer. It is not used again once a request of it has an unknown end.

    A broker does what is late in whichever transaction of this epoch is open by then; in a new epoch it refuses that.
    `doubt`: why the next transaction needs a new one, "" while it does not. `left`: the call that was to end the last
    transaction and has no answer, "" without one. Counts are the producer's: requests that were lost, and records of
    unknown outcome.
    """

    doubt: str = ""
    left: str = ""
    _lost: int = 0
    _unknown: int = 0

    def begin(self, lost: int, unknown: int) -> None:
        """A transaction begins: what was lost before was of none."""
        self._lost, self._unknown = lost, unknown

    def end(self, lost: int, unknown: int) -> None:
        self.left = ""
        if lost > self._lost:
            self.doubt = self.doubt or "a connection was lost, or a request timed out"
        elif unknown > self._unknown:
            self.doubt = self.doubt or "records are of unknown outcome"

    def give_up(self, method: str) -> None:
        """A call failed, and whether brokers will do what it asked for is not known."""
        self.doubt = self.doubt or f"{method}() has no answer"
        if method != "send_offsets_to_transaction":
            self.left = self.left or method


def taken_over(before: Identity | None, after: Identity | None, ended: bool, lost: int = 0) -> bool:
    """Whether another producer had the transactional.id between these two epochs of ours.

    Each registration raises the epoch by one, and the abort of a transaction that it finds open by one more. Those
    whose epochs are used up, or which brokers forgot, begin at 0 with another producer ID. `lost`: requests that got no
    answer meanwhile, each of which may have been a registration of ours.
    """
    if before is None or after is None:
        return False
    if before.producer_id != after.producer_id:
        return after.epoch > lost
    return after.epoch > before.epoch + (1 if ended else 2) + lost
