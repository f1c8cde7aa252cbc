"""What people want to know of one permit: when, which process, which line, and what became of it."""

from __future__ import annotations

from typing import NamedTuple

from safeproducer.policy.permits import Kind
from safeproducer.records import CallSite

UNSENT = "unsent"
"""How a native producer ended whose permit was given back."""

ENDS = ("", "closed", "collected", "exit", "failed", "crashed", UNSENT)
"""How a native producer ended; the empty one: not told, it still runs, or its process was killed."""


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
    """One permit that was counted. `number`: how many were counted with it. `until`: what it made of the hour's use.

    `boot_id` says for which start of the system the times by the boot clock hold. `ended` is one of ENDS.
    """

    number: int
    serial: int
    process: ProcessId
    kind: Kind
    site: CallSite
    at: Times
    until: Times
    boot_id: int
    producer_id: int | None = None
    ended: str = ""

    def age(self, now: Times, boot_id: int) -> float:
        """Seconds since the permit was granted."""
        return now.boot - self.at.boot if boot_id and self.boot_id == boot_id else now.wall - self.at.wall

    def amended(self, producer_id: int | None, ended: str | None) -> IdRecord:
        """With what is known by now. A permit that went back stays so: it must not go back again."""
        return self._replace(
            producer_id=self.producer_id if producer_id is None else producer_id,
            ended=self.ended if ended is None or self.ended == UNSENT else ended,
        )

    @property
    def key(self) -> tuple[int, int]:
        """The same in each copy."""
        return self.process.token, self.serial
