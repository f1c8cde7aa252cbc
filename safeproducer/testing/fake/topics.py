"""Topics and partitions: who leads, who follows, and what each replica remembers of producers."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

from safeproducer.testing.fake.log import PartitionLog
from safeproducer.testing.fake.producer_state import ProducerStates

__all__ = ["NO_LEADER", "Partition", "Topic"]

NO_LEADER = -1


@dataclass(slots=True)
class Partition:
    """One partition. Its replicas share a log, since none ever lags; each has its own memory of producers."""

    index: int
    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    log: PartitionLog = field(default_factory=PartitionLog)
    states: dict[int, ProducerStates] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.states = {replica: ProducerStates() for replica in self.replicas}

    def lead(self, leader: int) -> None:
        """Hand the partition to another leader, or to none; the epoch grows."""
        self.leader = leader
        self.leader_epoch += 1

    def elect(self, alive: Iterable[int]) -> None:
        """Give a partition without a living leader to its first living replica."""
        living = set(alive)
        if self.leader not in living:
            found = next((replica for replica in self.replicas if replica in living), NO_LEADER)
            if found != self.leader:
                self.lead(found)


@dataclass(slots=True)
class Topic:
    """One topic; ``config`` holds what was set on it."""

    name: str
    id: uuid.UUID
    partitions: list[Partition]
    config: dict[str, str]
