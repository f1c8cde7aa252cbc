"""The thread that serves a producer while its application is away: timers, reports, throttle times.

One daemon thread for each producer that needs it, started late. It holds its producer only while it works, so that a
producer nobody refers to is freed at once, and ends with it.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import Protocol

from safeproducer.pipeline.forks import Work

LONGEST_SLEEP = 0.25
_LET_GO_EVERY = 0.5
_AWAKE = float("inf")
"""It may have looked already: whoever wakes it has it look again."""


class Tended(Protocol):
    """What the watchdog looks after."""

    def tend(self, now: float) -> float:
        """Do what is due; when to come again."""
        ...

    def let_go_of_callbacks(self) -> None:
        """Refer to none that is not needed any more."""
        ...


class Watchdog:
    """`wake(due)` from any thread, also from a signal handler; `stop()` ends the thread and does not wait for it.

    `at_work` is held while it works.
    """

    def __init__(self, tended: Tended) -> None:
        self._tended = weakref.ref(tended)
        self._bell = threading.Event()
        self._stopped = False
        self._asleep_until = _AWAKE
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self.at_work = Work()

    def wake(self, due: float) -> None:
        if self._thread is None:
            self._start()
        if due < self._asleep_until:
            self._bell.set()

    def _start(self) -> None:
        if self._stopped or not self._starting.acquire(blocking=False):
            return
        if self._thread is None:
            thread = threading.Thread(
                target=_watch, args=(self._tended, self), name="safeproducer-watchdog", daemon=True
            )
            self._thread = thread
            try:
                thread.start()
            except RuntimeError:  # the interpreter is shutting down: the application's own calls still serve
                self._stopped = True
        self._starting.release()

    def stop(self) -> None:
        self._stopped = True
        self._bell.set()

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended: at exit it must not be inside librdkafka."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def sleep(self, until: float) -> bool:
        """Until then, or until woken; whether to go on."""
        self._asleep_until = until
        if (pause := until - time.monotonic()) > 0 and not self._stopped:
            self._bell.wait(pause)
        self._asleep_until = _AWAKE
        self._bell.clear()
        return not self._stopped


def _watch(tended: weakref.ref[Tended], dog: Watchdog) -> None:
    # Free functions and locals only: a reference to the producer must not outlive the work on it.
    let_go_at = 0.0
    while True:
        now = time.monotonic()
        lane = tended()
        if lane is None:
            return
        with dog.at_work:
            due = lane.tend(now)
        if now >= let_go_at:  # an application that only polls; with no lock held, as its objects may be destroyed
            let_go_at = now + _LET_GO_EVERY
            lane.let_go_of_callbacks()
        del lane
        if not dog.sleep(min(due, now + LONGEST_SLEEP)):
            return
