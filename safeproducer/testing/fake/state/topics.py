"""The log of one partition: batches as they came, with offset and leader epoch written in.

Topics and partitions: who leads, who follows, and what each replica remembers of producers.
"""

import struct
import uuid
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

from safeproducer.testing.fake.rules.producer_state import ProducerStates
from safeproducer.testing.produce import BatchHeader, read_batch_headers

__all__ = ["NO_LEADER", "Partition", "PartitionLog", "Topic"]

_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_LEADER_EPOCH_AT = 12  # in front of what the checksum covers, like the offset


class PartitionLog:
    """Batches in order of their offsets. It is not thread-safe."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.end_offset = 0
        self._last_offsets: list[int] = []
        self._batches: list[bytes] = []

    def append(self, header: BatchHeader, data: memoryview, leader_epoch: int) -> int:
        """Store a batch at the end; returns the offset of its first record."""
        offset = self.end_offset
        epoch_from, epoch_to = _LEADER_EPOCH_AT, _LEADER_EPOCH_AT + _LEADER_EPOCH.size
        length = data[_OFFSET.size : epoch_from]
        stored = b"".join((_OFFSET.pack(offset), length, _LEADER_EPOCH.pack(leader_epoch), data[epoch_to:]))
        self._batches.append(stored)
        self.end_offset = offset + header.last_offset_delta + 1
        self._last_offsets.append(self.end_offset - 1)
        return offset

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool) -> bytes:
        """Batches from the one that holds ``offset``, cut after ``max_bytes`` wherever that is.

        The first one is whole or missing; it may exceed ``max_bytes`` if asked for.
        """
        chosen: list[bytes] = []
        left = max_bytes
        for data in self._batches[bisect_left(self._last_offsets, offset) :]:
            if not chosen and len(data) > left:
                return data if at_least_one else b""
            chosen.append(data[:left])
            left -= len(data)
            if left <= 0:
                break
        return b"".join(chosen)

    def delete(self, oldest: int | None, max_bytes: int | None) -> int:
        """Drop batches from the start while they are older than a time in ms, or the rest still has so many bytes.

        None is no limit. Kafka drops whole segments and never the newest; here each batch is a segment.
        """
        excess = 0 if max_bytes is None else sum(len(data) for data in self._batches) - max_bytes
        gone = 0
        for header, data in map(_with_header, self._batches):
            excess -= len(data)
            too_old = oldest is not None and header.max_timestamp < oldest
            if not too_old and (max_bytes is None or excess < 0):
                break
            gone += 1
        del self._batches[:gone], self._last_offsets[:gone]
        if gone:
            self.start_offset = _with_header(self._batches[0])[0].base_offset if self._batches else self.end_offset
        return gone

    def batches(self) -> list[tuple[BatchHeader, bytes]]:
        """All batches, oldest first."""
        return [_with_header(data) for data in self._batches]


def _with_header(data: bytes) -> tuple[BatchHeader, bytes]:
    return next(read_batch_headers(memoryview(data)))[0], data


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
