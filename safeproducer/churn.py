"""The process-wide count of new producers: one ChurnPolicy, one lock, and the warning."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from safeproducer import forks
from safeproducer.hooks import ProducerChurn
from safeproducer.policy.producer_id import ChurnPolicy, Identity
from safeproducer.records import CallSite

logger = logging.getLogger("safeproducer")

ADVICE = (
    "Make one producer, keep it for the life of the process and share it between threads; after an error produce again "
    "on the same producer unless it is fatal. Raise safeproducer.producer.ids.per.hour if this rate is intended."
)


class ChurnRegistry:
    """Thread-safe. A forked child starts from zero: its producers are new ones, its parent's are not its own."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.RLock()  # a signal handler may make a producer while this thread holds it
        self._policy = ChurnPolicy()

    def reset(self) -> None:
        self._lock = threading.RLock()
        self._policy = ChurnPolicy()

    def made_last_hour(self, identity: Identity) -> int:
        with self._lock:
            return self._policy.made_last_hour(identity, self._clock())

    def record(self, identity: Identity, site: CallSite, limit_per_hour: int) -> ProducerChurn | None:
        """Count one new producer; log and return the event when this site has to be told."""
        with self._lock:
            finding = self._policy.record(identity, site, limit_per_hour, self._clock())
        if finding is None:
            return None
        cluster, principal = identity
        event = ProducerChurn(cluster, principal, site, *finding, limit_per_hour, ADVICE)
        logger.warning(
            "producer-ID churn: %d producers were made for %s as %s within an hour (limit %d), %d of them at %s. "
            "Each takes a producer ID that the brokers must remember. %s",
            event.made_in_all,
            cluster,
            principal,
            event.limit_per_hour,
            event.made_by_site,
            site,
            ADVICE,
        )
        return event


registry = ChurnRegistry()
forks.in_child(registry.reset)
