"""A bell wakes a thread, and stays a lock of a thread under gevent, too."""

from __future__ import annotations

import _thread
import sys
from collections.abc import Callable
from typing import Any

_LONGEST_WAIT = 3600.0
"""Seconds: a lock refuses to wait for ever in so many words, and who waits looks again."""


def gevent() -> Any:
    """Its module that puts greenlets in place of threads, if it is there."""
    return sys.modules.get("gevent.monkey")


def _original(name: str) -> Any:
    """Of the module _thread: waits of a greenlet that stands for a thread would stop all of them."""
    monkey = gevent()
    return getattr(_thread, name) if monkey is None else monkey.get_original("_thread", name)


allocate_lock: Callable[[], Any] = _original("allocate_lock")
start_new_thread: Callable[..., int] = _original("start_new_thread")
get_ident: Callable[[], int] = _original("get_ident")
"""Of the thread, not of the greenlet."""


class Bell:
    """Wakes one thread. Ringing never waits, so a signal handler may ring, inside another ring, too."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()

    def ring(self) -> None:
        try:  # noqa: SIM105 - a context manager for each wake takes longer
            self._lock.release()
        except RuntimeError:  # it was rung already
            pass

    def wait(self, timeout: float) -> bool:
        """Until it is rung, for `timeout` seconds at most; whether it was."""
        rung: bool = self._lock.acquire(True, min(timeout, _LONGEST_WAIT)) if timeout > 0 else self._lock.acquire(False)
        return rung
