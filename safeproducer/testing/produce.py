"""Batches of records, known by their 61-byte header alone (message format 2, KIP-98); records are never unpacked."""

import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

import google_crc32c

from safeproducer.testing.codec import WireError

_BATCH = struct.Struct(">qiibIhiqqqhii")
_OFFSET_AND_LENGTH = 12
_CRC_AT = 17
_CHECKED_FROM = 21  # the CRC covers everything behind itself
_ATTRIBUTES_AT, _MAX_TIMESTAMP_AT = 21, 35
_LOG_APPEND_TIME = 0x8
_SEQUENCES = 1 << 31


def crc32c(data: bytes | memoryview) -> int:
    """CRC-32C (Castagnoli), the checksum of record batches."""
    return int(google_crc32c.value(bytes(data)))


class CorruptBatchError(WireError):
    """Bytes that are no record batch of any message format."""


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """The header of one record batch, by the names of Kafka's format.

    ``base_offset`` is that of its first record, ``last_offset_delta`` the last one's distance; ``count``: its records,
    ``size``: its bytes including the header. ``leader_epoch``, ``crc`` and ``attributes`` (compression, kind of
    timestamps); ``base_timestamp`` and ``max_timestamp`` in ms. ``producer_id``, ``epoch`` and ``base_sequence`` are -1
    without idempotence.
    """

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
        return crc32c(self.data[_CHECKED_FROM:]) == self.header.crc

    def stamped(self, now_ms: int) -> "ProducedBatch":
        """This batch with the broker's time (``message.timestamp.type=LogAppendTime``)."""
        attributes, data = self.header.attributes | _LOG_APPEND_TIME, bytearray(self.data)
        struct.pack_into(">h", data, _ATTRIBUTES_AT, attributes)
        struct.pack_into(">q", data, _MAX_TIMESTAMP_AT, now_ms)
        crc = crc32c(memoryview(data)[_CHECKED_FROM:])
        struct.pack_into(">I", data, _CRC_AT, crc)
        header = replace(self.header, attributes=attributes, max_timestamp=now_ms, crc=crc)
        return replace(self, header=header, data=memoryview(data).toreadonly())


_MARKER = struct.Struct(">bbbbhhbhib")
_CONTROL = 0x30
_KIND_AT = 69  # the lowest byte of the record's key


def marker(producer_id: int, epoch: int, coordinator_epoch: int, now_ms: int, *, commit: bool) -> bytes:
    """The batch that ends a transaction in a partition: one control record (KIP-98)."""
    record = b"\x20" + _MARKER.pack(0, 0, 0, 8, 0, int(commit), 12, 0, coordinator_epoch, 0)
    numbers = (0, now_ms, now_ms, producer_id, epoch, -1, 1)
    size = _BATCH.size + len(record)
    data = bytearray(_BATCH.pack(0, size - _OFFSET_AND_LENGTH, -1, 2, 0, _CONTROL, *numbers) + record)
    struct.pack_into(">I", data, _CRC_AT, crc32c(memoryview(data)[_CHECKED_FROM:]))
    return bytes(data)


def is_commit(data: bytes) -> bool:
    """Whether this marker is of a commit."""
    return data[_KIND_AT] == 1


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
