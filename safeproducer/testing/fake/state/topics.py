"""Topics and partitions: who leads, who follows, and what each replica remembers of producers."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

from safeproducer.testing.fake.rules.producer_state import ProducerStates
from safeproducer.testing.fake.state.log import PartitionLog

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
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """Leader epochs and the offsets they began at, oldest first; those without a record are dropped (KIP-101)."""
    states: dict[int, ProducerStates] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.states = {replica: ProducerStates() for replica in self.replicas}

    def lead(self, leader: int) -> None:
        """Hand the partition to another leader, or to none; the epoch grows."""
        self.leader = leader
        self.leader_epoch += 1
        if leader != NO_LEADER:
            end = self.log.end_offset
            self.epochs = [*(entry for entry in self.epochs if entry[1] < end), (self.leader_epoch, end)]

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The newest leader epoch not above this one, and the offset at which the next began; -1 and -1 if unknown.

        A client that was ahead of the log truncates to that offset (KIP-320).
        """
        if epoch == self.leader_epoch:
            return epoch, self.log.end_offset
        later = next((start for known, start in self.epochs if known > epoch), None)
        if later is None or epoch < 0:
            return -1, -1
        return max((known for known, _ in self.epochs if known <= epoch), default=epoch), later

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
