"""The tap's bookkeeping: what was seen, what is in flight, how far each stream runs ahead."""

import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar
from uuid import UUID

from integration.tap.gauges import Gauge, Window
from integration.tap.seen import (
    AnswerSeen,
    BatchSeen,
    ConnectionSeen,
    InFlight,
    PartitionKey,
    RequestSeen,
    Stream,
    Undecoded,
)
from safeproducer.testing.produce import ProducedBatch
from safeproducer.testing.wire import RequestHeader
from tests.produce_messages import PartitionAnswer, ProduceAnswer

Key = TypeVar("Key")
T = TypeVar("T")
RETRIABLE = frozenset({2, 3, 5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, 56, 74, 75, 89, 100})
"""Produce errors after which a client sends the same batch again."""


@dataclass(slots=True, eq=False)
class Pending:
    """A request on its way: what its answer will be matched with."""

    header: RequestHeader
    arrived: float
    connection: int
    broker: int
    expects_answer: bool = True
    batches: list[BatchSeen] = field(default_factory=list)

    @property
    def place(self) -> tuple[int, int]:
        return self.broker, self.connection

    @property
    def records(self) -> int:
        return sum(batch.count for batch in self.batches)


def busy(gauges: Mapping[Key, Gauge]) -> defaultdict[Key, Gauge]:
    """The gauges with something in flight, their maxima started again."""
    kept = defaultdict(Gauge, {key: gauge for key, gauge in gauges.items() if gauge.now[0]})
    for gauge in kept.values():
        gauge.restart()
    return kept


class Ledger:
    """Written by the tap's thread, read by any; every reader gets a copy."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: dict[int, ConnectionSeen] = {}
        self._pending: dict[int, set[Pending]] = defaultdict(set)
        self._per_connection: dict[int, Gauge] = defaultdict(Gauge)
        self._per_stream: dict[PartitionKey, Gauge] = defaultdict(Gauge)
        self._windows: dict[PartitionKey, Window] = defaultdict(Window)
        self._total = Gauge()
        self._attempts: dict[object, int] = defaultdict(int)
        self._topic_names: dict[UUID, str] = {}
        self.requests: list[RequestSeen] = []
        self.batches: list[BatchSeen] = []
        self.answers: list[AnswerSeen] = []
        self.undecoded: list[Undecoded] = []

    # ---- written by the tap's thread

    def opened(self, connection: int, broker: int) -> None:
        with self._lock:
            self._connections[connection] = ConnectionSeen(connection, broker, None, time.monotonic(), None)

    def closed(self, connection: int) -> None:
        """The connection is gone, and with it everything in flight on it."""
        with self._lock:
            self._connections[connection] = replace(self._connections[connection], closed_at=time.monotonic())
            for pending in self._pending.pop(connection, ()):
                self._count(pending, -1)

    def learned_topics(self, names: dict[UUID, str]) -> None:
        with self._lock:
            self._topic_names.update(names)

    def topic_name(self, name: str | None, topic_id: UUID | None) -> str:
        """The name of a topic; its id as text while no Metadata answer has told the name."""
        return name if name is not None else self._topic_names.get(topic_id or UUID(int=0), str(topic_id))

    def request(self, pending: Pending, size: int, produced: tuple[ProducedBatch, ...] | None) -> None:
        """A request arrived; `produced` is None unless it is a Produce request."""
        header, now = pending.header, pending.arrived
        with self._lock:
            said = (header.api, header.version, header.correlation_id, header.client_id, size)
            self.requests.append(RequestSeen(*(now, *pending.place, *said)))
            known = self._connections[pending.connection]
            if known.client_id != header.client_id:
                self._connections[pending.connection] = replace(known, client_id=header.client_id)
            if produced is None:
                return
            for batch in produced:
                seen = self._batch(pending, batch)
                pending.batches.append(seen)
                self.batches.append(seen)
                if seen.producer_id >= 0 and pending.expects_answer:
                    self._windows[seen.key].sent(seen)
            if pending.expects_answer:
                self._pending[pending.connection].add(pending)
                self._count(pending, 1)

    def _batch(self, pending: Pending, batch: ProducedBatch) -> BatchSeen:
        header, of = pending.header, batch.header
        topic = self.topic_name(batch.topic, batch.topic_id)
        attempt = 1
        if of.producer_id >= 0:
            identity = (of.producer_id, of.epoch, of.base_sequence, topic, batch.partition)
            self._attempts[identity] = attempt = self._attempts[identity] + 1
        what = (of.producer_id, of.epoch, of.base_sequence, of.count, topic, batch.partition)
        how = (header.correlation_id, header.version, of.size, of.crc, attempt, of.transactional)
        return BatchSeen(*(pending.arrived, *pending.place, header.client_id, *what, *how))

    def _count(self, pending: Pending, sign: int) -> None:
        every = (sign, sign * len(pending.batches), sign * pending.records)
        self._total.add(*every)
        self._per_connection[pending.connection].add(*every)
        streams: dict[PartitionKey, list[int]] = defaultdict(list)
        for batch in pending.batches:
            streams[batch.key].append(batch.count)
        for key, counts in streams.items():
            self._per_stream[key].add(sign, sign * len(counts), sign * sum(counts))

    def answer(self, pending: Pending, answer: ProduceAnswer, delivered: bool) -> None:
        """A Produce answer left for the client (`delivered`), or was swallowed."""
        now = time.monotonic()
        with self._lock:
            for partition in answer.partitions:
                self.answers.append(self._answer(pending, partition, answer.throttle_time_ms, now, delivered))
            if delivered:
                self._settle(pending)
                for partition in answer.partitions:
                    self._resolve(pending, partition)

    def answered(self, pending: Pending) -> None:
        """An answer left for the client that cannot be read: the request is no longer in flight."""
        with self._lock:
            self._settle(pending)

    def _settle(self, pending: Pending) -> None:
        open_here = self._pending.get(pending.connection, set())
        if pending in open_here:
            open_here.remove(pending)
            self._count(pending, -1)

    def _resolve(self, pending: Pending, answer: PartitionAnswer) -> None:
        if answer.error_code in RETRIABLE:
            return
        topic = self.topic_name(answer.topic, answer.topic_id)
        for batch in pending.batches:
            if (batch.topic, batch.partition) == (topic, answer.partition) and batch.producer_id >= 0:
                self._windows[batch.key].resolved(batch)

    def _answer(self, pending: Pending, of: PartitionAnswer, throttle: int, now: float, delivered: bool) -> AnswerSeen:
        asked = (pending.header.correlation_id, pending.header.version)
        said = (self.topic_name(of.topic, of.topic_id), of.partition, of.error_code, of.base_offset, throttle)
        return AnswerSeen(*(now, *pending.place, *asked, *said, now - pending.arrived, delivered))

    def not_decoded(self, broker: int, connection: int, to_broker: bool, size: int, reason: str) -> None:
        with self._lock:
            self.undecoded.append(Undecoded(time.monotonic(), broker, connection, to_broker, size, reason))

    # ---- read by any thread

    def copy(self, seen: list[T]) -> list[T]:
        with self._lock:
            return list(seen)

    def connections(self) -> list[ConnectionSeen]:
        with self._lock:
            return list(self._connections.values())

    def in_flight(self) -> InFlight:
        with self._lock:
            return InFlight(*self._total.values())

    def per_connection(self) -> dict[int, InFlight]:
        with self._lock:
            return {number: InFlight(*gauge.values()) for number, gauge in self._per_connection.items()}

    def per_stream(self) -> dict[PartitionKey, Stream]:
        with self._lock:
            streams = {}
            for key, gauge in self._per_stream.items():
                window = self._windows.get(key, Window())
                streams[key] = Stream(*gauge.values(), span=window.span, max_span=window.max_span)
            return streams

    def reset(self) -> None:
        """Forget what was seen and start the maxima at what is in flight now; retries are still told from firsts."""
        with self._lock:
            for seen in (self.requests, self.batches, self.answers, self.undecoded):
                seen.clear()
            self._connections = {n: c for n, c in self._connections.items() if c.closed_at is None}
            self._total.restart()
            self._per_connection = busy(self._per_connection)
            self._per_stream = busy(self._per_stream)
            for window in self._windows.values():
                window.max_span = window.span
