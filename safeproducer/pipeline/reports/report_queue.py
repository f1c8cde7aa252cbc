"""Reports that are kept for later: served while the application does not poll, or not understood yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from safeproducer.errors import DeliveryError
from safeproducer.pipeline.reports.dated_error import dated
from safeproducer.pipeline.reports.quota_rejections import QuotaRejections
from safeproducer.pipeline.reports.reports import Report, Reports
from safeproducer.runtime import clock
from safeproducer.runtime.threads import get_ident


class Deferred(NamedTuple):
    """A failed report that was served between `since` and `by`, in seconds of clock.monotonic()."""

    run: Any
    error: Any
    message: Any
    since: float
    by: float


class ReportQueue:
    """`reports` wait for the application's next poll().

    `thread` is the sender's while it serves the direct lane, else 0. While `purged`, failed reports go to `deferred`:
    what became of them is told by statistics that come later. `on`: whether to ask
    `takes()`. `failed_at`: when a failed record's report was last kept for later. `rejections`: who keeps those of a
    quota. `over`: the interpreter ends, and whoever serves runs no callback any more. `running`: threads that run a
    report now.
    """

    def __init__(self) -> None:
        self.on = self.over = False
        self.failed_at = 0.0
        self.thread = 0
        self.purged = False
        self.rejections: QuotaRejections | None = None
        self.reports = Reports()
        self.deferred: deque[Deferred] = deque()
        self.running: set[int] = set()
        self._purged_since = 0.0
        self._heard: dict[int, float] = {}

    @property
    def here(self) -> bool:
        """Whether the calling thread serves for an application that does not poll."""
        return self.over or (self.thread != 0 and self.thread == get_ident())

    def serve_on(self, thread: int) -> None:
        """The sender begins to serve the direct lane on this thread; 0 when it has ended."""
        self.thread = thread
        self.decide()

    def end(self, over: bool) -> None:
        """Keep every report from now on; or no more."""
        self.over = over
        self.decide()

    def defer(self, purged: bool) -> None:
        """Keep the reports of a purge from now on, or no more."""
        self._purged_since, self._heard = clock.monotonic(), {}
        self.purged = purged
        self.decide()

    def take(self) -> deque[Deferred]:
        """Those that were kept; the caller reports them."""
        self.defer(False)
        deferred, self.deferred = self.deferred, deque()
        return deferred

    def tell(self, reports: Iterable[Report]) -> None:
        """The reports of as many that were kept: each is counted here or there at every moment."""
        self.reports.replace(self.deferred, reports)

    def decide(self) -> None:
        """Whether reports have to be looked at one by one."""
        rejections = self.rejections
        self.on = self.over or self.purged or self.thread != 0 or (rejections is not None and rejections.count > 0)

    def takes(self, run: Any, error: Any, message: Any) -> bool:
        """Whether this report is kept here instead of being run now."""
        if self.rejections is not None and self.rejections.takes(run, error, message):
            self.on = True
            return True
        if error is not None and not isinstance(error, DeliveryError) and self.purged:
            thread, heard, now = get_ident(), self._heard, clock.monotonic()
            # One thread is given one report after the other.
            self.deferred.append(Deferred(run, dated(error), message, heard.get(thread, self._purged_since), now))
            heard[thread] = now
            return True
        if self.here:
            if error is not None:
                self.failed_at = clock.monotonic()
                error = dated(error)
            self.reports.add(run, error, message, len(message))
            return True
        return False

    def note_headers(self, topic: Any, headers: Any) -> None:
        """A record of it may have headers, which its report does not tell. Any thread."""
        if headers is not None and self.rejections is not None and isinstance(topic, str):
            self.rejections.with_headers.add(topic)

    def run(self) -> int:
        """Run what is queued, on the application's thread; how many. Raises what a callback raises."""
        thread, running = get_ident(), self.running
        fresh = thread not in running
        try:
            running.add(thread)  # a record takes room until its callback has run
            return self.reports.run()
        finally:
            if fresh:
                running.discard(thread)

    @property
    def records(self) -> int:
        """Whose reports are kept here or being run, in the order in which they go from one to the next."""
        return len(self.deferred) + self.reports.count + len(self.running)

    @property
    def bytes(self) -> int:
        """Of the records whose reports are kept here, about."""
        return self.reports.bytes + sum([len(kept.message) for kept in self.deferred.copy()])
