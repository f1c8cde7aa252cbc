"""Topics and partitions: who leads, who follows, their logs, and what each replica remembers of producers."""

import struct
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable
from copy import deepcopy
from dataclasses import dataclass, field

from safeproducer.testing.fake.rules.producer_state import ProducerStates
from safeproducer.testing.fake.rules.replication import Copies
from safeproducer.testing.fake.rules.transactions import OpenTransactions
from safeproducer.testing.produce import BatchHeader, is_commit, read_batch_headers

_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_LEADER_EPOCH_AT = 12  # in front of what the checksum covers, like the offset
NO_LEADER = -1


class PartitionLog:
    """Batches as they came, with offset and leader epoch written in. It is not thread-safe.

    Positions in bytes count from the first byte ever written; those of filled bytes, which hold no records, too.
    """

    def __init__(self) -> None:
        self.start_offset = 0
        self.end_offset = 0
        self.start_bytes = 0
        self.end_bytes = 0
        self._ends: list[int] = []
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
        self.end_bytes += len(stored)
        self._ends.append(self.end_bytes)
        return offset

    def position(self, offset: int) -> int:
        """Where the batch that holds this offset ends, in bytes."""
        found = bisect_left(self._last_offsets, offset)
        return self._ends[found] if found < len(self._ends) else self.end_bytes

    def offset(self, position: int) -> int:
        """The offset behind the batches that end at or before this position."""
        found = bisect_right(self._ends, position)
        return self._last_offsets[found - 1] + 1 if found else self.start_offset

    def truncate(self, position: int) -> None:
        """Drop all that ends behind this position."""
        kept = bisect_right(self._ends, position)
        self.end_offset, self.end_bytes = self.offset(position), position
        del self._batches[kept:], self._last_offsets[kept:], self._ends[kept:]

    def read(self, offset: int, max_bytes: int, end: int, *, at_least_one: bool) -> bytes:
        """Batches from the one that holds ``offset`` to the offset ``end``, cut after ``max_bytes`` wherever that is.

        The first one is whole or missing; it may exceed ``max_bytes`` if asked for.
        """
        chosen: list[bytes] = []
        left = max_bytes
        for data in self._batches[bisect_left(self._last_offsets, offset) : bisect_left(self._last_offsets, end)]:
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
        if gone:
            self.start_bytes = self._ends[gone - 1]
            del self._batches[:gone], self._last_offsets[:gone], self._ends[:gone]
            self.start_offset = _with_header(self._batches[0])[0].base_offset if self._batches else self.end_offset
        return gone

    def batches(self) -> list[tuple[BatchHeader, bytes]]:
        return [_with_header(data) for data in self._batches]


def _with_header(data: bytes) -> tuple[BatchHeader, bytes]:
    return next(read_batch_headers(memoryview(data)))[0], data


@dataclass(slots=True)
class Partition:
    """One partition. Its replicas share a log; each has its own memory of producers.

    ``copies``: how far each replica is, None where none ever lags. A move is in progress while replicas are ``adding``
    or ``removing``; ``replicas`` has them, too.
    """

    index: int
    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    log: PartitionLog = field(default_factory=PartitionLog)
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """Leader epochs and the offsets they began at, oldest first; those without a record are dropped (KIP-101)."""
    states: dict[int, ProducerStates] = field(default_factory=dict)
    transactions: OpenTransactions = field(default_factory=OpenTransactions)
    copies: Copies | None = None
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

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

    @property
    def high_watermark(self) -> int:
        """The offset behind the last committed record."""
        return self.log.end_offset if self.copies is None else self.log.offset(self.copies.committed)

    @property
    def last_stable_offset(self) -> int:
        """The offset behind the last record of which it is known whether it was committed or aborted."""
        return self.transactions.stable(self.high_watermark)

    def committed(self) -> list[tuple[BatchHeader, bytes]]:
        """The batches in front of the last stable offset, without those of aborted transactions."""
        end = self.last_stable_offset
        aborted = self.transactions.aborted(0, end)

        def is_aborted(header: BatchHeader) -> bool:
            mine = (one for one in aborted if one.producer_id == header.producer_id)
            return header.transactional and any(one.first <= header.base_offset < one.last for one in mine)

        batches = self.log.batches()
        return [(header, data) for header, data in batches if header.base_offset < end and not is_aborted(header)]

    def truncate(self, position: int) -> None:
        """Drop all that ends behind this position, and what is known of it."""
        self.log.truncate(position)
        for states in self.states.values():
            states.truncate(self.log.end_offset)
        self.transactions = OpenTransactions()
        for header, data in self.log.batches():
            if header.control:
                self.transactions.end(header.producer_id, header.base_offset, commit=is_commit(data))
            elif header.transactional:
                self.transactions.append(header.producer_id, header.epoch, header.base_offset)

    def move(self, replicas: Collection[int]) -> None:
        """Move to these replicas; those of before, to end a move. Those that go stay until :meth:`finish_move`."""
        before = [replica for replica in self.replicas if replica not in self.adding]
        self.adding = tuple(replica for replica in replicas if replica not in before)
        self.removing = tuple(replica for replica in before if replica not in replicas)
        self._place((*replicas, *self.removing))

    def finish_move(self, in_sync: Collection[int]) -> bool:
        """Drop the replicas that go, once all new ones are in sync; returns whether it did. The leader may be gone."""
        stay = tuple(replica for replica in self.replicas if replica not in self.removing)
        if not {*self.adding} <= {*in_sync} or not {*stay} & {*in_sync}:
            return False
        self.adding = self.removing = ()
        self._place(stay)
        return True

    def _place(self, replicas: tuple[int, ...]) -> None:
        known, leading = self.states, self.states.get(self.leader) or ProducerStates()
        self.replicas = replicas
        # A new replica learns of producers with the records.
        self.states = {replica: known.get(replica) or deepcopy(leading) for replica in replicas}
        if self.copies is not None:
            self.copies.place(replicas, self.log.start_bytes)

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
