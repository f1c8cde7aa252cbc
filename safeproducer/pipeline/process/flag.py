"""Set once there is something to look at: for one thread that waits, and any that sets."""

from __future__ import annotations

import time

from safeproducer import clock
from safeproducer.pipeline.process.bell import Bell, gevent

_SLICE = 0.05


class Flag:
    """As threading.Event, which a signal handler that raises inside set() leaves locked for good; this has no lock."""

    def __init__(self) -> None:
        self._bell = Bell()
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._bell.ring()

    def clear(self) -> None:
        self._set = False
        self._bell.wait(0)

    def wait(self, timeout: float) -> bool:
        """Until it is set, or shorter, for `timeout` seconds at most; whether it is."""
        if self._set:
            return True
        monkey = gevent()
        if monkey is None or not monkey.is_module_patched("threading"):
            self._bell.wait(timeout)
            return self._set
        until = clock.real() + timeout  # this is a greenlet: a bare lock would stop all of them
        while not self._set and (left := until - clock.real()) > 0:
            time.sleep(min(left, _SLICE))
        return self._set
