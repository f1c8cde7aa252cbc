"""A ledger: what the processes of a host count permits in, in one or two copies of which the larger count holds.

A copy is a file: a header, which decides, and lines for people. Each round opens, locks, reads, writes and closes the
copies. Nothing stays open between rounds: a process may close all of its descriptors when it becomes a daemon.

A lock excludes threads as well as processes, because each round has a descriptor of its own. It ends with the
descriptor, which ends with its object: nothing stays locked behind a signal handler that raises.
"""

from __future__ import annotations

import math
import os
import struct
import sys
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from io import FileIO

from safeproducer.policy.permits import HOUR, MOST_DEBT
from safeproducer.producer_ids import ledger_places, permit_log, permit_record
from safeproducer.producer_ids.ledger_places import SUFFIX, Place
from safeproducer.producer_ids.permit_record import Times
from safeproducer.runtime import clock, forks
from safeproducer.runtime.patience import Patience, until

WAITS = 0.05
"""Seconds for which a round waits for another one, at most."""
LATEST = HOUR + MOST_DEBT
"""Seconds from now, beyond which nothing that we wrote can be."""
SIZE, VERSION = 64, 2
_MOST = SIZE + permit_log.MOST
DAMAGED, NEWER = "damaged", "of a newer version"
_MAGIC = b"SPid"
_MAKES = os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
_FORM, _FARTHEST = struct.Struct("<4sHxxQqqQ20xI"), (1 << 63) - 1

if sys.platform == "win32":
    import msvcrt

    def _locked(file: FileIO) -> bool:
        file.seek(1 << 30)  # behind all content: nobody may read what is locked
        with suppress(OSError):
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            return file.seek(0) == 0
        return False
else:
    import fcntl

    def _locked(file: FileIO) -> bool:
        with suppress(BlockingIOError):
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False


@dataclass(frozen=True, slots=True)
class Header:
    """Up to when the hour is used up, by both clocks, and how many permits were counted; 0 for `boot_id`: not known.

    Each permit moves that time on by 3600 s / rate: `policy/permits.py`.
    """

    boot_id: int
    until: Times
    count: int

    def used_until(self, now: Times, boot_id: int) -> float:
        """By the boot clock of the present, which no step of the time of day moves."""
        if boot_id and boot_id == self.boot_id:
            return min(self.until.boot, now.boot + LATEST)
        # At another start of the system the clock of the day may have been set: the hour and the debt began to come
        # back when the system started, at the latest.
        latest = LATEST if boot_id and self.boot_id else now.boot + LATEST
        return min(now.boot + self.until.wall - now.wall, latest, now.boot + LATEST)


def encode(header: Header) -> bytes:
    """64 bytes. Times are rounded up, so that nothing is granted by that, and end where the field does."""
    boot, wall = (max(-_FARTHEST, min(math.ceil(time * 1e9), _FARTHEST)) for time in header.until)
    body = _FORM.pack(_MAGIC, VERSION, header.boot_id, boot, wall, header.count, 0)[: SIZE - 4]
    return body + zlib.crc32(body).to_bytes(4, "little")


def decode(data: bytes) -> Header | str:
    """What a file begins with, or what is wrong with it; nothing is, with an empty one: it is new.

    Magic, version and checksum stay where they are.
    """
    if len(data) < SIZE:
        return DAMAGED if data else ""
    magic, version, boot_id, boot, wall, count, check = _FORM.unpack_from(data)
    if magic != _MAGIC or check != zlib.crc32(data[: SIZE - 4]) or version < VERSION:
        return DAMAGED
    return NEWER if version > VERSION else Header(boot_id, Times(boot / 1e9, wall / 1e9), count)


def larger(found: Iterable[Header | str], now: Times) -> tuple[float, int]:
    """Up to when the hour is used, and how many permits were counted, by the copy that says most; zeros without any."""
    headers = [header for header in found if isinstance(header, Header)]
    until = max((header.used_until(now, permit_record.boot_id()) for header in headers), default=0.0)
    return until, max((header.count for header in headers), default=0)


def content_of(path: str, size: int = -1) -> bytes:
    """What is there, without a lock and without a change; empty when it cannot be read."""
    try:
        with FileIO(path) as file:
            return file.read(size)
    except OSError:
        return b""


def _write(copy: FileIO, header: bytes, lines: bytes, anew: bool) -> None:
    """Add lines, then write the header, which decides: a writer that is killed between them has counted nothing.

    `anew`: the header first, too, and the lines in place of all others.
    """
    if anew:
        copy.seek(0)
        copy.write(header)
        copy.truncate(SIZE)
    with suppress(OSError):  # on a disk that is full, too, the header counts
        copy.seek(0, os.SEEK_END)
        copy.write(lines)
    copy.seek(0)
    copy.write(header)


class LedgerRound(forks.Work):
    """The content of a ledger while its copies are locked, and a way to change it. One thread; raises OSError when it
    cannot be used.

    A fork waits for the round of another thread. A child closes what it got open: it would keep the lock of its parent.
    `until`: up to when the hour is used. `count`: how many permits were counted.
    """

    now = Times(0.0, 0.0)
    until = 0.0

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.count = 0
        self._copies: list[FileIO] = []
        super().__init__()  # a fork calls `renew` from here on

    # The copies may differ: one is new, was damaged, or its writer was killed between the two. If the smaller count
    # decided, permits would be granted twice. So the larger one holds, where none can be read the hour counts as used
    # up, and the copies are made equal before anything is decided.
    def begin(self) -> None:
        """Open, lock and read the copies."""
        self._ledger.open(self._copies)
        self.now = permit_record.now()
        found = [decode(copy.read(SIZE)) for copy in self._copies]
        if NEWER in found:
            raise OSError("it was written by a newer version of safeproducer")
        known = any(isinstance(header, Header) for header in found)
        self.until, self.count = larger(found, self.now)
        if not known and any(found):  # all are damaged: the hour counts as used up
            self.until = self.now.boot + HOUR
        set_back = self.until >= self.now.boot + LATEST  # a clock: the hour comes back from now on
        too_long = any(copy.seek(0, os.SEEK_END) > _MOST for copy in self._copies)
        if not known or len(set(found)) > 1 or set_back or too_long:
            # One is new, damaged, or was left behind when a process was killed. Or there are too many lines.
            counts = [header.count if isinstance(header, Header) else -1 for header in found]
            lines = self.lines(counts.index(max(counts))) if known else b""
            self.write(self.until, permit_log.latest(lines), anew=True)
        if not all(found):
            self._ledger.sweep()

    def close(self) -> None:
        for copy in self._copies:
            copy.close()

    def renew(self) -> None:
        super().renew()
        self.close()

    def lines(self, of: int = 0) -> bytes:
        self._copies[of].seek(SIZE)
        return self._copies[of].read()

    def write(self, until: float, lines: bytes, counted: int = 0, anew: bool = False) -> None:
        """The hour is used up to `until`, and so many more permits were counted. `anew`: there are no other lines."""
        count, wall = self.count + counted, self.now.wall + until - self.now.boot
        header = encode(Header(permit_record.boot_id(), Times(until, wall), count))
        for copy in tuple(self._copies):
            try:
                _write(copy, header, lines, anew)
            except (OSError, ValueError):  # ValueError: closed, in a child that a signal handler forked
                copy.close()
                self._copies.remove(copy)  # the rest of the round does without it
        if not self._copies:
            raise OSError("no copy can be written")
        self.until, self.count = until, count


class Ledger:
    """The copies of a ledger: their paths, which rounds open. Any thread."""

    def __init__(self, identity: tuple[str, str], place: Place) -> None:
        self._name = name_of(identity)
        self._place = place

    def lines(self) -> bytes:
        """The lines of the first copy that has any."""
        return next(filter(None, (content_of(path)[SIZE:] for path in self._paths()[0])), b"")

    def peek(self, now: Times) -> float:
        """Up to when the hour is used, as it was a moment ago. Waits for nobody."""
        return larger((decode(content_of(path, SIZE)) for path in self._paths()[0]), now)[0]

    def _paths(self) -> tuple[list[str], list[str]]:
        directories, problems = ledger_places.prepared(self._place)
        return [os.path.join(directory, self._name) for directory in directories], problems

    def open(self, copies: list[FileIO]) -> None:
        """Add all that can be used, locked, to `copies`, which the caller closes. Raises OSError when none can.

        Raises BlockingIOError when one of them is locked: who holds it may be about to count in the other one alone.
        """
        paths, problems = self._paths()
        patience = Patience(WAITS)
        for path in paths:
            try:
                copies.append(FileIO(path, "r+", opener=lambda name, flags: os.open(name, flags | _MAKES, 0o600)))
            except OSError as error:
                problems.append(str(error))
                continue
            if not until(partial(_locked, copies[-1]), patience):
                raise BlockingIOError(f"{path} is locked by another process")
        if not copies:
            raise OSError("; ".join(problems) or "there is no directory for it")

    def sweep(self) -> None:
        """Delete ledgers in which nobody counted for two hours. Each FakeCluster has new ports, and so a new ledger."""
        for directory in map(os.path.dirname, self._paths()[0]):
            with suppress(OSError):  # another process deletes, too
                for name in os.listdir(directory):
                    path = os.path.join(directory, name)
                    age = abs(clock.time() - os.lstat(path).st_mtime)
                    if name.endswith(SUFFIX) and name != self._name and age >= LATEST:
                        os.unlink(path)


def name_of(identity: tuple[str, str]) -> str:
    """The file for a cluster and principal: a hash, or whoever lists the directory would read both."""
    return blake2b("\0".join(identity).encode(errors="surrogatepass"), digest_size=16).hexdigest() + SUFFIX
