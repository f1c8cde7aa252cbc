"""Producers that are alive: what happens to them at fork, at garbage collection and at interpreter exit."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from safeproducer.runtime import forks
from safeproducer.runtime.log import behind_handlers

Producer = TypeVar("Producer")
_alive: dict[int, tuple[weakref.ref[Any], Callable[[Any], None], Callable[[Any, str], None]]] = {}
"""By identity, because a subclass may say when its instances are equal, and that they have no hash."""
EXIT = "interpreter exit"
_last: list[Callable[[], object]] = []
_finalized = 0  # the process, a child of multiprocessing, whose end is listened to


def enrol(
    producer: Producer, become_forked: Callable[[Producer], None], report_loss: Callable[[Producer, str], None]
) -> None:
    """Call `become_forked` in a forked child, `report_loss` at exit, if the producer is alive then.

    They are no methods to be looked up by name: a subclass may have its own of any name.
    """

    def forget(_: object, identity: int = id(producer), alive: dict[int, Any] = _alive) -> None:
        alive.pop(identity, None)

    _alive[id(producer)] = weakref.ref(producer, forget), become_forked, report_loss
    _listen_to_the_end_of_a_child()


def at_end(act: Callable[[], object]) -> None:
    """Have it called at the end of the process, or of a child of multiprocessing, when losses have been reported.

    It may be called twice there.
    """
    _last.append(act)


def _survivors() -> list[tuple[Any, Callable[[Any], None], Callable[[Any, str], None]]]:
    # list() reads the dict in one step: a destructor, on any thread, may forget a producer before or after it.
    found = [(alive(), become_forked, report_loss) for alive, become_forked, report_loss in list(_alive.values())]
    return [survivor for survivor in found if survivor[0] is not None]


def _listen_to_the_end_of_a_child() -> None:
    """A child of multiprocessing ends by os._exit() after its own finalizers, and runs no atexit.

    It forgets at its start what finalizers there were, so the first producer made in it adds this one.
    """
    global _finalized  # noqa: PLW0603 - there is one process
    process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if process is None or util is None or process.parent_process() is None or _finalized == os.getpid():
        return
    _finalized = os.getpid()
    util.Finalize(None, _at_exit, exitpriority=0)


def _after_fork_in_child() -> None:
    for producer, become_forked, _ in _survivors():
        become_forked(producer)


def _at_exit() -> None:
    # Locks of threads that are gone must not block the exit, so nothing here waits.
    forks.notice()
    for producer, _, report_loss in _survivors():
        report_loss(producer, EXIT)
    for act in _last:
        act()


forks.in_child(_after_fork_in_child)
atexit.register(lambda: behind_handlers(_at_exit))
