"""The deadline of records in the direct lane: purged before librdkafka's own time-out comes.

That would start a new epoch for the whole native producer, and write batches of other partitions twice whose answers
were lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from safeproducer.kafka.native import KafkaError
from safeproducer.pipeline.dispatch.dispatcher import Dispatcher
from safeproducer.pipeline.dispatch.holds import Holds
from safeproducer.pipeline.lanes.direct_lane import DirectLane
from safeproducer.pipeline.reports.delivery_errors import Failures, purged_tps
from safeproducer.pipeline.reports.report_queue import ReportQueue
from safeproducer.policy.types import DIRECT_LANE


@dataclass(eq=False)
class DirectLaneExpiry:
    """The sender's thread calls. Purged records are reported once statistics tell which of them had been sent."""

    _holds: Holds
    _dispatcher: Dispatcher
    _report_queue: ReportQueue
    _failures: Failures
    _purged_at: float | None = None
    _within: str = ""

    @property
    def _lane(self) -> DirectLane:
        assert self._holds.direct is not None  # noqa: S101 - there is one, or nobody asks
        return self._holds.direct

    def end(self) -> bool:
        """The lane has failed, and others see to what it has; whether it was purged before."""
        purged, self._purged_at = self._purged_at is not None, None
        return purged

    def act(self, now: float, hold: Callable[[], None], purge: Callable[[], object]) -> None:
        """Purge when a record in the lane reaches its deadline, after what is healthy has left it."""
        if self._purged_at is not None:
            self._tell_of_purged(self._purged_at, now)
            return
        due = self._dispatcher.expiry.direct_lane(self._lane.backlogs, now)
        if due is None:
            if self._lane.draining:  # it was acknowledged after all
                self._lane.drain(False)
                self._dispatcher.recheck(now)
        elif not self._lane.draining and now >= due.closes:
            self._lane.drain(True)
            hold()  # now: what followed the purge into the lane would meet the end of its epoch
        elif now >= due.at:
            self._report_queue.defer(True)
            self._purged_at, self._within = now, due.within
            self._lane.purging(now)
            purge()

    def _tell_of_purged(self, purged_at: float, now: float) -> None:
        """Once statistics tell what had been sent of what was purged: report it, and go on."""
        found, kept = self._holds.cluster.statistics.get(DIRECT_LANE), self._report_queue.deferred
        if found is None or found.at <= purged_at or found.messages:
            return
        if kept and kept[0].by <= self._lane.given.since:  # of a lane that failed, and told before
            return
        self._purged_at = None
        self._report_queue.defer(False)
        deferred = list(kept)
        never_sent = self._lane.given.unsent.counts(found, max(self._failures.failed_at, self._report_queue.failed_at))
        if found.no_id_yet:
            queued = [kept.message for kept in deferred if kept.error.code() == KafkaError._PURGE_QUEUE]
            never_sent = Counter((message.topic(), message.partition()) for message in queued)
        self._report_queue.tell(self._failures.expired(deferred, never_sent, self._within))
        self._lane.purged(purged_tps(deferred), found.producer_epoch, now)
        self._lane.drain(False)
        self._dispatcher.recheck(now)
