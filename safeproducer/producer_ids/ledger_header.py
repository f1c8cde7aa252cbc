"""The first 64 bytes of a ledger, which decide: version, how far the hour is used, and how many were counted.

The time up to which the hour is used is there by the boot clock, which no step of the time of day moves, and by the
time of day for another start of the system. Magic, version and checksum are where they are in each version to come.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass
from enum import Enum

from safeproducer.policy.permits import HOUR, MOST_DEBT
from safeproducer.producer_ids.permit_record import Times

SIZE = 64
VERSION = 1
_MAGIC = b"SPid"
_FORM = struct.Struct("<4sHxxQQqqQ12xI")
_CHECKED = SIZE - 4
_LIMIT = 2**62
LATEST = HOUR + MOST_DEBT
"""Seconds from now, beyond which nothing that we wrote can be."""


class Unreadable(Enum):
    """Why there is no header."""

    DAMAGED = "damaged"
    NEWER = "of a newer version"


@dataclass(slots=True)
class Header:
    """`generation` names this count, which begins anew when all copies are gone; 0 for `boot_id`: not known."""

    generation: int
    boot_id: int
    until: Times
    count: int

    def used_until(self, now: Times, boot_id: int) -> float:
        """By the boot clock of the present."""
        if boot_id and boot_id == self.boot_id:
            return min(self.until.boot, now.boot + LATEST)
        # At another start of the system the clock of the day may have been set: the hour and the debt began to come
        # back when the system started, at the latest.
        latest = LATEST if boot_id and self.boot_id else now.boot + LATEST
        return min(now.boot + self.until.wall - now.wall, latest, now.boot + LATEST)


def nanoseconds(seconds: float) -> int:
    """Rounded up: nothing may be granted by a rounding."""
    found = math.ceil(seconds * 1e9)
    return found if -_LIMIT <= found <= _LIMIT else max(-_LIMIT, min(found, _LIMIT))


def encode(header: Header) -> bytes:
    """64 bytes."""
    body = _FORM.pack(
        _MAGIC,
        VERSION,
        header.generation,
        header.boot_id,
        nanoseconds(header.until.boot),
        nanoseconds(header.until.wall),
        header.count,
        0,
    )[:_CHECKED]
    return body + zlib.crc32(body).to_bytes(4, "little")


def decode(data: bytes) -> Header | Unreadable:
    if len(data) < SIZE:
        return Unreadable.DAMAGED
    magic, version, generation, boot_id, boot, wall, count, check = _FORM.unpack_from(data)
    if magic != _MAGIC or check != zlib.crc32(data[:_CHECKED]):
        return Unreadable.DAMAGED
    if version > VERSION:
        return Unreadable.NEWER
    return Header(generation, boot_id, Times(boot / 1e9, wall / 1e9), count)
