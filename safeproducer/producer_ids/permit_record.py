"""The record of one permit, for people: when, which process, which line, and what became of it.

A process is named by its number, its parent's, and a random token, because containers use the same numbers. A time by
the boot clock belongs to the start of the system that is running.
"""

from __future__ import annotations

import os
from functools import cache
from hashlib import blake2b
from typing import NamedTuple

from safeproducer.policy.permits import Kind
from safeproducer.records import CallSite
from safeproducer.runtime import clock, forks

UNSENT = "unsent"
"""How a native producer ended whose permit was given back."""
_LINUX = "/proc/sys/kernel/random/boot_id"
_token = [0]


class ProcessId(NamedTuple):
    """`token` tells processes apart whose numbers are equal, as in containers."""

    pid: int
    parent: int
    token: int


class Times(NamedTuple):
    """A moment by two clocks, in seconds: `boot` since the system started, `wall` since the Unix epoch."""

    boot: float
    wall: float


class IdRecord(NamedTuple):
    """One permit that was counted.

    `boot_id` says for which start of the system the time by the boot clock holds. `ended`: UNSENT, or how the native
    producer ended as in Guard.note(); empty when nobody told: it still runs, or its process was killed.
    """

    process: ProcessId
    kind: Kind
    site: CallSite
    at: Times
    boot_id: int
    producer_id: int | None = None
    ended: str = ""

    def age(self, now: Times, boot_id: int) -> float:
        return now.boot - self.at.boot if boot_id and self.boot_id == boot_id else now.wall - self.at.wall


def _renew() -> None:
    _token[0] = int.from_bytes(os.urandom(8), "little")


_renew()
forks.in_child(_renew)


def this() -> ProcessId:
    """This process now: an orphan has another parent."""
    return ProcessId(os.getpid(), os.getppid(), _token[0])


def now() -> Times:
    return Times(clock.boot(), clock.time())


@cache
def boot_id() -> int:
    """Another number after each start of the system; 0 when the system does not tell, as macOS and Windows."""
    try:
        with open(_LINUX, "rb") as file:  # pathlib would load much at the import of this package
            return int.from_bytes(blake2b(file.read().strip(), digest_size=8).digest(), "little")
    except OSError:
        return 0
