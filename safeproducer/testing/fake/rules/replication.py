"""How far the replicas of a partition are, which of them are in sync, and how far records are committed. Pure.

The rules are those of Kafka 4, with positions in bytes instead of offsets:

1. A replica is caught up when it has all that the leader had when it asked. One in sync that was not caught up for
   ``replica.lag.time.max.ms`` leaves the set. One that has all committed bytes, and all of earlier leaders, joins it.
2. Bytes are committed when all replicas in sync have them, and each living one that was caught up less than
   ``replica.lag.time.max.ms`` ago. Below ``min.insync.replicas`` nothing more is committed (KIP-966).
3. A throttled rate is measured over 11 windows of 1 s. It is divided by the time since the oldest window began, 1 s at
   least, and is not padded as quotas of clients are.

All times are milliseconds of the cluster's clock.
"""

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from safeproducer.testing.fake.rules.quotas import SampledRate

_NEVER = -(1 << 62)
FETCH_BYTES, ANSWER_BYTES = 1 << 20, 10 << 20
"""At most of a partition, and of all, in the answer to a fetch: Kafka's defaults."""
Side = Literal["leader", "follower"]
LEADER: Final = "leader"
FOLLOWER: Final = "follower"
LISTS: dict[Side, str] = {side: f"{side}.replication.throttled.replicas" for side in (LEADER, FOLLOWER)}
RATES: dict[Side, str] = {side: f"{side}.replication.throttled.rate" for side in (LEADER, FOLLOWER)}


@lru_cache
def throttled_replicas(text: str) -> frozenset[tuple[int, int]] | None:
    """The (partition, broker) of such a list, None for all of them. Raises ValueError for what a broker refuses."""
    if text == "*":
        return None
    entries = [entry for entry in text.split(",") if entry]
    if not all(re.fullmatch("[0-9]{1,10}:[0-9]{1,10}", entry) for entry in entries):
        raise ValueError(f"{text!r} is no list; give '*' alone, or partition:broker,partition:broker,...")
    pairs = (entry.split(":") for entry in entries)
    return frozenset((int(partition), int(broker)) for partition, broker in pairs)


class ReplicaRate(SampledRate):
    """Bytes per second by rule 3; not thread-safe."""

    def __init__(self) -> None:
        super().__init__(11, 1000)

    def window_ms(self, now: int) -> int:
        """The divisor of the sum."""
        self._forget(now)
        return max(now - min((window.start for window in self._windows), default=now), self._window_ms)


@dataclass(slots=True)
class Copies:
    """The replicas of one partition. ``ends`` has the leader, too; ``committed`` is the high watermark.

    ``epoch_start`` is where the newest leader began. ``watched``: somebody looks when the next replica is late.
    """

    ends: dict[int, int]
    in_sync: set[int]
    caught_up: dict[int, int]
    committed: int = 0
    epoch_start: int = 0
    watched: bool = False

    @classmethod
    def new(cls, replicas: Iterable[int]) -> "Copies":
        """The copies of an empty partition."""
        return cls(dict.fromkeys(replicas, 0), {*replicas}, dict.fromkeys(replicas, _NEVER))

    def place(self, replicas: Iterable[int], start: int) -> None:
        """Have these replicas; new ones begin at ``start``, the oldest byte of the log."""
        self.ends = {replica: self.ends.get(replica, start) for replica in replicas}
        self.caught_up = {replica: self.caught_up.get(replica, _NEVER) for replica in replicas}
        self.in_sync &= self.ends.keys()

    def grow(self, size: int) -> None:
        """Let all replicas in sync have so many bytes more, committed."""
        for replica in self.in_sync:
            self.ends[replica] += size
        self.committed += size

    def lead(self, leader: int, now: int) -> int:
        """Let all replicas follow another leader: what it does not have is gone. Returns its end."""
        end = self.epoch_start = self.ends[leader]
        self.ends = {replica: min(mine, end) for replica, mine in self.ends.items()}
        self.committed = min(self.committed, end)
        self.caught_up = {replica: now if replica in self.in_sync else _NEVER for replica in self.ends}
        return end

    def pause(self, leader: int, working: Container[int], now: int) -> None:
        """Replicas that fetch no more, and have everything, are caught up until now."""
        for replica, end in self.ends.items():
            if replica not in working and end == self.ends.get(leader):
                self.caught_up[replica] = now

    def late(self, leader: int, now: int, lag_ms: int) -> set[int]:
        """The replicas in sync that rule 1 takes out of the set."""
        end = self.ends[leader]
        return {one for one in self.in_sync if self.ends[one] != end and now - self.caught_up[one] > lag_ms}

    def joining(self, working: Container[int]) -> set[int]:
        """The replicas out of sync that rule 1 lets in."""
        least = max(self.committed, self.epoch_start)
        return {one for one, end in self.ends.items() if end >= least and one not in self.in_sync and one in working}

    def commit(self, leader: int, living: Container[int], now: int, lag_ms: int) -> bool:
        """Commit by rule 2, the minimum aside; returns whether more is committed than before."""
        least = self.ends[leader]
        for replica, mine in self.ends.items():
            if mine < least and (replica in self.in_sync or self._is_awaited(replica, living, now, lag_ms)):
                least = mine
        if least <= self.committed:
            return False
        self.committed = least
        return True

    def _is_awaited(self, replica: int, living: Container[int], now: int, lag_ms: int) -> bool:
        return now - self.caught_up[replica] <= lag_ms and replica in living

    def next_late(self, leader: int, living: Container[int], now: int, lag_ms: int) -> int | None:
        """When rule 1 or 2 stops waiting for a replica that lags now, if nothing changes; None: for none."""
        lagging = [
            self.caught_up[replica]
            for replica, mine in self.ends.items()
            if mine < self.ends[leader] and (replica in self.in_sync or self._is_awaited(replica, living, now, lag_ms))
        ]
        return max(min(lagging) + lag_ms, now) + 1 if lagging else None
