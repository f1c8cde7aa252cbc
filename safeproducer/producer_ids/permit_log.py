"""The records of a ledger: the last 256 permits, each with a checksum of its own, for people.

They decide only when a header is damaged, and only if none is missing: the latest of their times is not before the one
that the header had.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache

from safeproducer.policy import permits
from safeproducer.policy.permits import Kind
from safeproducer.producer_ids.ledger_header import Header, nanoseconds
from safeproducer.producer_ids.permit_record import ENDS, UNSENT, IdRecord, ProcessId, Times
from safeproducer.records import CallSite

SLOTS = 256
SIZE = 256
_KINDS = list(Kind)
_CHECK = struct.Struct("<I")
_FORM = struct.Struct("<BBBBQQIIQ8xQqqqqqI")
_TEXT = SIZE - _CHECK.size - _FORM.size
_FUNCTION = 48
_BLANK = bytes(SIZE)
_SITES = 64
"""Lines of code of this process whose text is kept: most have one that makes producers."""


def slot(number: int) -> int:
    """Where the record of the permit with this number is."""
    return (number - 1) % SLOTS


@lru_cache(maxsize=_SITES)
def shown(site: CallSite) -> CallSite:
    """As it can be read back: the end of a long file name, the beginning of a long function name."""
    filename, function = _texts(site.filename, site.function)
    return CallSite(filename.decode(), site.line, function.decode())


def read_back(record: IdRecord) -> IdRecord:
    """One that no ledger has, as it would be in one."""
    return record._replace(site=shown(record.site))


@lru_cache(maxsize=_SITES)
def _texts(filename: str, function: str) -> tuple[bytes, bytes]:
    cut = _cut(function, _FUNCTION)
    return _cut(filename, _TEXT - len(cut), end=True), cut


def encode(record: IdRecord) -> bytes:
    filename, function = _texts(record.site.filename, record.site.function)
    body = (
        _FORM.pack(
            _KINDS.index(record.kind),
            ENDS.index(record.ended),
            len(filename),
            len(function),
            record.number,
            record.serial,
            record.process.pid & 0xFFFFFFFF,
            record.process.parent & 0xFFFFFFFF,
            record.process.token,
            record.boot_id,
            nanoseconds(record.at.boot),
            nanoseconds(record.at.wall),
            nanoseconds(record.until.boot),
            nanoseconds(record.until.wall),
            -1 if record.producer_id is None else record.producer_id,
            record.site.line & 0xFFFFFFFF,
        )
        + filename
        + function
    ).ljust(SIZE - _CHECK.size, b"\0")
    return zlib.crc32(body).to_bytes(_CHECK.size, "little") + body


@lru_cache(maxsize=2 * SLOTS)  # a producer that is refused again and again reads the same ones
def decode(data: bytes) -> IdRecord | None:
    """None for what is damaged or empty."""
    if len(data) != SIZE or _CHECK.unpack_from(data)[0] != zlib.crc32(data[4:]):
        return None
    kind, ended, filename, function, number, serial, pid, parent, token, boot_id, *rest = _FORM.unpack_from(data, 4)
    at, at_wall, until, until_wall, producer_id, line = rest
    begins = 4 + _FORM.size
    if kind >= len(_KINDS) or ended >= len(ENDS) or begins + filename + function > SIZE:
        return None  # a checksum that fits by chance
    texts = data[begins : begins + filename], data[begins + filename : begins + filename + function]
    return IdRecord(
        number,
        serial,
        ProcessId(pid, parent, token),
        _KINDS[kind],
        CallSite(texts[0].decode(errors="replace"), line, texts[1].decode(errors="replace")),
        Times(at / 1e9, at_wall / 1e9),
        Times(until / 1e9, until_wall / 1e9),
        boot_id,
        None if producer_id < 0 else producer_id,
        ENDS[ended],
    )


def records(data: bytes) -> list[IdRecord]:
    """All that can be read of a whole ring, in order."""
    found = [decode(data[begin : begin + SIZE]) for begin in range(0, len(data), SIZE)]
    return sorted((record for record in found if record is not None), key=lambda record: record.number)


def in_hour(young: Sequence[IdRecord], used: float, rate: float) -> int:
    """Permits that were granted within the hour and not given back. `young`: the records of that hour.

    They tell, unless the ring is full of them and may have lost older ones. Then the `used` seconds of the hour tell as
    well, at `rate`, up to the newest number. Alone they tell nothing: others may use up more of the hour with a permit.
    """
    counted = sum(record.ended != UNSENT for record in young)
    if len(young) < SLOTS:
        return counted
    newest, most = max(record.number for record in young), permits.in_hour(used, rate, 0.0)
    return max(counted, min(most, newest) if newest else most)  # no number: of a process that counts alone


def rebuilt(data: bytes, now: Times, boot_id: int) -> tuple[float | None, int]:
    """(the time up to which the hour is used, how many were counted) as the records of a whole ring tell.

    The time is None where a record is missing: the newest one may be it.
    """
    found = records(data)
    if not found:
        return None, 0
    last = found[-1].number
    until = max(Header(0, record.boot_id, record.until, 0).used_until(now, boot_id) for record in found)
    expected = range(last - len(found) + 1, last + 1)
    written = sum(data[begin : begin + SIZE] != _BLANK for begin in range(0, len(data), SIZE))
    whole = (
        len(data) == SLOTS * SIZE
        and len(found) == written == min(last, SLOTS)
        and [record.number for record in found] == list(expected)
    )
    return (until if whole else None), last


def _cut(text: str, size: int, end: bool = False) -> bytes:
    """At most `size` bytes, of whole characters."""
    data = text.encode(errors="replace")
    if len(data) <= size:
        return data
    data = data[-size:] if end else data[:size]
    return data.decode(errors="ignore").encode()
