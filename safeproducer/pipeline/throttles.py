"""The throttle deadlines of every cluster this process talks to, shared by all producers that talk to it."""

from __future__ import annotations

import threading
import weakref

from safeproducer.pipeline import forks
from safeproducer.policy.throttle import Throttle


class SharedThrottle(Throttle):
    """One cluster's Throttle. `now` is time.monotonic() for everybody who shares it."""

    def __init__(self, cluster: str) -> None:
        super().__init__()
        self.cluster = cluster


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
