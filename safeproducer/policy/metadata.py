"""Which of two reports about a topic counts, where the native producers of one application have metadata of their own.

Brokers learn of a change one after the other, and a native producer asks for metadata every few minutes
(`topic.metadata.refresh.interval.ms`). Partitions are only added and leader epochs only grow, until a topic is made
anew: it may have fewer partitions then, and its epochs begin at 0 (KIP-320).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from safeproducer.policy.never import NEVER

SETTLES = 1.0
"""Seconds within which brokers may still differ: metadata that is younger by more counts, whatever it says."""
_SAME = 0.01
"""Seconds by which the time of the same metadata differs each time that statistics tell its age."""
NO_EPOCH = -1


class PartitionMetadata(NamedTuple):
    """One partition as an answer or statistics tell of it: `leader` -1 for none, `epoch` None where it is not told.

    `replicas` and `in_sync`: node IDs; None where they are not told.
    """

    leader: int
    epoch: int | None = None
    replicas: tuple[int, ...] | None = None
    in_sync: tuple[int, ...] | None = None


TopicMetadata = Mapping[int, PartitionMetadata]


class PartitionInfo(NamedTuple):
    """One partition, as far as is known. `leader` None and `epoch` NO_EPOCH while unknown; replicas empty.

    - `at`: when that metadata came, in seconds of the monotonic clock.
    - `led_since`: the step at which its leader, or the leader's epoch, was learnt to have changed; 0: never. Steps
      count what is learnt: of two of them, the larger one is the later.
    """

    leader: int | None = None
    epoch: int = NO_EPOCH
    at: float = -NEVER
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    led_since: int = 0

    def led_from(self, leader: int | None, epoch: int, step: int) -> int:
        """`led_since` after this was learnt. An epoch that is learnt later was that of the same leader all along."""
        if self.leader is None:
            return step if self.led_since else 0
        return self.led_since if leader == self.leader and self.epoch in (epoch, NO_EPOCH) else step


def supersedes(rank: int, at: float, known_rank: int, known_at: float) -> bool:
    """Whether a report from `at` takes the place of the one known.

    The younger one counts. While brokers may differ, the higher rank does: a number of partitions, or a leader epoch.
    """
    if abs(at - known_at) > SETTLES:
        return at > known_at
    return rank > known_rank or (rank == known_rank and at > known_at + _SAME)
