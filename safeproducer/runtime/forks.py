"""Keeps a fork from leaving locks behind, of threads that are not in the child.

A fork waits for this library's own threads: what they have locked would stay locked in the child for ever, such as the
stream that one writes a log line to, which the child flushes at its exit, or what a hook uses. A fork in C, as of
uWSGI, runs no hook of Python's; it is noticed by whoever asks.
"""

from __future__ import annotations

import mmap
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from safeproducer.runtime import clock

original = clock.copied("_thread")
"""Threads and their locks. In the module itself gevent, eventlet or others may have put greenlets in place of threads:
the wait of one would stop all of them."""
_WAITS = 1.0  # seconds, at most: a hook may wait for what the forking thread holds
_WIPE_ON_FORK = 18  # Linux's MADV_WIPEONFORK, which the standard library does not name
_all: set[weakref.ref[Work]] = set()  # no WeakSet: to iterate raises while another thread adds
_stopped: dict[int, list[Work]] = {}  # the work that a fork waits for, by the thread that forks
_renewals: list[Callable[[], object]] = []
Native = TypeVar("Native")
_natives: set[weakref.ref[Any]] = set()


class Work:
    """Held by a thread while it may log or run a hook: `with work:`. One thread at a time, which may do so again.

    `with work.lock:` is the same without two calls.
    """

    def __init__(self) -> None:
        self.lock = original.RLock()
        _all.add(weakref.ref(self, _all.discard))

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def ends(self, timeout: float) -> bool:
        """Wait until it does, and hold it; False when it goes on for longer."""
        return bool(self.lock.acquire(timeout=timeout))

    def renew(self) -> None:
        """In a child: what another thread holds is held for ever, and each fork of the child would wait for it."""
        if self.lock.acquire(blocking=False):
            self.lock.release()
        else:
            self.lock = original.RLock()


loading = Work()  # held by a thread of ours while it imports: a fork would leave half a module to the child


class _Number:
    """Tells by the number of the process, which takes a system call."""

    def __init__(self) -> None:
        self[0] = 1

    def __getitem__(self, _: int) -> bool:
        return os.getpid() == self._process

    def __setitem__(self, _: int, value: int) -> None:
        self._process = os.getpid()


def _mark() -> _Number | mmap.mmap:
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        page.madvise(_WIPE_ON_FORK)
    except (AttributeError, OSError):  # not on Linux
        return _Number()
    page[0] = 1
    return page


here = _mark()  # `here[0]` is true until a fork: the kernel empties that page in a child


def spare_in_children(native: Native) -> Native:
    """`native`, which is never destroyed in a child, not even as garbage that the collector finds there.

    librdkafka's threads do not exist there, and its destructor would wait for them for ever, or crash.
    """
    with loading.lock:
        import ctypes  # noqa: F401, PLC0415 - it takes long to load, and a child must not wait for imports

    _natives.add(weakref.ref(native, _natives.discard))
    return native


def in_child(renew: Callable[[], object]) -> None:
    """Have `renew` called in each child, at once or when its fork is noticed."""
    _renewals.append(renew)


def notice() -> None:
    """Do in a child what was not done at its fork, if that was one in C. Any thread, as often as you like."""
    if not here[0]:
        _begin_anew()


def _begin_anew() -> None:
    for work in _alive(_all):
        work.renew()
    for native in _alive(_natives):
        sys.modules["ctypes"].pythonapi.Py_IncRef(sys.modules["ctypes"].py_object(native))
    for renew in _renewals:
        renew()
    here[0] = 1  # last: what a signal handler interrupts is done again


def _alive(references: set[weakref.ref[Native]]) -> list[Native]:
    return [found for reference in references.copy() if (found := reference()) is not None]


def _before_fork() -> None:
    deadline = clock.real() + _WAITS
    _stopped[original.get_ident()] = [work for work in _alive(_all) if work.ends(max(0.0, deadline - clock.real()))]


def _after_fork() -> None:
    for work in _stopped.pop(original.get_ident(), ()):
        work.__exit__()


def _after_fork_in_child() -> None:
    _after_fork()
    _stopped.clear()  # of threads that were forking, too
    _begin_anew()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
