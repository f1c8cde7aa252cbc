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
    return Path(usable[0], f"{_PREFIX}{parent}-{blake2b(text.encode(), digest_size=8).hexdigest()}{_SUFFIX}")


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
        parent = path.name.removeprefix(_PREFIX).split("-")[0]
        with suppress(OSError):  # another process deletes, too
            if time.time() - path.stat().st_mtime > _DAY or not (parent.isdigit() and is_alive(int(parent))):
                path.unlink()


def _ours(directory: Path) -> Iterator[Path]:
    return (path for path in directory.iterdir() if path.name.startswith(_PREFIX))
