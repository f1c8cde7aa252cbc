"""What the processes beside the driver remember that plan and commit: Spark ends one that was idle for a minute.

Another one goes on where it ended, by a small file for each query. Such processes have the daemon of Spark for their
parent that forks them, and which lives as long as the driver. The files are where the ledgers of producer IDs are, for
this user alone; without such a directory each process begins anew.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from safeproducer.producer_ids import master
from safeproducer.producer_ids.place import AUTO
from safeproducer.producer_ids.places import prepared
from safeproducer.producer_ids.process import is_alive

_PREFIX, _SUFFIX = "spark-", ".json"
_DAY = 86_400.0
"""Seconds without a micro-batch after which a query is forgotten."""


def load(name: str) -> dict[str, Any]:
    """What was saved under this name beside the same driver; nothing where that cannot be read."""
    try:
        found = json.loads(_path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def save(name: str, state: Mapping[str, Any]) -> None:
    """Have the next process find `state`, which JSON can hold."""
    with suppress(OSError):
        path = _path(name)
        if not path.exists():
            _sweep(path.parent)
        new = path.with_suffix(f".{os.getpid()}.new")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
            json.dump(state, file)
        new.replace(path)


def _path(name: str) -> Path:
    usable, _ = prepared(AUTO)
    if not usable:
        raise FileNotFoundError
    parent = os.getppid()
    text = f"{parent} {_started(parent)} {name}"
    key = blake2b(text.encode(), digest_size=8).hexdigest()
    return Path(usable[0], f"{_PREFIX}{_space()}-{parent}-{key}{_SUFFIX}")


@cache
def _space() -> int:
    """In which PID namespace this process is: containers may share a directory, and see other processes. 0 where that
    is not known, as on other systems than Linux."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


@cache
def _started(process: int) -> str:
    """When it was started: another process may get its number. Nothing on other systems than Linux."""
    try:
        return master.started(process)
    except (OSError, IndexError):
        return ""


def _sweep(directory: Path) -> None:
    """Delete what no driver or query asks for any more."""
    for path in _ours(directory):
        with suppress(OSError):  # another process deletes, too
            if time.time() - path.stat().st_mtime > _DAY or _is_of_the_dead(path.name):
                path.unlink()


def _is_of_the_dead(name: str) -> bool:
    """Whether its driver has ended. Of a driver in another PID namespace that cannot be seen."""
    space, _, rest = name.removeprefix(_PREFIX).partition("-")
    parent = rest.partition("-")[0]
    return space == str(_space()) and parent.isdigit() and not is_alive(int(parent))


def _ours(directory: Path) -> Iterator[Path]:
    return (path for path in directory.iterdir() if path.name.startswith(_PREFIX))
