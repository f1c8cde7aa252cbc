"""Produce requests and answers as typed values: what was written, and what the broker said about it.

Record batches are known by their 61-byte header alone (message format 2, KIP-98); records are never unpacked.
"""

import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

from safeproducer.policy import window
from safeproducer.testing.codec import Body, WireError
from safeproducer.testing.wire import RequestHeader, crc32c, decode_request, decode_response

_BATCH = struct.Struct(">qiibIhiqqqhii")
_OFFSET_AND_LENGTH = 12
_CRC_AT = 17
_CHECKED_FROM = 21  # the CRC covers everything behind itself
_ATTRIBUTES_AT, _MAX_TIMESTAMP_AT = 21, 35
_LOG_APPEND_TIME = 0x8
_SEQUENCES = 1 << 31


class CorruptBatchError(WireError):
    """Bytes that are no record batch of any message format."""


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """The header of one record batch; ``size`` is its bytes including the header."""

    base_offset: int
    size: int
    leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    epoch: int
    base_sequence: int
    count: int

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; numbers go on at 0 after 2^31 - 1. -1 without idempotence."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCES

    @property
    def compression(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & 0x7

    @property
    def log_append_time(self) -> bool:
        """Whether all records have the broker's time, which is ``max_timestamp``."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & 0x10)

    @property
    def control(self) -> bool:
        """Whether the batch is a transaction marker, not user records."""
        return bool(self.attributes & 0x20)


@dataclass(frozen=True, slots=True)
class ProducedBatch:
    """One batch of a Produce request. The topic has a name (up to v12) or an id (from v13)."""

    topic: str | None
    topic_id: uuid.UUID | None
    partition: int
    header: BatchHeader
    data: memoryview

    def crc_matches(self) -> bool:
        """Whether the checksum fits the bytes."""
        return crc32c(self.data[_CHECKED_FROM:]) == self.header.crc

    def stamped(self, now_ms: int) -> "ProducedBatch":
        """The same batch with the broker's time (``message.timestamp.type=LogAppendTime``)."""
        attributes, data = self.header.attributes | _LOG_APPEND_TIME, bytearray(self.data)
        struct.pack_into(">h", data, _ATTRIBUTES_AT, attributes)
        struct.pack_into(">q", data, _MAX_TIMESTAMP_AT, now_ms)
        crc = crc32c(memoryview(data)[_CHECKED_FROM:])
        struct.pack_into(">I", data, _CRC_AT, crc)
        header = replace(self.header, attributes=attributes, max_timestamp=now_ms, crc=crc)
        return replace(self, header=header, data=memoryview(data).toreadonly())


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """A Produce request; ``acks`` 0 means that no answer will come."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    batches: tuple[ProducedBatch, ...]


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    """A broker's answer for one partition of a Produce request; ``error_code`` 0 is success.

    ``batches_to_retain`` is KIP-1269's field; None if it is missing, which means 5.
    """

    topic: str | None
    topic_id: uuid.UUID | None
    partition: int
    error_code: int
    base_offset: int
    error_message: str | None
    batches_to_retain: int | None = None


@dataclass(frozen=True, slots=True)
class ProduceAnswer:
    """A Produce answer. ``throttle_time_ms`` is how long the client is asked to stay silent (KIP-219)."""

    correlation_id: int
    throttle_time_ms: int
    partitions: tuple[PartitionAnswer, ...]


def read_batch_headers(records: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The header and the bytes of each batch in ``records``.

    Raises WireError for a batch cut short or of an old format, CorruptBatchError for what was never one.
    """
    pos = 0
    while pos < len(records):
        left = len(records) - pos
        if left < _BATCH.size:
            raise WireError(f"{left} bytes are too few for a record batch")
        base_offset, length, leader_epoch, magic, crc, attributes, *rest = _BATCH.unpack_from(records, pos)
        if not 0 <= magic <= 2:
            raise CorruptBatchError(f"there is no message format {magic}")
        if magic != 2:
            raise WireError(f"message format {magic} has no batch header; Kafka 4 takes format 2 only")
        size = length + _OFFSET_AND_LENGTH
        if size < _BATCH.size:
            raise CorruptBatchError(f"a record batch declares {size} bytes, less than its header has")
        if size > left:
            raise WireError(f"a record batch declares {size} bytes, {left} are left")
        yield BatchHeader(base_offset, size, leader_epoch, crc, attributes, *rest), records[pos : pos + size]
        pos += size


def _topic(topic: Body) -> tuple[str | None, uuid.UUID | None]:
    return topic.get("name"), topic.get("topic_id")


def read_produce(header: RequestHeader, frame: bytes) -> ProduceRequest:
    """The Produce request in this frame; ``header`` is the one read from it. Raises WireError."""
    body = decode_request(header, frame)
    batches = tuple(
        ProducedBatch(*_topic(topic), partition["index"], batch, data)
        for topic in body["topic_data"]
        for partition in topic["partition_data"]
        for batch, data in read_batch_headers(partition["records"] or memoryview(b""))
    )
    return ProduceRequest(body["transactional_id"], body["acks"], body["timeout_ms"], batches)


def read_produce_answer(version: int, frame: bytes) -> ProduceAnswer:
    """The answer to a Produce request of this version. Raises WireError."""
    correlation, body = decode_response("Produce", version, frame)
    partitions = tuple(
        PartitionAnswer(
            *_topic(topic),
            answer["index"],
            answer["error_code"],
            answer["base_offset"],
            answer.get("error_message"),
            answer.get(window.FIELD, topic.get(window.FIELD)),
        )
        for topic in body["responses"]
        for answer in topic["partition_responses"]
    )
    return ProduceAnswer(correlation, body["throttle_time_ms"], partitions)
