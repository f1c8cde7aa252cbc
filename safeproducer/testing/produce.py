"""Batches of records, known by their 61-byte header alone (message format 2, KIP-98), and the records inside.

Records are unpacked for reading a log back, never on the produce path: by Kafka's four codecs (KIP-110), with cramjam
where Python has none.
"""

import gzip
import struct
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import google_crc32c

from safeproducer.testing.codec import WireError

_BATCH = struct.Struct(">qiibIhiqqqhii")
_OFFSET_AND_LENGTH = 12
_CRC_AT = 17
_CHECKED_FROM = 21  # the CRC covers everything behind itself
_ATTRIBUTES_AT, _MAX_TIMESTAMP_AT = 21, 35
_LOG_APPEND_TIME = 0x8
_SEQUENCES = 1 << 31
_MARKER = struct.Struct(">bbbbhhbhib")
_CONTROL = 0x30
_KIND_AT = 69  # the lowest byte of the record's key
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_BLOCKS_MAGIC = b"\x82SNAPPY\0"
_BLOCKS_HEADER = 16
_SIZE = struct.Struct(">i")
_VARINT_BITS = 70


def crc32c(data: bytes | memoryview) -> int:
    """CRC-32C (Castagnoli), the checksum of record batches."""
    return int(google_crc32c.value(bytes(data)))


class CorruptBatchError(WireError):
    """Bytes that are no record batch of any message format."""


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """The header of one record batch, by the names of Kafka's format.

    ``base_offset`` is that of its first record, ``last_offset_delta`` the last one's distance; ``count``: its records,
    ``size``: its bytes including the header. ``leader_epoch``, ``crc`` and ``attributes`` (compression, timestamps);
    ``base_timestamp``, ``max_timestamp``: ms. ``producer_id``, ``epoch``, ``base_sequence``: -1 without idempotence.
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


# ---- the records inside


def unpack(codec: int, packed: bytes) -> bytes:
    """The bytes behind a batch's header, uncompressed.

    Raises WireError for bytes that are not what the codec makes, for an unknown codec, and if cramjam is missing.
    """
    if codec == 0:
        return packed
    if codec >= len(_CODECS):
        raise WireError("no codec has this number")
    name = _CODECS[codec]
    if name == "gzip":
        try:
            return gzip.decompress(packed)
        except (EOFError, OSError, zlib.error) as error:
            raise WireError(f"not gzip: {error}") from error
    try:
        import cramjam  # noqa: PLC0415 - most clusters never read anything compressed
    except ImportError as error:
        raise WireError(f"reading {name} needs cramjam: install safeproducer[testing]") from error
    try:
        return _unsnap(cramjam.snappy, packed) if name == "snappy" else bytes(getattr(cramjam, name).decompress(packed))
    except cramjam.DecompressionError as error:
        raise WireError(f"not {name}: {error}") from error


def _unsnap(library: Any, packed: bytes) -> bytes:
    """One raw block, as librdkafka writes it, or blocks with their sizes, as Java does."""
    if not packed.startswith(_BLOCKS_MAGIC):
        return bytes(library.decompress_raw(packed))
    unpacked, pos = bytearray(), _BLOCKS_HEADER
    while pos < len(packed):
        if len(packed) - pos < _SIZE.size:
            raise WireError("not snappy: it is cut short")
        (size,) = _SIZE.unpack_from(packed, pos)
        pos += _SIZE.size
        if not 0 <= size <= len(packed) - pos:
            raise WireError(f"not snappy: a block declares {size} bytes, {len(packed) - pos} are left")
        unpacked += library.decompress_raw(packed[pos : pos + size])
        pos += size
    return bytes(unpacked)


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record in a partition's log: ``offset``, ``timestamp`` in ms, ``key``, ``value`` and ``headers``.

    ``producer_id``, ``epoch`` and ``sequence`` are the producer's, -1 without idempotence.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    producer_id: int
    epoch: int
    sequence: int


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    value = shift = 0
    while shift < _VARINT_BITS:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), pos
        shift += 7
    raise WireError(f"a number ends not before byte {pos}")


def _blob(data: bytes, pos: int) -> tuple[bytes | None, int]:
    length, pos = _varint(data, pos)
    if length < 0:
        return None, pos
    if length > len(data) - pos:
        raise WireError(f"a record declares {length} bytes, {len(data) - pos} are left")
    return data[pos : pos + length], pos + length


def read_records(header: BatchHeader, data: bytes) -> Iterator[StoredRecord]:
    """The records of this batch. Raises WireError for bytes that are none, or cannot be unpacked."""
    try:
        yield from _read(header, unpack(header.compression, data[_BATCH.size :]))
    except (IndexError, UnicodeDecodeError, WireError) as error:
        codec = header.compression
        name = _CODECS[codec] if codec < len(_CODECS) else f"codec {codec}"
        packed = f", packed with {name}," if codec else ""
        text = f"the batch at offset {header.base_offset}{packed} cannot be read: {error}"
        raise WireError(f"{text}; batches() shows its header") from error


def _read(header: BatchHeader, data: bytes) -> Iterator[StoredRecord]:
    pos = 0
    for _ in range(header.count):
        _, pos = _varint(data, pos)
        timestamp, pos = _varint(data, pos + 1)
        delta, pos = _varint(data, pos)
        key, pos = _blob(data, pos)
        value, pos = _blob(data, pos)
        count, pos = _varint(data, pos)
        headers = []
        for _ in range(count):
            name, pos = _blob(data, pos)
            content, pos = _blob(data, pos)
            headers.append((str(name or b"", "utf-8"), content))
        stamp = header.max_timestamp if header.log_append_time else header.base_timestamp + timestamp
        sequence = -1 if header.base_sequence < 0 else (header.base_sequence + delta) % _SEQUENCES
        yield StoredRecord(
            header.base_offset + delta, stamp, key, value, tuple(headers), header.producer_id, header.epoch, sequence
        )
