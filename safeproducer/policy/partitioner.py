"""Which partition a record goes to: librdkafka's partitioners, by their names.

A record that is held back waits in its partition's partition buffer, so its partition must be known before librdkafka
sees it, and must be the one that librdkafka would have chosen: a key that changes its partition loses its order.
Followed: rd_kafka_msg_partitioner() and its kin in librdkafka's rdkafka_msg.c, rdmurmur2.c, rdfnv1a.c.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache
from struct import unpack_from

ANY = -1  # librdkafka would choose at random, or stay with its sticky partition: the record may go anywhere

DEFAULT = "consistent_random"  # librdkafka's partitioner when `partitioner` is not set

Partitioner = Callable[[bytes | None, int], int]
"""(key, partition count) -> partition or ANY. The count must be at least 1."""

_MASK = 0xFFFFFFFF
_MEMOISED_KEY_BYTES = 64


def partitioner(name: str) -> Partitioner:
    """The partitioner that librdkafka calls `name`.

    A record without a key: `consistent`, `murmur2` and `fnv1a` hash it as the empty key; the others answer ANY. The
    empty key is a key like any other, except to `consistent_random`, which answers ANY. `random` always does.

    The result is a pure function, safe to share between threads. Raises ValueError for a name librdkafka has not.
    """
    try:
        return PARTITIONERS[name]
    except KeyError:
        raise ValueError(f"partitioner {name!r} is unknown; use one of {', '.join(PARTITIONERS)}") from None


def murmur2(key: bytes) -> int:
    """MurmurHash2 with the Java client's seed, made positive as Java does it: by dropping the highest bit."""
    factor = 0x5BD1E995
    length = len(key)
    value = 0x9747B28C ^ length & _MASK
    words = length >> 2
    for word in unpack_from(f"<{words}I", key):
        mixed = word * factor & _MASK
        value = (value * factor ^ (mixed ^ mixed >> 24) * factor) & _MASK
    tail = key[words << 2 :]
    if tail:
        value = (value ^ int.from_bytes(tail, "little")) * factor & _MASK
    value = (value ^ value >> 13) * factor & _MASK
    return (value ^ value >> 15) & 0x7FFFFFFF


def fnv1a(key: bytes) -> int:
    """FNV-1a as Sarama's hash partitioner has it: read as a signed number and made positive by its absolute value."""
    value = 0x811C9DC5
    for octet in key:
        value = (value ^ octet) * 0x01000193 & _MASK
    return value if value < 1 << 31 else (1 << 32) - value


def _memoised(hashed: Callable[[bytes], int]) -> Callable[[bytes], int]:
    """Keys come again and again, and a hash in Python costs a microsecond; long keys are not worth the memory."""
    remembered = lru_cache(maxsize=8192)(hashed)

    def look_up(key: bytes) -> int:
        return remembered(key) if len(key) <= _MEMOISED_KEY_BYTES else hashed(key)

    return look_up


def _of_every_key(hashed: Callable[[bytes], int]) -> Partitioner:
    return lambda key, count: hashed(key or b"") % count


def _of_keys_that_are_there(hashed: Callable[[bytes], int]) -> Partitioner:
    return lambda key, count: ANY if key is None else hashed(key) % count


_murmur2 = _memoised(murmur2)
_fnv1a = _memoised(fnv1a)

PARTITIONERS: dict[str, Partitioner] = {
    "random": lambda _key, _count: ANY,
    "consistent": _of_every_key(zlib.crc32),
    "consistent_random": lambda key, count: zlib.crc32(key) % count if key else ANY,
    "murmur2": _of_every_key(_murmur2),
    "murmur2_random": _of_keys_that_are_there(_murmur2),
    "fnv1a": _of_every_key(_fnv1a),
    "fnv1a_random": _of_keys_that_are_there(_fnv1a),
}
NAMES = tuple(PARTITIONERS)
