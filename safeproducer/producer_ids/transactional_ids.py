"""The transactional IDs that a ledger knows, as hashes: 512 of them, the latest ones.

A table of 64 sets of eight. Only one set is read for each question.
"""

from __future__ import annotations

import struct
import zlib
from hashlib import blake2b

SETS, WAYS = 64, 8
_FORM = struct.Struct("<QqI")
SIZE = 24
SET_SIZE = WAYS * SIZE
TABLE_SIZE = SETS * SET_SIZE


def hashed(transactional_id: str, identity: tuple[str, str]) -> int:
    """A number that differs between clusters and principals, and is never 0."""
    key = blake2b("\0".join(identity).encode(errors="surrogatepass"), digest_size=32).digest()
    digest = blake2b(transactional_id.encode(errors="surrogatepass"), digest_size=8, key=key).digest()
    return int.from_bytes(digest, "little") or 1


def set_of(known: int) -> int:
    return known % SETS


def encode(known: int, used: int) -> bytes:
    """24 bytes: a hash, and when it was used last, in nanoseconds by the time of day."""
    body = struct.pack("<Qq", known, used)
    return (body + struct.pack("<I", zlib.crc32(body))).ljust(SIZE, b"\0")


FORGOTTEN = bytes(SIZE)
"""In the place of a hash."""


def find(table: bytes, known: int) -> tuple[bool, int]:
    """(whether a set holds it, which place of the set is its own, or the one to give it)."""
    oldest, place = None, 0
    for number in range(WAYS):
        data = table[number * SIZE : (number + 1) * SIZE]
        entry = _decode(data)
        if entry is not None and entry[0] == known:
            return True, number
        used = -(2**63) if entry is None else entry[1]
        if oldest is None or used < oldest:
            oldest, place = used, number
    return False, place


def _decode(data: bytes) -> tuple[int, int] | None:
    if len(data) != SIZE:
        return None
    known, used, check = _FORM.unpack_from(data)
    return (known, used) if known and check == zlib.crc32(data[:16]) else None
