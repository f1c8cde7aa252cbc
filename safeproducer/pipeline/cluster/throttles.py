"""The throttle deadlines of every cluster this process talks to, shared by all producers that talk to it."""

from __future__ import annotations

import weakref

from safeproducer.policy.throttle import Throttle
from safeproducer.runtime import forks


class ThrottleRegistry:
    """Cluster -> Throttle by time.monotonic(), while somebody holds it. Thread-safe, re-entrant; empty after a fork."""

    def __init__(self) -> None:
        self._lock = forks.original.RLock()
        self._references: dict[str, weakref.ref[Throttle]] = {}

    def reset(self) -> None:
        self._lock = forks.original.RLock()
        self._references = {}

    def of(self, cluster: str) -> Throttle:
        """The one Throttle of this cluster; the caller keeps it for as long as it talks to the cluster.

        `cluster` is whatever names a cluster: its cluster id, or its bootstrap addresses while that is not known.
        """
        with self._lock:
            for gone in [name for name, reference in list(self._references.items()) if reference() is None]:
                self._references.pop(gone, None)
            made = Throttle()
            # One step, so that a signal handler that asks for the same cluster in between gets the same answer.
            return self._references.setdefault(cluster, weakref.ref(made))() or made


registry = ThrottleRegistry()
forks.in_child(registry.reset)
of = registry.of
