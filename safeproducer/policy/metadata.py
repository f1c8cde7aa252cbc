"""Which of two reports about a topic counts, where the native producers of one application have metadata of their own.

Brokers learn of a change one after the other, and a native producer asks for metadata every few minutes
(`topic.metadata.refresh.interval.ms`). Partitions are only added and leader epochs only grow, until a topic is made
anew: it may have fewer partitions then, and its epochs begin at 0 (KIP-320).
"""

from __future__ import annotations

from typing import NamedTuple

SETTLES = 1.0
"""Seconds within which brokers may still differ: metadata that is younger by more counts, whatever it says."""
_SAME = 0.01
"""Seconds by which the time of the same metadata differs each time that statistics tell its age."""
NO_EPOCH = -1


class PartitionInfo(NamedTuple):
    """One partition in the metadata. `leader` None and `epoch` NO_EPOCH while unknown.

    `at`: when that metadata came, in seconds of the monotonic clock.
    """

    leader: int | None
    epoch: int
    at: float


def supersedes(rank: int, at: float, known_rank: int, known_at: float) -> bool:
    """Whether a report from `at` takes the place of the one known.

    The younger one counts. While brokers may differ, the higher rank does: a number of partitions, or a leader epoch.
    """
    if abs(at - known_at) > SETTLES:
        return at > known_at
    return rank > known_rank or (rank == known_rank and at > known_at + _SAME)
