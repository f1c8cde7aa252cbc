"""The master of a pre-fork server, as its workers know it: it need not have loaded this library.

A worker is forked and runs on in the same program. A supervisor, a shell and a container's runtime start another
program. Linux remembers which of the two a process is.
"""

from __future__ import annotations

import os
import sys
from hashlib import blake2b
from pathlib import Path

from safeproducer import frames

_PROC = Path("/proc")
_FORKED_ONLY = 0x40
"""PF_FORKNOEXEC among the flags of a process."""
_FLAGS, _STARTED = 6, 19
"""Fields of /proc/PID/stat, counted behind the name of the program."""
_ON_DEMAND = ("pyspark.daemon",)
"""Programs that fork a process when work comes, and end it when it is idle: short-lived processes, and no server."""


def token() -> int:
    """The same for all workers of a master, and another one when it is started again; 0 where this is no worker."""
    try:
        parent = os.getppid()
        # A daemon that its starter forked has a session of its own, and whoever adopts orphans for its parent.
        if not int(_stat("self")[_FLAGS]) & _FORKED_ONLY or os.getsid(parent) != os.getsid(0) or _is_on_demand():
            return 0
        start = started(parent)
    except (OSError, ValueError, IndexError) as error:  # no Linux, or processes of others are hidden
        frames.let_handlers_through(error)
        return 0
    return int.from_bytes(blake2b(f"{parent} {start}".encode(), digest_size=8).digest(), "little") or 1


def started(process: int) -> str:
    """When it was started, in the system's own count. Raises OSError or IndexError where that cannot be read."""
    return _stat(str(process))[_STARTED]


def _stat(process: str) -> list[str]:
    return (_PROC / process / "stat").read_text(errors="replace").rpartition(")")[2].split()


def _is_on_demand() -> bool:
    return getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", None) in _ON_DEMAND
