"""The thread behind a producer: the only one that hands over, serves the batch lanes, and acts on what was heard.

Signal handlers run on the main thread, between any two steps of whatever it does. Therefore an application's thread
only appends to a queue, rings, and runs its reports; what takes more than one step is done here, where no handler
comes.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from safeproducer.runtime import clock
from safeproducer.runtime.forks import Work
from safeproducer.runtime.threads import WakeLock, allocate_lock, get_ident, start_new_thread

LONGEST_SLEEP = 0.25  # seconds: what rang while a signal handler prevented the ring is found by then
LONGEST_IDLE_SLEEP = 1.0  # seconds that the sender of an idle producer sleeps at most
_AWAKE = float("inf")  # the sender may have looked already: whoever wakes it has it look again
_TURN_ENDS = 0.001
_ROUND_UP = 0.00099  # librdkafka waits for whole milliseconds; less than one would be no wait
_LEAST_PAUSE = 0.001  # what becomes due within this time is done in one turn, unless somebody rings
_ANSWERED = 0.1
_T = TypeVar("_T")


class WaitableLane(Protocol):
    """A lane whose answer may come at any moment."""

    def wait(self, timeout: float) -> None: ...


class SenderWork(Protocol):
    """The work of the thread."""

    def turn(self, now: float) -> float:
        """Do what is due; when to come again. Raises nothing."""
        ...

    def near(self, now: float) -> tuple[WaitableLane, float] | None:
        """Where to wait for an answer instead of sleeping, and for how many seconds at most."""
        ...


class SenderTask:
    """Something to be done between two turns. Its exception is raised by Sender.run()."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self.done = WakeLock()
        self.ended = False
        self.raised: BaseException | None = None

    def run(self) -> None:
        try:
            self._call()
        except BaseException as raised:
            self.raised = raised
        finally:
            self.ended = True
            self.done.ring()


class Sender:
    """One thread for each producer that needs it, started late: a daemon.

    It holds its producer only while it works, so that a producer nobody refers to is freed at once, and ends with it.
    All methods from any thread, and from signal handlers.
    """

    def __init__(self) -> None:
        self._sends: Callable[[], SenderWork | None] = lambda: None
        self._bell = WakeLock()
        self._turned = WakeLock()
        self._running = allocate_lock()
        """Held by the thread as long as it lives, or by a thread of the application that works in its place."""
        self._tasks: deque[SenderTask] = deque()
        self._stopped = False
        self._alive = False
        self._finalized = False
        self._asleep_until = _AWAKE
        self._due_at = 0.0  # when it wants to work; 0 while it does, or was woken
        self.ident = 0
        self.at_work = Work()

    def work_for(self, sends: SenderWork) -> None:
        """Before it is woken first; again in a destructor: the collector clears references like this before it runs
        any."""
        self._sends = weakref.ref(sends)

    def works(self) -> bool:
        """Whether there is still somebody to work for."""
        return self._sends() is not None

    def asks(self, method: Callable[[Any], Callable[..., _T]], otherwise: _T) -> Callable[..., _T]:
        """A call of what it works for, by parts that must not keep that alive: native producers and threads hold them.

        Gives `otherwise` while there is nobody, and once that is gone.
        """

        def called(*args: Any) -> _T:
            sends = self._sends()
            return otherwise if sends is None else method(sends)(*args)

        return called

    def is_this_thread(self) -> bool:
        """Whether the calling thread is this one."""
        return get_ident() == self.ident

    def wake(self, due: float) -> None:
        """Something is to be done at `due`."""
        if not self._alive:
            self._start()
        if due < self._asleep_until:
            self._due_at = 0.0
            self._bell.ring()

    def _start(self) -> bool:
        """Whether there is a thread now. One that comes second ends at once, see _work()."""
        if self._stopped or sys.is_finalizing():
            return False
        with suppress(RuntimeError):  # whoever waits works in its place
            return start_new_thread(_work, (self._sends, self)) != 0
        return False

    def wait(self, timeout: float) -> None:
        """Until the thread has ended a turn, or begins to have nothing to do; for `timeout` seconds at most."""
        if self.alive or self._start():
            self._turned.wait(timeout)
            return
        due = 0.0
        if self._running.acquire(False):
            try:
                self._run_tasks()
                sends = self._sends()
                due = _AWAKE if sends is None else sends.turn(clock.real())
            finally:
                self._running.release()
        if (pause := min(timeout, max(_TURN_ENDS, due - clock.real()), LONGEST_SLEEP)) > 0:
            time.sleep(pause)

    def tell_waiting(self) -> None:
        """End the wait() of another thread: what that waits for has a place to come from."""
        self._turned.ring()

    def let_work(self) -> None:
        """Give it a millisecond when it has something to do: a thread that computes keeps the interpreter for five."""
        if self._alive and self._due_at <= clock.real():
            self._turned.wait(0)  # of an earlier turn
            self._turned.wait(_TURN_ENDS)

    def run(self, call: Callable[[], object]) -> None:
        """`call` it between two turns; raises what it raises. Waits, but not in a destructor on this thread."""
        self._tasks.append(task := SenderTask(call))
        self.wake(0.0)
        while not (task.ended or get_ident() == self.ident):
            if not task.done.wait(_ANSWERED) and not self.alive and self._running.acquire(False):
                try:
                    self._run_tasks()
                finally:
                    self._running.release()
        if task.raised is not None:
            raise task.raised

    def _run_tasks(self) -> None:
        while self._tasks:
            self._tasks.popleft().run()

    def stop(self) -> None:
        """End the thread; does not wait for it."""
        self._stopped = True
        self._bell.ring()

    @property
    def alive(self) -> bool:
        """Whether there is a thread. The end of the interpreter stops all wherever they are, and lets none go on."""
        if not self._finalized and sys.is_finalizing():
            self._finalized, self._alive, self.ident = True, False, 0
            self._running = allocate_lock()  # one of those may have it, also of the application
        return self._alive

    def join(self, timeout: float) -> bool:
        """Wait until the thread has ended: at exit it must not be inside librdkafka. Whether it has."""
        deadline = clock.real() + timeout
        while self._running.locked():  # not taken: a signal handler that raises would leave it so
            if get_ident() == self.ident or (left := deadline - clock.real()) <= 0:
                return False
            self._turned.wait(min(left, _TURN_ENDS))
        return True

    def live(self) -> bool:
        """The thread begins; False when there is one, or it was stopped before."""
        if not self._running.acquire(False):
            return False
        if self._stopped:  # who did so may not have waited for it, and takes it for ended
            self._running.release()
            return False
        self.ident = get_ident()
        self._alive = True
        return True

    def turn(self, sends: SenderWork) -> tuple[float, tuple[WaitableLane, float] | None]:
        """Work once; (when again, where to wait until then)."""
        with self.at_work:
            self._run_tasks()
            now = clock.real()
            return min(sends.turn(now), now + LONGEST_IDLE_SLEEP), sends.near(clock.real())

    def sleep(self, until: float, near: tuple[WaitableLane, float] | None) -> bool:
        """Sleep until then, or until woken; whether to go on."""
        self._asleep_until = self._due_at = until
        self._turned.ring()
        pause = max(_LEAST_PAUSE, until - clock.real()) if until > 0 else 0
        if pause > 0 and not self._stopped and not self._tasks:
            if near is None:
                self._bell.wait(pause)
            else:
                near[0].wait(min(pause, near[1]) + _ROUND_UP)
        self._asleep_until, self._due_at = _AWAKE, 0.0
        self._bell.wait(0)
        return not self._stopped

    def end(self) -> None:
        self._alive = False
        self.ident = 0
        self._running.release()
        self._turned.ring()


def _work(sends: Callable[[], SenderWork | None], sender: Sender) -> None:
    # Free functions and locals only: a reference to the producer must not outlive the work on it.
    if not sender.live():
        return
    try:
        going = True
        while going and (found := sends()) is not None:
            due, near = sender.turn(found)
            del found
            going = sender.sleep(due, near)
            del near
    finally:
        sender.end()
