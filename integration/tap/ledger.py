"""The tap's bookkeeping: what was seen."""

import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TypeVar
from uuid import UUID

from integration.tap.seen import (
    AnswerSeen,
    BatchSeen,
    ConnectionSeen,
    RequestSeen,
    Undecoded,
)
from safeproducer.testing.produce import ProducedBatch
from safeproducer.testing.wire import RequestHeader
from tests.produce_messages import PartitionAnswer, ProduceAnswer

T = TypeVar("T")


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


class Ledger:
    """Written by the tap's thread, read by any; every reader gets a copy."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: dict[int, ConnectionSeen] = {}
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
        with self._lock:
            self._connections[connection] = replace(self._connections[connection], closed_at=time.monotonic())

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
            for batch in produced or ():
                seen = self._batch(pending, batch)
                pending.batches.append(seen)
                self.batches.append(seen)

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

    def answer(self, pending: Pending, answer: ProduceAnswer, delivered: bool) -> None:
        """A Produce answer left for the client (`delivered`), or was swallowed."""
        now = time.monotonic()
        with self._lock:
            for partition in answer.partitions:
                self.answers.append(self._answer(pending, partition, answer.throttle_time_ms, now, delivered))

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

    def reset(self) -> None:
        """Forget what was seen; retries are still told from firsts."""
        with self._lock:
            for seen in (self.requests, self.batches, self.answers, self.undecoded):
                seen.clear()
            self._connections = {n: c for n, c in self._connections.items() if c.closed_at is None}
