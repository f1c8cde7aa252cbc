"""Transactions as their coordinator keeps them (KIP-98, 360, 890), and what a partition knows of them. Pure.

A transaction is Ongoing from its first partition or group on. Its end is prepared, markers are written to all of its
partitions, and then it is complete. Who begins anew under the same ID raises the epoch: whoever has the old one is
fenced. Since EndTxn version 5 each end raises it, too (KIP-890), so that what is late is never part of the next
transaction; there a request that comes again is known by its epoch. Times are ms of the cluster's clock.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple
from zlib import crc32

from safeproducer.testing.codec import RefusedError
from safeproducer.testing.fake.rules.groups import Group

INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS = 48, 49, 51
PRODUCER_FENCED = 90
_LAST_EPOCH = 32_766


class State(Enum):
    """The state of a transaction, as Kafka spells it."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


_PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
_COMPLETE = {State.PREPARE_COMMIT: State.COMPLETE_COMMIT, State.PREPARE_ABORT: State.COMPLETE_ABORT}


@dataclass(slots=True, eq=False)
class Transaction:
    """The newest transaction of one ``transactional.id``. ``since`` is when it began, -1 before.

    ``last_epoch`` is the epoch before, of a producer that raised it itself. ``ended``: the producer ID and epoch with
    which the newest end of version 5 was asked for, by which a request that comes again is known.
    """

    id: str
    producer_id: int
    epoch: int = -1
    last_epoch: int = -1
    timeout: int = 0
    state: State = State.EMPTY
    partitions: set[tuple[str, int]] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    since: int = -1
    ended: tuple[int, int] | None = None
    marker: tuple[int, int] = (-1, -1)
    """The producer ID and epoch that the markers of a prepared end carry."""
    written: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """The markers that replicas lack: by which leader epoch, and where in bytes they end."""

    @property
    def due(self) -> int | None:
        """When it is aborted, because it takes too long."""
        return self.since + self.timeout if self.state is State.ONGOING else None

    def begin(self, timeout: int, expected: tuple[int, int] | None, new_id: Callable[[], int]) -> None:
        """InitProducerId: raise the epoch, and fence who has the old one.

        ``expected`` is what a producer says that it has (KIP-360). Raises RefusedError.
        """
        if expected is not None and self.epoch >= 0 and expected[0] != self.producer_id:
            raise RefusedError(PRODUCER_FENCED)
        if self.state in _PREPARED:
            raise RefusedError(CONCURRENT_TRANSACTIONS)
        if self.state is State.ONGOING:
            if expected is not None and expected[1] != self.epoch:
                raise RefusedError(PRODUCER_FENCED)
            self.prepare(commit=False, raises=True)
            raise RefusedError(CONCURRENT_TRANSACTIONS)
        again = expected is not None and self.epoch >= 0 and expected[1] != self.epoch
        if again and expected is not None and expected[1] != self.last_epoch:
            raise RefusedError(PRODUCER_FENCED)
        if not again:
            self.last_epoch = self.epoch if expected is not None else -1
            self._raise_epoch(new_id)
        self.timeout, self.state, self.since, self.ended = timeout, State.EMPTY, -1, None

    def _raise_epoch(self, new_id: Callable[[], int]) -> None:
        self.epoch += 1
        if self.epoch > _LAST_EPOCH:
            self.producer_id, self.epoch, self.last_epoch = new_id(), 0, -1

    def check(self, producer_id: int, epoch: int) -> None:
        """Raises RefusedError unless it is this producer, in its newest epoch."""
        if producer_id != self.producer_id:
            raise RefusedError(INVALID_PRODUCER_ID_MAPPING)
        if epoch != self.epoch:
            raise RefusedError(PRODUCER_FENCED)
        if self.state in _PREPARED:
            raise RefusedError(CONCURRENT_TRANSACTIONS)

    def add(self, places: Iterable[tuple[str, int]], groups: Iterable[str], now: int) -> None:
        """Let these partitions and groups be part of it; begin it, if it is not ongoing. After :meth:`check`."""
        if self.state is not State.ONGOING:
            self.state, self.since, self.ended = State.ONGOING, now, None
        self.partitions.update(places)
        self.groups.update(groups)

    def end(self, producer_id: int, epoch: int, *, commit: bool, raises: bool) -> bool:
        """EndTxn; ``raises``: of version 5. Returns whether markers have to be written. Raises RefusedError."""
        again = raises and self.ended == (producer_id, epoch)
        if producer_id != self.producer_id and not again:
            raise RefusedError(INVALID_PRODUCER_ID_MAPPING)
        if epoch != self.epoch and not again:
            raise RefusedError(PRODUCER_FENCED)
        same = self.state in ((State.PREPARE_COMMIT, State.COMPLETE_COMMIT) if commit else _ABORTS)
        if self.state in _PREPARED:
            raise RefusedError(CONCURRENT_TRANSACTIONS if same else INVALID_TXN_STATE)
        if self.state is State.ONGOING:
            self.prepare(commit=commit, raises=raises)
            return True
        if (again or not raises) and same:
            return False
        if again or commit or not raises:
            raise RefusedError(INVALID_TXN_STATE)
        self.prepare(commit=False, raises=True)  # an abort of nothing raises the epoch, too
        return True

    def prepare(self, *, commit: bool, raises: bool) -> None:
        """Begin the end; it is complete when all markers are written. ``raises``: with another epoch."""
        self.ended = (self.producer_id, self.epoch) if raises else None
        if raises:
            self.last_epoch = -1
            self.epoch += 1
        self.marker = self.producer_id, self.epoch
        self.state = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT

    @property
    def prepared(self) -> bool:
        return self.state in _PREPARED

    @property
    def commits(self) -> bool:
        return self.state is State.PREPARE_COMMIT

    def complete(self, new_id: Callable[[], int]) -> None:
        self.state = _COMPLETE[self.state]
        self.groups.clear()
        if self.epoch >= _LAST_EPOCH and self.ended is not None:
            self.producer_id, self.epoch, self.last_epoch = new_id(), 0, -1


_ABORTS = (State.PREPARE_ABORT, State.COMPLETE_ABORT)


class Coordinators:
    """A key is coordinated by a broker that follows from its name, until it is moved; next by the one that lives."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.transactions: dict[str, Transaction] = {}
        self._moved: dict[str, int] = {}

    def of(self, key: str, brokers: Sequence[int], alive: Sequence[int]) -> int:
        """The coordinator of a group or a transaction; -1 if no broker lives."""
        first = brokers.index(self._moved[key]) if key in self._moved else crc32(key.encode()) % len(brokers)
        ring = (*brokers[first:], *brokers[:first])
        return next((broker for broker in ring if broker in alive), -1)

    def move(self, key: str, to: int) -> None:
        self._moved[key] = to


class Aborted(NamedTuple):
    """An aborted transaction in a partition: its producer, its first offset, and that of its marker."""

    producer_id: int
    first: int
    last: int


class OpenTransactions:
    """The transactions in one partition's log: which are open since where, and which were aborted."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[int, int]] = {}
        self._aborted: list[Aborted] = []

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether this producer has an open transaction here, begun in this epoch."""
        return self._open.get(producer_id, (-1, -1))[1] == epoch

    def first_offset(self, producer_id: int) -> int:
        """Where its open transaction began; -1 without one."""
        return self._open.get(producer_id, (-1, -1))[0]

    def append(self, producer_id: int, epoch: int, offset: int) -> None:
        """A batch of a transaction is in the log."""
        self._open.setdefault(producer_id, (offset, epoch))

    def end(self, producer_id: int, offset: int, *, commit: bool) -> None:
        """A marker is in the log at this offset."""
        first, _ = self._open.pop(producer_id, (-1, -1))
        if first >= 0 and not commit:
            self._aborted.append(Aborted(producer_id, first, offset))

    def stable(self, end: int) -> int:
        """The last stable offset: the first one that may still be committed or aborted, ``end`` at most."""
        return min([end, *(first for first, _ in self._open.values())]) if self._open else end

    def aborted(self, start: int, end: int) -> list[Aborted]:
        """The aborted ones with records, or a marker, from one offset to another."""
        first = bisect_left(self._aborted, start, key=lambda one: one.last)
        return [one for one in self._aborted[first:] if one.first < end]
