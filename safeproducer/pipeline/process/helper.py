"""A thread of this library that calls of the application start when there is something for it to do."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from safeproducer import clock

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_STARTS_WITHIN = 1.0
"""Seconds after which a start that was interrupted counts as none."""
_LOOK = 0.001

Trouble = Callable[[str, str], None]
"""(what it is about, a sentence): something that is tried again later; only the first of its kind is told."""


class Helper:
    """`start()` from any thread and signal handler; it never raises and takes no lock.

    A process may be out of threads for a while, which is no reason for a produce() or a poll() to fail: then the next
    start() after a pause tries again. `work` runs on the thread; when it has returned, start() begins anew.
    """

    def __init__(self, name: str, work: Callable[[], None], trouble: Trouble) -> None:
        self._name = name
        self._work = work
        self._trouble = trouble
        self._thread: threading.Thread | None = None
        self._ended: threading.Thread | None = None
        """Thread.is_alive() takes a lock, and gives back that of the thread when a signal handler raises in it."""
        self._started_at = self._not_before = 0.0
        self._pause = _FIRST_PAUSE

    def start(self) -> None:
        now = clock.real()
        before = self._thread
        runs = before is not None and (self.alive or (before.ident is None and now - self._started_at < _STARTS_WITHIN))
        if runs or now < self._not_before or sys.is_finalizing():
            return
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        if self._thread is not before:  # another thread was quicker
            return
        self._thread, self._started_at = thread, now
        try:
            thread.start()
        except RuntimeError as error:
            if type(error).__module__ != "builtins":  # as in without_a_thread()
                raise
            self._thread = None
            self._not_before = now + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            self._trouble(self._name, f"the thread {self._name} cannot be started, and is tried again later: {error}")
        else:
            self._pause = _FIRST_PAUSE

    def _run(self) -> None:
        thread = threading.current_thread()
        if thread is self._thread:  # else its start was given up, and another one has taken over
            try:
                self._work()
            finally:
                self._ended = thread

    @property
    def alive(self) -> bool:
        thread = self._thread
        return thread is not None and thread.ident is not None and self._ended is not thread

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended: at exit it must not be inside librdkafka."""
        wait_while(lambda: self.alive, self._thread, timeout)


def wait_while(runs: Callable[[], bool], thread: threading.Thread | None, timeout: float) -> None:
    """Not on this thread itself. Thread.join() would give back its lock when a signal handler raises in it."""
    deadline = clock.real() + timeout
    while runs() and thread is not threading.current_thread() and clock.real() < deadline:
        time.sleep(_LOOK)
