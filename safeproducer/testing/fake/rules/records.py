"""Unpacks record batches by Kafka's four codecs (KIP-110), with cramjam where Python has none.

No batch is unpacked to more than :data:`MAX_UNPACKED` bytes: a small batch can claim to be a giant one.

The records inside a batch of message format 2 (KIP-98): for reading a log back, never on the produce path.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from safeproducer.testing.codec import WireError
from safeproducer.testing.produce import BatchHeader

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

MAX_UNPACKED = 100 * 1024 * 1024
_GZIP_WINDOW = 31
_FIRST_GUESS, _STEP = 64 * 1024, 16
_BLOCKS_MAGIC = b"\x82SNAPPY\0"
_BLOCKS_HEADER = 16
_SIZE = struct.Struct(">i")


def codec_name(codec: int) -> str:
    return _CODECS[codec] if codec < len(_CODECS) else f"codec {codec}"


def unpack(codec: int, packed: bytes) -> bytes:
    """The bytes behind a batch's header, uncompressed.

    Raises WireError for bytes that are not what the codec makes, for too many of them, for an unknown codec, and
    if cramjam is missing.
    """
    if codec == 0:
        return packed
    if codec == 1:
        return _gunzip(packed)
    if codec >= len(_CODECS):
        raise WireError("no codec has this number")
    name = _CODECS[codec]
    try:
        import cramjam  # noqa: PLC0415 - most clusters never read anything compressed
    except ImportError as error:
        raise WireError(f"reading {name} needs cramjam: install safeproducer[testing]") from error
    try:
        return _unsnap(cramjam.snappy, packed) if name == "snappy" else _grow(getattr(cramjam, name), packed)
    except cramjam.DecompressionError as error:
        raise WireError(f"not {name}: {error}") from error


def _too_much() -> WireError:
    return WireError(f"unpacked it is larger than {MAX_UNPACKED} bytes")


def _gunzip(packed: bytes) -> bytes:
    reader = zlib.decompressobj(_GZIP_WINDOW)
    try:
        unpacked = reader.decompress(packed, MAX_UNPACKED)
    except zlib.error as error:
        raise WireError(f"not gzip: {error}") from error
    if reader.unconsumed_tail:
        raise _too_much()
    if not reader.eof:
        raise WireError("not gzip: it is cut short")
    return unpacked


def _grow(library: Any, packed: bytes) -> bytes:
    """Frames of lz4 and zstd need not say how much they hold, so ever larger room is tried."""
    size = min(MAX_UNPACKED, max(_FIRST_GUESS, len(packed) * 8))
    while True:
        room = bytearray(size)
        try:
            used = library.decompress_into(packed, room)
            return bytes(memoryview(room)[:used])
        except Exception as error:
            if "whole buffer" not in str(error):
                raise
        if size == MAX_UNPACKED:
            raise _too_much()
        size = min(MAX_UNPACKED, size * _STEP)


def _unsnap(library: Any, packed: bytes) -> bytes:
    """One raw block, as librdkafka writes it, or blocks with their sizes, as Java does."""
    if not packed.startswith(_BLOCKS_MAGIC):
        return _unsnap_block(library, packed, MAX_UNPACKED)
    unpacked, pos = bytearray(), _BLOCKS_HEADER
    while pos < len(packed):
        if len(packed) - pos < _SIZE.size:
            raise WireError("not snappy: it is cut short")
        (size,) = _SIZE.unpack_from(packed, pos)
        pos += _SIZE.size
        if not 0 <= size <= len(packed) - pos:
            raise WireError(f"not snappy: a block declares {size} bytes, {len(packed) - pos} are left")
        unpacked += _unsnap_block(library, packed[pos : pos + size], MAX_UNPACKED - len(unpacked))
        pos += size
    return bytes(unpacked)


def _unsnap_block(library: Any, block: bytes, most: int) -> bytes:
    if library.decompress_raw_len(block) > most:
        raise _too_much()
    return bytes(library.decompress_raw(block))


_HEADER_SIZE = 61
_SEQUENCES = 1 << 31
_VARINT_BITS = 70


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
            header.base_offset + delta, stamp, key, value, tuple(headers), header.producer_id, header.epoch, sequence
        )
