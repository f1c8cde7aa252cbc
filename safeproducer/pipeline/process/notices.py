"""Log lines and hooks of what happens on the producer's own thread: told on another one.

A log handler or a hook may wait for something that a thread of the application holds, which waits for this producer.
So the thread that sends never runs them.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from safeproducer.forks import Work
from safeproducer.log import logger

MOST = 1000
"""Notices that wait behind one that does not end; the oldest go."""


class Notices:
    """`tell()` from any thread. `needed()`: whether the calling thread must not run what belongs to the application.

    A thread is there while there is something to tell, and ends with it.
    """

    def __init__(self, needed: Callable[[], bool]) -> None:
        self.needed = needed
        self._waiting: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque(maxlen=MOST)
        self._thread: threading.Thread | None = None
        self._work = Work()

    def tell(self, call: Callable[..., Any], *args: Any) -> None:
        """Call it: now, or on a thread of its own if this is the one that sends."""
        if not self.needed():
            call(*args)
        else:
            self.later(call, *args)

    def later(self, call: Callable[..., Any], *args: Any) -> None:
        """Call it on that thread: for one that a fork does not wait for."""
        self._waiting.append((call, args))
        thread = self._thread
        if (thread is None or not thread.is_alive()) and not sys.is_finalizing():
            self._thread = thread = threading.Thread(target=self._tell_all, name="safeproducer-notices", daemon=True)
            with suppress(RuntimeError):  # too many threads, or the interpreter ends: the next notice tries again
                thread.start()

    def _tell_all(self) -> None:
        while True:
            with self._work:
                try:
                    call, args = self._waiting.popleft()
                except IndexError:
                    self._thread = None  # before the last look: who comes behind it makes a thread
                    if self._waiting:
                        continue
                    return
                try:
                    call(*args)
                except Exception:
                    logger.exception("a hook or log handler raised")
