"""Ledgers of clusters that nobody uses any more: each FakeCluster has new ports, and so a new one."""

from __future__ import annotations

import os
import time

from safeproducer.policy.permits import HOUR
from safeproducer.producer_ids import ledger_file, permit_log, permit_record
from safeproducer.producer_ids.ledger_file import RING_AT, LedgerCopy, LedgerError
from safeproducer.producer_ids.ledger_header import Header, Unreadable
from safeproducer.producer_ids.ledger_places import SUFFIX

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
    with os.scandir(directory) as entries:
        return {
            entry.path: time.time() - entry.stat(follow_symlinks=False).st_mtime
            for entry in entries
            if entry.name.endswith(".new") or (entry.name.endswith(SUFFIX) and entry.name != keep)
        }


def _deleted(path: str, age: float, at_once: bool) -> bool:
    """Not one that is in use just now, nor one that is not ours or of a newer version."""
    try:
        copy = ledger_file.opened(path, ledger_file.NONE)
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
