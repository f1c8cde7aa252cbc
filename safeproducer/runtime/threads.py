"""Threads of this library wait, wake each other, start late, and tell what belongs to the application.

A log handler or a hook may wait for something that a thread of the application holds, which waits for this producer.
Therefore the thread that sends never runs them.
"""

from __future__ import annotations

import _thread
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import BuiltinFunctionType
from typing import Any

from safeproducer.runtime import clock
from safeproducer.runtime.forks import Work, original
from safeproducer.runtime.log import logger

_LONGEST_WAIT = 3600.0  # seconds: a lock refuses to wait for ever in so many words, and who waits looks again
allocate_lock: Callable[[], Any] = original.allocate_lock
start_new_thread: Callable[..., int] = original.start_new_thread
get_ident: Callable[[], int] = original.get_ident  # the number of the thread, not of the greenlet
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_STARTS_WITHIN = 1.0  # seconds after which a start that was interrupted counts as none
_LOOK = 0.001
MOST = 1000  # notices that wait behind one that does not end; the oldest go
Trouble = Callable[[str, str], None]
"""(what it is about, a sentence): something that is tried again later; only the first of its kind is told."""


class _Thread:
    """A thread as threading.Thread would be one, where gevent, eventlet or another library makes greenlets of those."""

    def __init__(self, target: Callable[[], None], name: str) -> None:
        self._target = target
        self.name = name
        self.ident: int | None = None

    def start(self) -> None:
        start_new_thread(self._run, ())

    def _run(self) -> None:
        self.ident = get_ident()
        self._target()


def _new(target: Callable[[], None], name: str) -> _Thread | threading.Thread:
    untouched = isinstance(_thread.start_new_thread, BuiltinFunctionType) and threading.Thread.__module__ == "threading"
    return threading.Thread(target=target, name=name, daemon=True) if untouched else _Thread(target, name)


class WakeLock:
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


class InterruptSafeEvent(WakeLock):
    """As threading.Event, which a signal handler that raises inside set() leaves locked for good; this has no lock."""

    _set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self.ring()

    def clear(self) -> None:
        self._set = False
        super().wait(0)

    def wait(self, timeout: float) -> bool:
        """Until it is set, or shorter, for `timeout` seconds at most; whether it is."""
        if not self._set:
            super().wait(timeout)
        return self._set


class BackgroundThread:
    """`start()` from any thread and signal handler; it never raises and takes no lock.

    A process may be out of threads for a while, which is no reason for a produce() or a poll() to fail: then the next
    start() after a pause tries again. `work` runs on the thread; when it has returned, start() begins anew.
    """

    def __init__(self, name: str, work: Callable[[], None], trouble: Trouble) -> None:
        self._name = name
        self._work = work
        self._trouble = trouble
        self._thread: _Thread | threading.Thread | None = None
        self._ended: _Thread | threading.Thread | None = None
        """Thread.is_alive() takes a lock, and gives back that of the thread when a signal handler raises in it."""
        self._started_at = self._not_before = 0.0
        self._pause = _FIRST_PAUSE

    def start(self) -> None:
        now = clock.real()
        before = self._thread
        runs = before is not None and (self.alive or (before.ident is None and now - self._started_at < _STARTS_WITHIN))
        if runs or now < self._not_before or sys.is_finalizing():
            return
        thread = _new(lambda: self._run(thread), self._name)
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

    def _run(self, thread: _Thread | threading.Thread) -> None:
        if thread is self._thread:  # else its start was given up, and another one has taken over
            try:
                self._work()
            finally:
                self._ended = thread

    @property
    def alive(self) -> bool:
        thread = self._thread
        return thread is not None and thread.ident is not None and self._ended is not thread

    def join(self, timeout: float) -> bool:
        """Wait until the thread has ended: at exit it must not be inside librdkafka. Whether it has."""
        thread = self._thread
        wait_while(lambda: self.alive and thread is not None and thread.ident != get_ident(), timeout)
        return not self.alive


def wait_while(runs: Callable[[], bool], timeout: float) -> None:
    """Thread.join() would give back its lock when a signal handler raises in it."""
    deadline = clock.real() + timeout
    while runs() and clock.real() < deadline:
        time.sleep(_LOOK)


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
