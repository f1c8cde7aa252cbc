"""A host of its own: two directories for ledgers, clocks that move as told, and processes."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from safeproducer.producer_ids import ledger_places, permit_record
from safeproducer.producer_ids.guard import AUTO, Claim, Guard, Kind
from safeproducer.producer_ids.ledger import Ledger, LedgerRound
from safeproducer.records import CallSite
from safeproducer.runtime import clock

IDENTITY = ("kafka-1:9092", "User:ANONYMOUS")
SITE = CallSite("app.py", 7, "handler")


@contextmanager
def locked() -> Iterator[None]:
    """A round of another process."""
    with closing(LedgerRound(Ledger(IDENTITY, AUTO))) as round_:
        round_.begin()
        yield


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Host:
    """`memory` and `disk` are what /dev/shm and the temporary directory are in production."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.memory, self.disk = root / "memory", root / "disk"
        self.now, self.wall, self.boot_id = 100_000.0, 1_800_000_000.0, 77
        self._monkeypatch = monkeypatch
        monkeypatch.setenv(ledger_places.AUTO_VARIABLE, os.pathsep.join(map(str, (self.memory, self.disk))))

    def stop_clocks(self) -> None:
        """They move by `pass_time` from now on."""
        self._monkeypatch.setattr(clock, "boot", lambda: self.now)
        self._monkeypatch.setattr(clock, "monotonic", lambda: self.now)
        self._monkeypatch.setattr(clock, "time", lambda: self.wall)
        self._monkeypatch.setattr(permit_record, "boot_id", lambda: self.boot_id)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.wall += seconds

    def reboot(self, seconds: float = 30.0) -> None:
        """It takes so long; memory is empty then."""
        self.boot_id += 1
        self.now, self.wall = seconds, self.wall + seconds
        for file in self.memory.glob("*"):
            file.unlink()

    @property
    def files(self) -> list[Path]:
        """Of all ledgers, the copy in memory first."""
        return [*sorted(self.memory.glob("*")), *sorted(self.disk.glob("*"))]

    def start(self) -> Guard:
        """As another process has it."""
        return Guard(IDENTITY, AUTO)


def first(rate: float = 20, enforce: bool = True, site: CallSite = SITE, transactional: str | None = None) -> Claim:
    return Claim(Kind.FIRST, rate, enforce, site, transactional)


def taken(guard: Guard, rate: float = 20, most: int = 1000) -> int:
    """How many are granted until one is refused."""
    return next((count for count in range(most) if guard.ask(first(rate)).permit is None), most)


def forked(work: Callable[[], int]) -> int:
    """The number of a child that does it and exits with what it returns."""
    child = os.fork()
    if child:
        return child
    status = 99
    try:
        status = work()
    finally:
        sys.stdout.flush()
        os._exit(status)


def result(child: int) -> int:
    """Of a child, when it has ended."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
