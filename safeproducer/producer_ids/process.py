"""Which process this is: by its number, its parent's, and a random token, because containers use the same numbers."""

from __future__ import annotations

import os
import threading

from safeproducer.producer_ids.record import ProcessId
from safeproducer.runtime import forks


class _Process:
    """Of this process: `token`, and its last name."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.token = int.from_bytes(os.urandom(8), "little") or 1
        self.named = ProcessId(0, 0, 0)


_process = _Process()
forks.in_child(_process.renew)


def this() -> ProcessId:
    """This process now: an orphan has another parent."""
    parent, named = os.getppid(), _process.named
    if named.parent != parent or not named.pid:
        named = _process.named = ProcessId(os.getpid(), parent, _process.token)
    return named


_local = threading.local()


def work() -> forks.Work:
    """What a thread holds while it writes to a ledger: its own one, so that nobody but a fork ever waits for it."""
    found: forks.Work | None = getattr(_local, "work", None)
    if found is None:
        found = _local.work = forks.Work()
    return found
