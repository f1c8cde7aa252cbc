"""Values that several policies share: a partition's name, infinity, a share of the buffer.

A group may hold no more than what is free. One group that waits ends at half of the buffer, two at a third each, and
the rest stays free for those that flow (Choudhury and Hahne, "Dynamic queue length thresholds", 1998).
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final

TopicPartition = tuple[str, int]
NEVER: Final = float("inf")
DIRECT_LANE = -1  # the number of the direct lane, beside those of the batch lanes
UNPLACED = -1  # the partition of a record that has none yet
ALWAYS_FREE = 0.5  # below this part of the buffer nobody is refused


class Lack(IntEnum):
    """Which room there is none of: none is lacking, that of a partition's share, or all."""

    NONE = 0
    OF_PARTITION = 1
    OF_ALL = 2


class ReplicationState(StrEnum):
    """How far the replicas of a partition are."""

    IN_SYNC = "in_sync"
    CATCHING_UP = "catching_up"
    THROTTLED = "throttled"
    NEVER_ENDS = "never_ends"
    BROKER_DOWN = "broker_down"
    UNREADABLE = "unreadable"


def has_share(group: int, total: int, limit: int, others: bool) -> bool:
    """Whether a group that holds `group` of `total` may take more of `limit`.

    `others`: whether there is anybody else whom the rest is kept for; without, the whole buffer is the group's.
    """
    if not others or total < limit * ALWAYS_FREE:
        return total < limit
    return group < limit - total
