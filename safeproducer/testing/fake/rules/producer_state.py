"""Idempotence as a broker does it: what one replica of one partition remembers of its producers. Pure.

Followed: KIP-98 (sequence numbers), KIP-360 (an unknown producer may start anywhere) as Kafka 2.5 to 4.4 do it, and
the broker half of KIP-1269. The rules, in the order in which they are asked:

1. A producer the replica does not know is appended, whatever its sequence: the batch becomes the base. Kafka 4.5 wants
   sequence 0 in a partition that never had a record (KAFKA-15591).
2. A lower epoch than the known one is fenced.
3. A higher epoch must begin at sequence 0, unless the known one is none (-1).
4. At the same epoch a batch whose first *and* last sequence equal those of one of the last N batches is a duplicate:
   it is answered with the offset of the copy in the log. Batches older than those N are not recognised any more.
5. Otherwise the first sequence must follow the last one in the log; numbers go on at 0 after 2^31 - 1.

An ID is forgotten without a word (KIP-854): a replica checks now and then, counted from its start or from when the
partition was first used, and drops those whose last batch is too old. The age is that of the batch's newest record
*timestamp*, which the client gave, not of its arrival. A dropped ID falls under rule 1.

N is 5 in released brokers. With KIP-1269 it is configured, and so is an argument of each call here: it may differ
between the replicas of a partition and change at any time.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

RETAINED_BEFORE_KIP_1269 = 5
"""How many batches every released broker remembers; the minimum of KIP-1269's configs."""

_SEQUENCES = 1 << 31


@dataclass(frozen=True, slots=True)
class Rules:
    """How this cluster's brokers answer; see :class:`FakeCluster`."""

    kip_1269_field: str = "partition"
    kafka: str = "4.4"
    first_epoch: int = 0
    transaction_version: int = 2


class Decision(Enum):
    """The decision about a batch; the value is the error code of the answer."""

    APPEND = 0
    DUPLICATE = -1
    """Answered as a success, with the stored offset. No error code: the client must not see a difference."""
    OUT_OF_ORDER = 45
    FENCED = 47
    """Kafka's code for INVALID_PRODUCER_EPOCH: a newer epoch is known."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """The producer of a batch, and its range of sequence numbers, both ends included."""

    producer_id: int
    epoch: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class AppendedBatch:
    """One batch: ``first`` and ``last`` sequence number, ``offset`` of the first record, newest ``timestamp`` in ms."""

    first: int
    last: int
    offset: int
    timestamp: int


@dataclass(slots=True)
class ProducerEntry:
    """The state of one producer ID: its ``epoch``, and ``batches`` oldest first, none after the marker of a new one.

    ``coordinator_epoch`` and ``marked``: the coordinator's, and the time in ms, of its newest marker; -1 for none.
    """

    epoch: int
    batches: deque[AppendedBatch] = field(default_factory=deque)
    coordinator_epoch: int = -1
    marked: int = -1

    @property
    def last_sequence(self) -> int:
        """The number of the last record, -1 if there is none of this epoch."""
        return self.batches[-1].last if self.batches else -1

    @property
    def timestamp(self) -> int:
        """The newest time in ms of its batches and markers."""
        return max(self.marked, self.batches[-1].timestamp if self.batches else -1)

    def window(self, retain: int) -> Iterator[AppendedBatch]:
        """The last ``retain`` batches, newest first, even if more are still stored from before N was lowered."""
        for number, batch in enumerate(reversed(self.batches)):
            if number == retain:
                return
            yield batch


class ProducerStates:
    """The producers that one replica of one partition knows. It is not thread-safe."""

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self._next_check: int | None = None

    def decide(self, batch: Sequence, retain: int, from_zero: bool = False) -> tuple[Decision, AppendedBatch | None]:
        """The leader's decision about this batch, with the copy in the log if it is a duplicate. Changes nothing.

        ``from_zero``: a producer that is not known must begin at sequence 0.
        """
        known = self._entries.get(batch.producer_id)
        if known is None:
            return (Decision.OUT_OF_ORDER if from_zero and batch.first else Decision.APPEND), None
        if batch.epoch < known.epoch:
            return Decision.FENCED, None
        if batch.epoch > known.epoch:
            return (Decision.APPEND if batch.first == 0 or known.epoch < 0 else Decision.OUT_OF_ORDER), None
        for copy in known.window(retain):
            if (copy.first, copy.last) == (batch.first, batch.last):
                return Decision.DUPLICATE, copy
        follows = batch.first == (known.last_sequence + 1) % _SEQUENCES
        return (Decision.APPEND if follows else Decision.OUT_OF_ORDER), None

    def append(self, batch: Sequence, offset: int, timestamp: int, retain: int) -> None:
        """Remember a batch that is in the log; a follower does so unasked, the leader has decided."""
        known = self._entries.get(batch.producer_id)
        if known is None or batch.epoch != known.epoch:
            known = self._entries[batch.producer_id] = ProducerEntry(batch.epoch)
        known.batches.append(AppendedBatch(batch.first, batch.last, offset, timestamp))
        while len(known.batches) > retain:
            known.batches.popleft()

    def mark(self, producer_id: int, epoch: int, coordinator_epoch: int, now: int) -> None:
        """The marker of a transaction is in the log; with a newer epoch the next batch begins at sequence 0."""
        known = self._entries.get(producer_id)
        if known is None or epoch > known.epoch:
            known = self._entries[producer_id] = ProducerEntry(epoch)
        known.coordinator_epoch, known.marked = coordinator_epoch, now

    def reload(self) -> None:
        """Keep what a restart leaves: a snapshot holds the last batch of each producer, so the window is 1 at first."""
        for entry in self._entries.values():
            entry.batches = deque([*entry.batches][-1:])

    def truncate(self, end_offset: int) -> None:
        """Forget the batches from this offset on, which are in the log no more."""
        for producer_id, entry in [*self._entries.items()]:
            entry.batches = deque(batch for batch in entry.batches if batch.offset < end_offset)
            if not entry.batches:
                del self._entries[producer_id]

    def load(self, now: int, age: int, interval: int) -> None:
        """A start at this time (ms): expired IDs of the snapshot are not taken over, and checks count from here."""
        self._next_check = now + interval
        self._drop(now, age)

    def is_due(self, now: int) -> bool:
        """Whether :meth:`expire` has something to do."""
        return self._next_check is None or now >= self._next_check

    def expire(self, now: int, age: int, interval: int) -> None:
        """Do the checks that are due at this time, one every ``interval`` ms, for IDs of this ``age`` in ms."""
        if self._next_check is None:
            self._next_check = now + interval
        elif now >= self._next_check:
            newest = now - (now - self._next_check) % interval
            self._next_check = newest + interval
            self._drop(newest, age)

    def _drop(self, now: int, age: int) -> None:
        expired = [one for one, entry in self._entries.items() if now - entry.timestamp >= age]
        for producer_id in expired:
            del self._entries[producer_id]

    def entries(self) -> dict[int, ProducerEntry]:
        """By producer ID; copies, which nobody changes any more."""
        return {
            producer_id: ProducerEntry(entry.epoch, deque(entry.batches), entry.coordinator_epoch, entry.marked)
            for producer_id, entry in self._entries.items()
        }
