"""The records inside a batch of message format 2 (KIP-98): for reading a log back, never on the produce path."""

from collections.abc import Iterator
from dataclasses import dataclass

from safeproducer.testing.codec import WireError
from safeproducer.testing.fake.rules.compression import codec_name, unpack
from safeproducer.testing.produce import BatchHeader

__all__ = ["StoredRecord", "read_records"]

_HEADER_SIZE = 61
_SEQUENCES = 1 << 31
_VARINT_BITS = 70


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
        yield from _read(header, unpack(header.compression, data[_HEADER_SIZE:]))
    except (IndexError, UnicodeDecodeError, WireError) as error:
        packed = "" if not header.compression else f", packed with {codec_name(header.compression)},"
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
            header.base_offset + delta,
            stamp,
            key,
            value,
            tuple(headers),
            header.producer_id,
            header.epoch,
            sequence,
        )
