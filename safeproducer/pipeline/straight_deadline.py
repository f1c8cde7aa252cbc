"""The deadline of records in the straight lane: purged before librdkafka's own time-out comes.

That would start a new epoch for the whole native producer, and write batches of other partitions twice whose answers
were lost.
"""

from __future__ import annotations

from collections.abc import Callable

from safeproducer.delivery import Delivery
from safeproducer.pipeline.away import Away
from safeproducer.pipeline.failures import Failures, purged_places
from safeproducer.pipeline.feed import Feed
from safeproducer.pipeline.news import ClientNews


class StraightDeadline:
    """Called by the threads that serve. What is purged is reported once statistics tell what of it had been sent."""

    def __init__(self, delivery: Delivery, feed: Feed, news: ClientNews, away: Away, failures: Failures) -> None:
        self._timeout = delivery.timeout
        self._feed = feed
        self._news = news
        self._holds = news.holds
        self._away = away
        self._failures = failures
        self._purged_at: float | None = None

    def mind(self, now: float, hold: Callable[[], None], purge: Callable[[], object]) -> None:
        """Purge when a record in the lane reaches its deadline, after what is healthy has left it."""
        holds, timeout = self._holds, self._timeout
        if self._purged_at is not None:
            self._tell_of_purged(self._purged_at, now)
            return
        earliest = holds.backlogs.earliest()
        if earliest is None or timeout is None:
            if holds.draining:  # it was acknowledged after all
                holds.draining = False
                self._feed.recheck(now)
            return
        if not holds.draining and now >= earliest + timeout - holds.drain_time(timeout):
            holds.draining = True
            hold()  # now: what followed the purge into the lane would meet the end of its epoch
            return
        if now >= earliest + timeout:
            self._away.defer(True)
            self._purged_at = now
            holds.expired()
            self._news.purging()
            purge()

    def _tell_of_purged(self, purged_at: float, now: float) -> None:
        """Once statistics tell what had been sent of what was purged: report it, and go on."""
        found = self._news.statistics_now
        if found is None or found.at <= purged_at or found.messages:
            return
        self._purged_at = None
        self._away.defer(False)
        deferred, self._away.deferred = self._away.deferred, []
        never_sent = self._news.never_sent(found, max(self._failures.failed_at, self._away.failed_at))
        self._away.reports.extend(self._failures.expired(deferred, never_sent))
        self._holds.purged(purged_places(deferred), found.producer_epoch)
        self._holds.draining = False
        self._feed.recheck(now)
