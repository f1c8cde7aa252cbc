"""The deadline of records in the direct lane: purged before librdkafka's own time-out comes.

That would start a new epoch for the whole native producer, and write batches of other partitions twice whose answers
were lost.
"""

from __future__ import annotations

from collections.abc import Callable

from safeproducer.delivery import Delivery
from safeproducer.pipeline.dispatcher import Dispatcher
from safeproducer.pipeline.failures import Failures, purged_tps
from safeproducer.pipeline.report_queue import ReportQueue
from safeproducer.pipeline.updates import ClientUpdates


class DirectDeadline:
    """Called by the threads that serve. What is purged is reported once statistics tell what of it had been sent."""

    def __init__(
        self,
        delivery: Delivery,
        dispatcher: Dispatcher,
        updates: ClientUpdates,
        report_queue: ReportQueue,
        failures: Failures,
    ) -> None:
        self._timeout = delivery.timeout
        self._dispatcher = dispatcher
        self._updates = updates
        self._holds = updates.holds
        self._report_queue = report_queue
        self._failures = failures
        self._purged_at: float | None = None

    def act(self, now: float, hold: Callable[[], None], purge: Callable[[], object]) -> None:
        """Purge when a record in the lane reaches its deadline, after what is healthy has left it."""
        holds, timeout = self._holds, self._timeout
        if self._purged_at is not None:
            self._tell_of_purged(self._purged_at, now)
            return
        earliest = holds.backlogs.earliest()
        if earliest is None or timeout is None:
            if holds.draining:  # it was acknowledged after all
                holds.draining = False
                self._dispatcher.recheck(now)
            return
        if not holds.draining and now >= earliest + timeout - holds.drain_time(timeout):
            holds.draining = True
            hold()  # now: what followed the purge into the lane would meet the end of its epoch
            return
        if now >= earliest + timeout:
            self._report_queue.defer(True)
            self._purged_at = now
            holds.expired()
            self._updates.purging()
            purge()

    def _tell_of_purged(self, purged_at: float, now: float) -> None:
        """Once statistics tell what had been sent of what was purged: report it, and go on."""
        found = self._updates.statistics_now
        if found is None or found.at <= purged_at or found.messages:
            return
        self._purged_at = None
        self._report_queue.defer(False)
        deferred, self._report_queue.deferred = self._report_queue.deferred, []
        never_sent = self._updates.never_sent(found, max(self._failures.failed_at, self._report_queue.failed_at))
        self._report_queue.reports.extend(self._failures.expired(deferred, never_sent))
        self._holds.purged(purged_tps(deferred), found.producer_epoch)
        self._holds.draining = False
        self._dispatcher.recheck(now)
