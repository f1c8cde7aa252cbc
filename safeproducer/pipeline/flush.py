"""Waiting until records have their reports, and forgetting their callbacks then."""

from __future__ import annotations

from dataclasses import dataclass

from safeproducer.errors import FatalError
from safeproducer.pipeline.calls import Calls
from safeproducer.pipeline.dispatch.dispatcher import Dispatcher
from safeproducer.pipeline.dispatch.updates import ClientUpdates
from safeproducer.pipeline.reports.delivery_counters import DeliveryCounters
from safeproducer.pipeline.route import Route
from safeproducer.pipeline.sender import Sender
from safeproducer.pipeline.serving import Serving
from safeproducer.policy.types import NEVER
from safeproducer.runtime import clock
from safeproducer.runtime.threads import Notices, get_ident

_LINGER_OFF = 0.4
"""Seconds for which a round of flush() switches linger off: longer than the round."""
_ROUND = 0.15  # below the 0.2 s from which the native call splits the wait itself
_FATAL_COMES = 0.1
_TURN = 0.001
_PURGE_PATIENCE = 1.0
"""Seconds that close() waits for the next report after a purge."""
_RELEASE_EVERY = 0.5
_NOTED = 0.05


@dataclass(eq=False, repr=False)
class Flush:
    """On the threads of the application."""

    _route: Route
    _serving: Serving
    _calls: Calls
    _dispatcher: Dispatcher
    _sender: Sender
    _updates: ClientUpdates
    _counters: DeliveryCounters
    _notices: Notices
    _failed_then: int = 0
    _release_at: float = 0.0
    _accepted_then: int = 0

    def flush(self, timeout: float) -> int:
        """As the native flush()."""
        if self._route.in_callback:
            return self._calls.answer_in_callback("flush", self._calls.queued)
        left, raised = self.drain(timeout)
        self.release()
        if raised is not None:
            raise raised
        return left

    def drain(self, timeout: float) -> tuple[int, Exception | None]:
        """(records left, the last exception a callback raised), after a flush of up to `timeout` seconds.

        confluent_kafka serves on when a callback raises, and raises at the end. So does this, but in short native
        calls: inside a long one the C client keeps an exception to itself until the end, Ctrl-C included when it lands
        in a callback.
        """
        deadline = clock.monotonic() + timeout if timeout >= 0 else None
        raised: Exception | None = None
        dispatcher = self._dispatcher
        if not dispatcher.record_buffer.records and self._route.state == "open":
            return 0, None  # events are for poll(), as in confluent_kafka
        since = clock.monotonic() if self._route.behind_callback else NEVER
        told = self._calls.fatal_told
        while True:
            dispatcher.schedule.flush(clock.monotonic() + _LINGER_OFF)
            dispatcher.schedule.hurry()
            remaining = _ROUND if deadline is None else max(0.0, deadline - clock.monotonic())
            _, error, from_callback = self._calls.attempt(self._serving.flush_round, min(remaining, _ROUND))
            if error is not None:
                if not isinstance(error, Exception) or not (from_callback or isinstance(error, FatalError)):
                    try:
                        raise error
                    finally:
                        del error
                if not (told and isinstance(error, FatalError)):  # its event may come behind a call that raised it
                    raised = error
                    self._calls.told(error)
            left = self._left()
            if left <= 0 or remaining == 0.0 or self._all_acknowledged(since):
                dispatcher.schedule.flush(0.0)  # another thread's flush() sets it again in its next round
                return max(0, left), self._fatal_meanwhile() or raised

    def _left(self) -> int:
        record_buffer = self._dispatcher.record_buffer
        left = record_buffer.records if self._dispatcher.alone else self._calls.queued
        # A signal handler's flush(): its thread runs that report itself.
        return left - 1 if get_ident() in self._counters.report_queue.running else left

    def _all_acknowledged(self, since: float) -> bool:
        """Whether what is left waits only for the callback to return that a signal handler has interrupted.

        Told by statistics of the direct lane from after `since`, and from after the last record that was held and went
        there: librdkafka has given those reports away.
        """
        direct, dispatcher = self._updates.holds.direct, self._dispatcher
        since = max(since, dispatcher.record_buffer.taken_in_at)
        ended = direct is not None and direct.unacknowledged(since) == 0
        return ended and dispatcher.empty and not dispatcher.lanes.inside and not dispatcher.reports

    def _fatal_meanwhile(self) -> Exception | None:
        """The fatal error that the sender has met and nobody was told of, for the flush() that it ended."""
        failed = self._updates.failures.not_written + self._updates.failures.unknown
        if self._sender.alive and failed != self._failed_then and self._route.state == "open":
            self._failed_then = failed
            looks_end = clock.monotonic() + (_FATAL_COMES if self._dispatcher.alone else 0.0)
            while True:  # a fatal error may be why they failed, and the sender may be about to note it
                self._calls.attempt(self._sender.run, self._dispatcher.look_everywhere)
                if self._route.state != "open" or clock.monotonic() >= looks_end:
                    break
                self._sender.wait(_TURN)
        if self._route.state != "fatal" or self._calls.fatal_told:
            return None
        self._calls.told(fatal := self._calls.fatal_again())
        return fatal

    def drain_purged(self) -> Exception | None:
        """Run what a purge reports, for as long as reports come; the last exception that a callback raised."""
        last: Exception | None = None
        while True:
            before = self._counters.resolved
            left, raised = self.drain(_PURGE_PATIENCE)
            last = raised or last
            if not left or self._counters.resolved == before:
                return last

    def release(self) -> None:
        """Forget callbacks, on the threads of the application; those under way refer to their own.

        The delivery counters' reference is the last: what the application has to destroy then is destroyed with no lock
        held.
        """
        self._dispatcher.intake.release_reports()
        deadline = clock.monotonic() + _NOTED
        while self._sender.alive and self._dispatcher.record_buffer.numbers.reports and clock.monotonic() < deadline:
            if self._dispatcher.record_buffer.records:
                break
            self._sender.wait(_TURN)  # batches refer to callbacks until the sender has taken note of their end
        self._counters.release_callbacks()

    def release_when_idle(self, now: float) -> None:
        """On the sender's thread, for an application that only polls.

        What is destroyed then may call this producer: not on this thread.
        """
        if now < self._release_at:
            return
        self._release_at = now + _RELEASE_EVERY
        accepted = self._counters.accepted
        if accepted != self._accepted_then and not self._calls.queued:
            self._accepted_then = accepted
            self._notices.tell(self.release)
