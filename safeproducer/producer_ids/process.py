"""Which process this is: by its number, its parent's, and a random token, because containers use the same numbers."""

from __future__ import annotations

import os
import threading

from safeproducer import forks, frames
from safeproducer.producer_ids import master
from safeproducer.producer_ids.record import ProcessId


class _Tokens:
    """Of this process and, in a forked child, of its parent."""

    def __init__(self) -> None:
        self.own, self.parent = _token(), master.token()

        self.process = ProcessId(0, 0, 0)

    def renew(self) -> None:
        self.own, self.parent, self.process = _token(), self.own, ProcessId(0, 0, 0)

    def named(self, parent: int) -> ProcessId:
        self.process = ProcessId(os.getpid(), parent, self.own, self.parent)
        return self.process


def _token() -> int:
    return int.from_bytes(os.urandom(8), "little") or 1


_tokens = _Tokens()
forks.in_child(_tokens.renew)


def this() -> ProcessId:
    """This process now: an orphan has another parent."""
    parent, process = os.getppid(), _tokens.process
    return process if process.parent == parent and process.pid else _tokens.named(parent)


def is_alive(pid: int) -> bool:
    """Whether there is a process with this number, as far as can be seen from here."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError as error:
        frames.let_handlers_through(error)
        return False
    return True


_local = threading.local()


def work() -> forks.Work:
    """What a thread holds while it writes to a ledger: its own one, so that nobody but a fork ever waits for it."""
    found: forks.Work | None = getattr(_local, "work", None)
    if found is None:
        found = _local.work = forks.Work()
    return found
