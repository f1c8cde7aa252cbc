"""The records inside a batch of message format 2 (KIP-98): for reading a log back, never on the produce path."""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from safeproducer.testing.codec import WireError
from safeproducer.testing.produce import BatchHeader

__all__ = ["StoredRecord", "read_records"]

_HEADER_SIZE = 61
_SEQUENCES = 1 << 31
_CODECS = {2: "snappy", 3: "lz4", 4: "zstd"}


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record in a partition's log. Without idempotence the producer's three numbers are -1."""

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
    while True:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), pos
        shift += 7


def _blob(data: bytes, pos: int) -> tuple[bytes | None, int]:
    length, pos = _varint(data, pos)
    if length < 0:
        return None, pos
    if length > len(data) - pos:
        raise WireError(f"a record declares {length} bytes, {len(data) - pos} are left")
    return data[pos : pos + length], pos + length


def _unpacked(header: BatchHeader, data: bytes) -> bytes:
    packed = data[_HEADER_SIZE:]
    if header.compression == 0:
        return packed
    if header.compression == 1:
        return zlib.decompress(packed, 31)
    codec = _CODECS.get(header.compression, "an unknown codec")
    raise WireError(
        f"the batch at offset {header.base_offset} is packed with {codec}, which is not read here: "
        "read it with a consumer, or look at batches() instead"
    )


def read_records(header: BatchHeader, data: bytes) -> Iterator[StoredRecord]:
    """The records of this batch, plain or gzip. Raises WireError for other codecs and for bytes that are no records."""
    try:
        yield from _read(header, _unpacked(header, data))
    except (IndexError, UnicodeDecodeError, struct.error, zlib.error) as error:
        raise WireError(f"the batch at offset {header.base_offset} holds no records: {error}") from error


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
        sequence = -1 if header.base_sequence < 0 else (header.base_sequence + delta) % _SEQUENCES
        yield StoredRecord(
            header.base_offset + delta,
            header.base_timestamp + timestamp,
            key,
            value,
            tuple(headers),
            header.producer_id,
            header.epoch,
            sequence,
        )
