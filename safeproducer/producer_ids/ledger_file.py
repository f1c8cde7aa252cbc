"""One copy of a ledger: a file that is opened, locked, read, written and closed in each round.

`flock` excludes threads as well as processes, because each round has a descriptor of its own, and it ends with the
descriptor. The descriptor ends with the object, so nothing stays locked behind a signal handler that raises.

`flock` cannot be given a time-out, so a round asks again and again. It sleeps between two attempts, ever longer and
never twice for the same time: thirty processes that are started at once must leave the processor to the one that holds
the lock.

Files of clusters that nobody uses any more are deleted: each FakeCluster has new ports, and so a new ledger.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from io import FileIO

from safeproducer.policy.permits import HOUR
from safeproducer.producer_ids import ledger_header, permit_log, permit_record, transactional_ids
from safeproducer.producer_ids.ledger_header import Header, Unreadable
from safeproducer.producer_ids.ledger_places import SUFFIX
from safeproducer.runtime import clock

with suppress(ImportError):  # Windows has neither this nor a ledger
    import fcntl

_FIRST, _LONGEST = 50e-6, 1e-3
_STARVED = 1.6
"""Times as long at most, for a process that sleeps for longer than it asked to: it is not given the processor."""


class Patience:
    """Sleeps for `seconds` together, as it asked to; `starved` times as long at most by the clock. One thread."""

    def __init__(self, seconds: float, starved: float = _STARVED) -> None:
        self._left = seconds
        self._longest = seconds * starved
        self._end: float | None = None
        self._pause = _FIRST

    def sleep(self) -> bool:
        """False when it is at its end, and does not sleep."""
        now = clock.real()
        self._end = now + self._longest if self._end is None else self._end  # most need no patience
        if self._left <= 0.0 or now >= self._end:
            return False
        pause = min(self._pause * (0.5 + time.perf_counter_ns() // 100 % 1000 / 1000), self._left)
        time.sleep(pause)
        self._left -= pause + _FIRST  # a sleep takes about so much longer than was asked for
        self._pause = min(2 * self._pause, _LONGEST)
        return True


def until(condition: Callable[[], bool], patience: Patience) -> bool:
    """Wait until it holds; False when it does not by the end of patience."""
    while not condition():
        if not patience.sleep():
            return False
    return True


NONE = Patience(0.0)
"""One attempt."""


KNOWN_AT = 256
RING_AT = KNOWN_AT + transactional_ids.TABLE_SIZE
WHOLE = RING_AT + permit_log.SLOTS * permit_log.SIZE


class LedgerError(Exception):
    """A ledger, or a copy of it, cannot be used; the text says why."""


class LockedError(LedgerError):
    """Another process holds it for longer than we wait."""


class LedgerCopy:
    """An open, locked file. `content` is its header, or why there is none."""

    __slots__ = ("content", "file", "path")

    def __init__(self, path: str, file: FileIO) -> None:
        self.path = path
        self.file = file
        self.content: Header | Unreadable = ledger_header.decode(self.read(0, ledger_header.SIZE))

    @property
    def blank(self) -> bool:
        """Made, and nothing was counted in it."""
        return isinstance(self.content, Header) and self.content.count == 0

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self.file.fileno(), size, offset)

    def write(self, offset: int, data: bytes) -> None:
        if os.pwrite(self.file.fileno(), data, offset) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)

    def write_header(self, content: Header) -> None:
        self.write(0, ledger_header.encode(content))
        self.content = content

    def close(self) -> None:
        self.file.close()


def content_of(path: str, size: int = WHOLE) -> bytes:
    """What is there, without a lock and without a change; empty when it cannot be read."""
    try:
        with FileIO(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)) as file:
            return os.pread(file.fileno(), size, 0)
    except (OSError, ValueError):
        return b""


def opened(path: str, patience: Patience) -> LedgerCopy | None:
    """The copy at `path`, locked; None when there is none.

    Raises LockedError at the end of `patience`, LedgerError for a file that is not ours, OSError.
    """
    while True:
        try:
            file = FileIO(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "r+")
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise LedgerError(f"{path} is a symbolic link") from None
            raise
        try:
            try:
                _lock(file)
            except BlockingIOError:
                _wait_for_lock(file, path, patience)
            if _is_ours(os.fstat(file.fileno()), path):
                return LedgerCopy(path, file)
        except BaseException:
            file.close()
            raise
        file.close()  # it was deleted before it was locked


def made(path: str, content: Header) -> LedgerCopy | None:
    """A new copy, locked before others can see it; None when there is one by now. Raises OSError."""
    building = f"{path}.{os.getpid()}.{time.monotonic_ns()}.new"
    file = FileIO(os.open(building, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "r+")
    try:
        copy = LedgerCopy(path, file)
        copy.write_header(content)
        _lock(file)
        os.link(building, path)
    except BaseException as error:
        file.close()
        if isinstance(error, FileExistsError):
            return None
        raise
    finally:
        os.unlink(building)
    try:
        copy.write(
            ledger_header.SIZE, bytes(WHOLE - ledger_header.SIZE)
        )  # a disk that is full later does not matter then
    except OSError:
        os.unlink(path)
        file.close()
        raise
    return copy


def _lock(file: FileIO) -> None:
    fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def _wait_for_lock(file: FileIO, path: str, patience: Patience) -> None:
    while patience.sleep():
        with suppress(BlockingIOError):
            return _lock(file)
    raise LockedError(f"{path} is locked by another process")


def _is_ours(found: os.stat_result, path: str) -> bool:
    """False for a file that was deleted. Raises LedgerError."""
    if not stat.S_ISREG(found.st_mode):
        raise LedgerError(f"{path} is no regular file")
    if found.st_uid != os.geteuid():
        raise LedgerError(f"{path} belongs to another user")
    return found.st_nlink > 0


MOST = 64
"""Ledgers in a directory."""
_HALF_MADE = 60.0
"""Seconds, after which a file that somebody was making is nobody's."""


def sweep(directory: str, keep: str) -> None:
    """Delete ledgers whose hour is over, and the oldest ones beyond 64; never the one named `keep`."""
    try:
        ages = _ages(directory, keep)
        for path in [path for path in ages if path.endswith(".new")]:
            if ages.pop(path) > _HALF_MADE:
                os.unlink(path)
    except OSError:  # another process deletes, too
        return
    excess = len(ages) + 1 - MOST
    for path in sorted(ages, key=lambda path: -ages[path]):
        excess -= _deleted(path, ages[path], at_once=excess > 0)


def _ages(directory: str, keep: str) -> dict[str, float]:
    """By path, seconds since somebody wrote to it."""
    names = [name for name in os.listdir(directory) if name.endswith((".new", SUFFIX)) and name != keep]
    paths = [os.path.join(directory, name) for name in names]
    return {path: time.time() - os.lstat(path).st_mtime for path in paths}


def _deleted(path: str, age: float, at_once: bool) -> bool:
    """Not one that is in use just now, nor one that is not ours or of a newer version."""
    try:
        copy = opened(path, NONE)
        if copy is None:
            return False
        with copy.file:
            over = copy.content is not Unreadable.NEWER and (at_once or _is_over(copy, age))
            if over:
                os.unlink(path)  # locked: who waits for it finds that it is gone, and makes a new one
    except (OSError, LedgerError):
        return False
    return over


def _is_over(copy: LedgerCopy, age: float) -> bool:
    """Whether nothing was counted for an hour, and no debt is left."""
    content = copy.content
    if not isinstance(content, Header):
        return age >= HOUR
    now, boot_id = permit_record.now(), permit_record.boot_id()
    last = (
        permit_log.decode(copy.read(RING_AT + permit_log.slot(content.count) * permit_log.SIZE, permit_log.SIZE))
        if content.count
        else None
    )
    return content.used_until(now, boot_id) <= now.boot and (last is None or abs(last.age(now, boot_id)) >= HOUR)
