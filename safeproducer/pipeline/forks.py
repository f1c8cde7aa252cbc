"""A fork waits for this library's own threads: what they have locked would stay locked in the child for ever.

Such as the stream that one writes a log line to, which the child flushes at its exit, or what a hook uses.
"""

from __future__ import annotations

import os
import threading
import time
import weakref

_WAITS = 1.0
"""Seconds, at most: a hook may wait for what the forking thread holds."""


class Work:
    """Held by a thread while it may log or run a hook: `with work:`. One thread at a time, which may do so again."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _all.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def ends(self, timeout: float) -> bool:
        """Wait until it does, and hold it; False when it goes on for longer."""
        return self._lock.acquire(timeout=timeout)


_all: weakref.WeakSet[Work] = weakref.WeakSet()
_stopped: dict[int, list[Work]] = {}
"""What waits for a fork, by the thread that forks."""


def _before_fork() -> None:
    deadline = time.monotonic() + _WAITS
    _stopped[threading.get_ident()] = [work for work in list(_all) if work.ends(max(0.0, deadline - time.monotonic()))]


def _after_fork() -> None:
    for work in _stopped.pop(threading.get_ident(), ()):
        work.__exit__()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
