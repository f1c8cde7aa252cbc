"""What a tap saw: plain values, safe to keep and to compare."""

from dataclasses import dataclass
from typing import NamedTuple


class PartitionKey(NamedTuple):
    """One producer's stream to one partition; every producer without idempotence has the id -1."""

    producer_id: int
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class RequestSeen:
    """One request of any API. `time` is `time.monotonic()` when its last byte reached the tap."""

    time: float
    broker: int
    connection: int
    api: str
    version: int
    correlation_id: int
    client_id: str | None
    size: int


@dataclass(frozen=True, slots=True)
class BatchSeen:
    """One record batch on its way to a broker.

    `attempt` is 1 for the first time this (producer id, epoch, base sequence, topic, partition) was seen, 2 for its
    first retry; always 1 without idempotence. `size` is in bytes, `connection` numbers the tap's connections from 1.
    `crc` is the checksum the client wrote, which the broker keeps: the same batch in the log has the same.
    """

    time: float
    broker: int
    connection: int
    client_id: str | None
    producer_id: int
    epoch: int
    base_sequence: int
    count: int
    topic: str
    partition: int
    correlation_id: int
    version: int
    size: int
    crc: int
    attempt: int
    transactional: bool

    @property
    def key(self) -> PartitionKey:
        """The stream this batch belongs to."""
        return PartitionKey(self.producer_id, self.topic, self.partition)

    @property
    def identity(self) -> tuple[PartitionKey, int, int]:
        """What a broker tells a retry by: stream, epoch, base sequence."""
        return self.key, self.epoch, self.base_sequence


@dataclass(frozen=True, slots=True)
class AnswerSeen:
    """A broker's word on one partition of a Produce request, as the client got it (faults included).

    `delivered` is False when the client never got it: dropped, or its connection ended first. `duration` is the time
    in seconds from the request's arrival at the tap to now.
    """

    time: float
    broker: int
    connection: int
    correlation_id: int
    version: int
    topic: str
    partition: int
    error_code: int
    base_offset: int
    throttle_time_ms: int
    duration: float
    delivered: bool


@dataclass(frozen=True, slots=True)
class Undecoded:
    """A frame that went through untouched because the tap could not read it."""

    time: float
    broker: int
    connection: int
    to_broker: bool
    size: int
    reason: str


@dataclass(frozen=True, slots=True)
class ConnectionSeen:
    """A client's connection; `closed_at` is None while it is open."""

    number: int
    broker: int
    client_id: str | None
    opened_at: float
    closed_at: float | None
