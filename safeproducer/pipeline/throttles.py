"""The throttle deadlines of every cluster this process talks to, shared by all producers that talk to it."""

from __future__ import annotations

import threading
import weakref
from collections import deque

from safeproducer.pipeline import forks
from safeproducer.policy.throttle import Episode, Throttle


class SharedThrottle:
    """One cluster's Throttle, for any thread, and for signal handlers that come back in. See Throttle for the methods.

    `now` is time.monotonic() for everybody who shares it.
    """

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self._lock = threading.RLock()
        self._throttle = Throttle()
        self._interrupting: deque[tuple[int, float, float]] = deque()
        self._announcing = False

    @property
    def latest(self) -> float:
        """The latest deadline of all brokers, read without the lock: when it is past, nothing is held."""
        return self._throttle.latest

    def announce(self, broker: int, seconds: float, now: float) -> Episode | None:
        """See Throttle. Inside a signal handler that interrupted this call it may be noted only when that call ends."""
        with self._lock:
            if self._announcing:
                self._interrupting.append((broker, seconds, now))  # or the interrupted arithmetic would undo this
                return None
            self._announcing = True
            try:
                return self._throttle.announce(broker, seconds, now)
            finally:
                self._announcing = False
                while self._interrupting:
                    self._throttle.announce(*self._interrupting.popleft())

    # Without the lock while nothing throttles: dozens of producers ask for each partition, and threads that queue for
    # this lock and for the interpreter's would stand still together.

    def deadline(self, broker: int | None, now: float) -> float | None:
        if self._throttle.latest <= now:
            return None
        with self._lock:
            return self._throttle.deadline(broker, now)

    def calms(self, broker: int | None, now: float) -> bool:
        if self._throttle.latest_calm <= now:
            return False
        with self._lock:
            return self._throttle.calms(broker, now)

    def held(self, now: float) -> dict[int, float]:
        if self._throttle.latest <= now:
            return {}
        with self._lock:
            return self._throttle.held(now)


class ThrottleRegistry:
    """Cluster -> SharedThrottle, as long as somebody holds it. Thread-safe, re-entrant; empty in a forked child."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._references: dict[str, weakref.ref[SharedThrottle]] = {}

    def reset(self) -> None:
        self._lock = threading.RLock()
        self._references = {}

    def of(self, cluster: str) -> SharedThrottle:
        """The one SharedThrottle of this cluster; the caller keeps it for as long as it talks to the cluster.

        `cluster` is whatever names a cluster: its cluster id, or its bootstrap addresses while that is not known.
        """
        with self._lock:
            for gone in [name for name, reference in list(self._references.items()) if reference() is None]:
                self._references.pop(gone, None)
            made = SharedThrottle(cluster)
            # One step, so that a signal handler that asks for the same cluster in between gets the same answer.
            return self._references.setdefault(cluster, weakref.ref(made))() or made

    def clusters(self) -> int:
        """How many clusters are in use."""
        with self._lock:
            return sum(reference() is not None for reference in list(self._references.values()))


registry = ThrottleRegistry()
forks.in_child(registry.reset)
of = registry.of
