"""The lines of a ledger: what people are told of each permit, as JSON. A later line adds to that of a permit.

They do not say how far the hour is used. They tell which permits were counted or went back, and which transactional IDs
are known. Each begins with its line break: a full disk may have cut the one before.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

from safeproducer.policy import permits
from safeproducer.policy.permits import HOUR, Kind
from safeproducer.producer_ids import permit_record
from safeproducer.producer_ids.permit import Permit
from safeproducer.producer_ids.permit_record import UNSENT, IdRecord, ProcessId, Times
from safeproducer.records import CallSite

SURE = 256
"""Permits whose lines are there at least, unless their paths are very long."""
MOST, _KEPT = 196_608, 131_072
"""Bytes. So many stay when there are more than that."""
_PERMIT = b'\n{"permit":"'
_encode = json.JSONEncoder(separators=(",", ":")).encode


def _line(**said: object) -> bytes:
    return b"\n" + _encode(said).encode()


def _key(permit: Permit) -> str:
    return f"{permit_record.this().token:016x}-{permit.serial}"


def granted(permit: Permit, at: Times) -> bytes:
    (pid, parent, _), site, boot = permit_record.this(), permit.site, permit_record.boot_id()
    more = {"kind": permit.kind.value, "known": permit.known}
    return _line(
        permit=_key(permit), pid=(pid, parent), site=(site.filename, site.line, site.function), at=at, boot=boot, **more
    )


def noted(permit: Permit, producer_id: int | None, ended: str | None) -> bytes:
    return _line(of=_key(permit), producer_id=producer_id, ended=ended)


def went_back(permit: Permit) -> bytes:
    """The line that says so, always the same: a permit goes back once, and its transactional ID is not known then."""
    return _line(of=_key(permit), ended=UNSENT, forgotten=permit.known)


def is_in_use(permit: Permit, lines: bytes) -> bool:
    """Whether `lines` have it, and it did not go back."""
    return b'%b%b"' % (_PERMIT, _key(permit).encode()) in lines and went_back(permit) not in lines


def knows(lines: bytes, known: str) -> bool:
    """Whether this hash of a transactional ID was learned, and not forgotten since."""
    return lines.rfind(b'"known":"%b"' % known.encode()) > lines.rfind(b'"forgotten":"%b"' % known.encode())


def count(lines: bytes) -> int:
    return lines.count(_PERMIT)


def latest(lines: bytes) -> bytes:
    """Without the oldest ones, if there are too many."""
    return lines if len(lines) <= MOST else lines[lines.find(b"\n", len(lines) - _KEPT) :]


def records(lines: bytes, now: Times | None = None) -> list[IdRecord]:
    """All permits that can be read, in order; with `now` those of the last hour that did not go back.

    One that went back stays so, whatever is said of it later.
    """
    found, added = dict[str, IdRecord](), dict[str, tuple[int | None, str]]()
    for key, said in filter(None, map(_parsed, reversed(lines.split(b"\n")))):
        producer_id, ended = added.get(key, (None, ""))
        if not isinstance(said, IdRecord):
            later = ended if ended and said[1] != UNSENT else said[1]
            added[key] = said[0] if producer_id is None else producer_id, later
        elif now is not None and said.age(now, permit_record.boot_id()) >= HOUR:
            break
        elif now is None or ended != UNSENT:
            found[key] = said._replace(producer_id=producer_id, ended=ended)
    return list(found.values())[::-1]


@lru_cache(maxsize=4 * SURE)  # a producer that is refused again and again reads the same ones
def _parsed(line: bytes) -> tuple[str, IdRecord | tuple[int | None, str]] | None:
    """The key of a permit with its record, or with what is added to it; None for all else, and for what is damaged."""
    try:
        said = json.loads(line)
        if "of" in said:
            producer_id = said.get("producer_id")
            return str(said["of"]), (None if producer_id is None else int(producer_id), str(said.get("ended") or ""))
        (filename, number, function), (boot, wall), (pid, parent) = said["site"], said["at"], said["pid"]
        process = ProcessId(int(pid), int(parent), int(said["permit"].partition("-")[0], 16))
        site, at = CallSite(str(filename), int(number), str(function)), Times(float(boot), float(wall))
        return said["permit"], IdRecord(process, Kind(said["kind"]), site, at, int(said["boot"]))
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        return None


def in_hour(recent: Sequence[IdRecord], used: float, rate: float) -> int:
    """Permits that were granted within the hour and not given back. `recent`: those of them that can be read.

    They tell, unless they are so many that older ones may be gone. Then the `used` seconds of the hour tell as well, at
    `rate`: others may use up more of the hour with a permit.
    """
    return len(recent) if len(recent) < SURE else max(len(recent), permits.in_hour(used, rate, 0.0))
