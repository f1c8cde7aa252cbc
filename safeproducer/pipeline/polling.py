"""poll() and flush() serve the direct lane and the reports that wait."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from safeproducer.errors import RENEWED, FatalError
from safeproducer.pipeline.calls import Calls
from safeproducer.pipeline.dispatch.dispatcher import Dispatcher
from safeproducer.pipeline.dispatch.updates import ClientUpdates
from safeproducer.pipeline.reports.report_queue import ReportQueue
from safeproducer.pipeline.route import Route
from safeproducer.policy import diagnosis
from safeproducer.policy.diagnosis import Blocked
from safeproducer.policy.types import NEVER
from safeproducer.runtime import clock, interrupts
from safeproducer.runtime.threads import Notices, get_ident

_SLICE = 0.01  # how long to wait on the direct lane while the others have records, too
_LONG_SLICE = 0.05
"""While they have none, and can only tell of events; and on them, while another thread may use the direct one."""
_ROUND_UP = 0.00099  # the client counts in whole milliseconds and drops the rest: another round for nothing
_POLLING = 0.05
"""An application that served within this time is there, and the sender leaves the serving to it. With all cores busy,
one that serves every few milliseconds is late by 10 to 30, and the sender would take records off the direct path."""

_BUSY = _PACE = 0.1  # from when on it is looked whether a native call is in a callback; and how many it runs
_STUCK = 1.0  # seconds from which a callback is told to keep others waiting
_QUICK = 1_000  # reports per second: those of an application that runs as many are not taken away from it

_LINGER_OFF = 0.4  # seconds for which a round of flush() switches linger off: longer than the round
_ROUND = 0.15  # from 0.2 s on the native call splits the wait itself, and runs signal handlers in the middle of it
_FATAL_COMES = 0.1
_LOOK = 0.001
_PURGE_PATIENCE = 1.0  # seconds that close() waits for the next report after a purge
_RELEASE_EVERY = 0.5
_NOTED = 0.05


@dataclass(eq=False, repr=False)
class Serving:
    """On the threads of the application: the direct lane, and the reports that wait here.

    The sender asks whether the application polls. Signal handlers may raise in, or call, any of it.
    """

    _route: Route
    _dispatcher: Dispatcher
    _updates: ClientUpdates
    _report_queue: ReportQueue
    _calls: Calls
    _notices: Notices
    _limit: int | None  # bytes of the buffer, None when that has no limit
    _served_at: float = 0.0
    _seen_at: float = 0.0
    _polls: int = 0
    _polls_seen: int = 0
    _failed_then: int = 0
    _released: tuple[float, int] = (0.0, 0)
    _inside: tuple[float, float] = (-NEVER, 0.0)  # when a call began, and was seen in a callback
    _pace: tuple[float, int, bool, float] = (0.0, 0, False, 0.0)
    """When it was looked at, how many reports were counted by then, whether that were few, and since when no more."""

    def is_polling(self, now: float) -> bool:
        """Whether the application serves, so that its callbacks come when it expects them."""
        if self._polls != self._polls_seen:
            self._polls_seen, self._seen_at = self._polls, now
        if self._route.busy:
            return not (self._blocks(now) and self._is_slow(now))
        return not self._route.barred and now - max(self._seen_at, self._served_at) < _POLLING

    def _blocks(self, now: float) -> bool:
        """Whether each thread that serves has been in callbacks for so long that it serves nothing that comes now.

        What another thread takes meanwhile is younger than all that these have, and older than what they take next.
        """
        began = max(self._seen_at, self._served_at)  # a thread may stand still between that and its native call
        if now - began < _BUSY or not interrupts.in_callbacks(self._route.threads - self._route.barred):
            return False
        if self._inside[0] != began:
            self._inside = began, now
        return now - self._inside[1] > _ROUND

    def _is_slow(self, now: float) -> bool:
        """Whether so few reports are run that those of other partitions would wait long."""
        at, before, slow, since = self._pace
        if now - at >= _PACE:
            counted, goes_on = sum(self._calls.counters.lately()[1:]), now - at < 10 * _PACE
            slow = goes_on and counted - before < _QUICK * _PACE
            since = since if goes_on and counted == before else now
            self._pace = now, counted, slow, since
        return slow

    def blocked(self, now: float) -> Blocked | None:
        """The callback that each thread which serves is in, while reports wait behind it. Any thread."""
        threads, since = self._route.threads - self._route.barred, max(self._seen_at, self._served_at, self._pace[3])
        new = self._polls != self._polls_seen  # the sender has not seen it yet
        found = interrupts.callbacks(threads) if threads and not new and now - since >= _STUCK else []
        if not found:
            return None
        (left, more), held = self._updates.open(), self._dispatcher.record_buffer.waiting
        behind = max(self._report_queue.reports.count, self._calls.unresolved() - held - left.total() - more)
        told = diagnosis.blocked(", ".join(found), now - since, behind)
        return (told, lambda tp: left[tp] + more) if behind > 0 else None

    def not_polled_for(self, now: float) -> float:
        """Seconds for which reports have waited for a poll(). Any thread."""
        if self._polls != self._polls_seen or self._route.busy:
            return 0.0
        return now - max(self._seen_at, self._served_at, self._report_queue.reports.since)

    @interrupts.calls_natively
    def stand_by(self) -> None:
        """Take the direct lane's reports for an application that does not poll, or is in a callback, until half of our
        room is used up.

        The sender calls. They are queued, so that the lane has room, and answers are known.
        """
        if self._dispatcher.only_batch_lanes or not len(self._route.native):
            return
        if self._limit is not None and self._report_queue.bytes > self._limit / 2:
            return
        self._route.leave()  # its room is not the producer's any more
        self._report_queue.serve_on(get_ident())
        try:
            # From here on no thread that comes out of a callback serves beside this one.
            if not self._route.busy or self._blocks(clock.monotonic()):
                self._route.native.poll(0)
        finally:
            self._report_queue.serve_on(0)

    @interrupts.calls_natively
    def poll(self, timeout: float) -> int:
        # What Calls.attempt() does, inline: many applications poll after each record.
        thread, route, report_queue = get_ident(), self._route, self._report_queue
        threads = route.threads
        if thread in threads:
            return self._poll_inside(timeout)
        try:
            threads.add(thread)
            self._polls += 1
            if route.goes_direct and not report_queue.thread and not report_queue.reports.bunches:
                started = clock.monotonic() if timeout > 0 else 0.0
                # librdkafka's poll() counts events of this library, too, and returns at them. The application would
                # take them for reports: they are taken off, and the rest of `timeout` is waited for.
                unseen = self._calls.events.unseen
                before = unseen.get(thread, 0)
                served: int = route.native.poll(timeout if 0 <= timeout < _ROUND else _ROUND)
                if not (served or timeout):
                    return 0
                if self._updates.changed:
                    self._route.sender.wake(0.0)
                if not (hidden := unseen.get(thread, 0) - before) and (served or 0 <= timeout < _ROUND):
                    return served
                served -= hidden
                if served > 0 or timeout == 0:
                    return served
                if timeout > 0:
                    timeout = max(0.0, started + timeout - clock.monotonic())
            return self._wait(timeout)
        except:  # noqa: E722 - as in Calls.attempt()
            error = self._calls.noted(sys.exc_info()[1])[0]
        finally:
            threads.discard(thread)
        if error is RENEWED:
            return 0
        self._calls.told(error)
        try:
            raise error
        finally:
            del error  # it refers to this frame

    def _poll_inside(self, timeout: float) -> int:
        """A poll() inside another call of this thread: a signal handler's serves, a callback's answers at once."""
        if interrupts.in_callback():
            return self._calls.answer_in_callback("poll", 0)
        return int(self._calls.run(self._wait, timeout))

    def _wait(self, timeout: float) -> int:
        """Serve the direct lane and the reports kept here for up to `timeout` seconds, until something was served."""
        if not self._route.usable:
            self._route.native.poll(timeout)  # raises
        if self._route.sender.is_this_thread():  # in a destructor: what it waits for would wait for it
            return self._calls.answer_in_callback("poll", 0)
        end = clock.monotonic() + timeout if timeout >= 0 else NEVER
        self._tell_sender()
        self._route.sender.let_work()
        try:
            while True:
                served = self._serve_now()
                if served:
                    self._let_go_directly()
                left = end - clock.monotonic()
                if served or left <= 0 or not self._route.usable:
                    return served
                if served := self._wait_once(left):
                    return served
        finally:
            self._served_at = clock.monotonic()

    def run_reports(self, most: int) -> bool:
        """Run up to `most` of the reports that wait here, without any wait; whether more do. Raises what they raise."""
        self._served_at = clock.monotonic()
        self._polls += 1
        try:
            self._report_queue.run(most)
        finally:
            if not self._report_queue.reports and self._dispatcher.empty:
                self._route.sender.wake(0.0)  # as in _let_go_directly()
        return bool(self._report_queue.reports)

    def _let_go_directly(self) -> None:
        """The sender may have waited for these reports only: the next record can be the first that goes directly."""
        buffered = not (self._route.goes_direct or self._dispatcher.only_batch_lanes)
        if buffered and not self._report_queue.reports and self._dispatcher.empty:
            self._route.sender.wake(0.0)
            self._route.sender.let_work()

    def _tell_sender(self) -> None:
        if self._updates.changed:
            self._route.sender.wake(0.0)

    @property
    def _serves_direct(self) -> bool:
        """Whether the calling thread may serve the direct lane now: the sender has left nothing older here."""
        barred = self._route.barred
        if self._dispatcher.only_batch_lanes or (barred and get_ident() in barred):
            return False
        ended = not self._report_queue.thread or sys.is_finalizing()  # which may have stopped the sender there
        return ended and not self._report_queue.reports  # in this order: it adds the last one before it has ended

    def _serve_now(self) -> int:
        """Run callbacks: first those that wait here, the sender may have taken some out of the direct lane."""
        self._served_at = clock.monotonic()
        served = self._report_queue.run() if self._report_queue.reports else 0
        # Records and events: to ask costs less than to serve nothing.
        if self._serves_direct and len(self._route.native):
            served += self._poll_native(0)
        self._tell_sender()
        return served

    def _wait_once(self, left: float) -> int:
        """Wait where the next answer is likely to come, not longer than `left`; how much was served meanwhile."""
        if self._dispatcher.only_batch_lanes:
            self._route.sender.wait(left)
            return 0
        goes_direct = self._route.goes_direct
        if not (self._serves_direct and (goes_direct or len(self._route.native))):
            self._route.sender.wait(min(left, _LONG_SLICE))
            return 0
        # The sender rings for what it has; here nobody hears it.
        busy = self._dispatcher.busy or self._report_queue.reports or not goes_direct
        return self._poll_native(min(left, _SLICE if busy else _LONG_SLICE) + _ROUND_UP)

    @interrupts.calls_natively
    def _poll_native(self, timeout: float) -> int:
        """Serve it; how much of what it served poll() counts."""
        unseen, thread = self._calls.events.unseen, get_ident()
        before = unseen.get(thread, 0)
        served: int = self._route.native.poll(timeout)
        return served - (unseen.get(thread, 0) - before)

    @interrupts.calls_natively
    def flush_round(self, timeout: float) -> None:
        """Serve for up to `timeout` seconds, or until a record has its report."""
        # Reports come from librdkafka, whose flush() waits for its own records alone, and from the queue here. To wait
        # in the wrong place is to sleep beside a report that is there: the native call waits only where all go
        # directly.
        route, self._served_at = self._route, clock.monotonic()
        if self._serves_direct and route.goes_direct:
            route.native.flush(timeout)
            if self._serves_direct and len(route.native):  # events, if the sender took nothing older in a callback
                route.native.poll(0)
            self._tell_sender()
            if timeout > 0 and (self._dispatcher.lanes.events or self._report_queue.deferred):
                self._route.sender.wait(min(timeout, _SLICE))
        elif not self._wait(0) and timeout > 0:
            if self._serves_direct and len(route.native):
                route.native.flush(min(timeout, _SLICE))
            else:
                self._wait(timeout)

    # --- flush() ------------------------------------------------------------------------------------------------------

    def flush(self, timeout: float) -> int:
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
        # A batch that waits for linger would hold up the flush(), and linger must come back for whoever produces later,
        # also behind a flush() that was interrupted: each round switches it off for a moment.
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
            self._updates.hurry()  # they alone tell that a report waits only for a signal handler, the caller
            if not self._route.sender.alive:  # at exit: nobody else ends records whose time is over
                self._route.sender.wait(0.0)
            remaining = _ROUND if deadline is None else max(0.0, deadline - clock.monotonic())
            patience = min(remaining, _ROUND) if self._left() > 0 else 0.0  # of events alone nothing more comes
            _, error, from_callback = self._calls.attempt(self.flush_round, patience)
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
        left = record_buffer.records if self._dispatcher.only_batch_lanes else self._calls.queued
        # A signal handler's flush(): its thread runs that report itself.
        return left - 1 if get_ident() in self._report_queue.running else left

    def _all_acknowledged(self, since: float) -> bool:
        """Whether what is left waits only for the callback to return that a signal handler has interrupted.

        Told by statistics of the direct lane from after `since`, and from after the last record that was held and went
        there: librdkafka has given those reports away.
        """
        direct, dispatcher = self._updates.holds.direct, self._dispatcher
        since = max(since, dispatcher.record_buffer.given_directly_at)
        ended = direct is not None and direct.unacknowledged(since) == 0
        return ended and dispatcher.empty and not dispatcher.lanes.inside and not dispatcher.reports

    def _fatal_meanwhile(self) -> Exception | None:
        """The fatal error that the sender has met and nobody was told of, for the flush() that it ended."""
        failed = self._updates.failures.not_written + self._updates.failures.unknown
        if self._route.sender.alive and failed != self._failed_then and self._route.state == "open":
            self._failed_then = failed
            looks_end = clock.monotonic() + (_FATAL_COMES if self._dispatcher.only_batch_lanes else 0.0)
            while True:  # a fatal error may be why they failed, and the sender may be about to note it
                self._calls.attempt(self._route.sender.run, self._dispatcher.look_everywhere)
                if self._route.state != "open" or clock.monotonic() >= looks_end:
                    break
                self._route.sender.wait(_LOOK)
        if self._route.state != "fatal" or self._calls.fatal_told:
            return None
        self._calls.told(fatal := self._calls.fatal_again())
        return fatal

    def drain_purged(self) -> Exception | None:
        """Run what a purge reports, for as long as reports come; the last exception that a callback raised."""
        last: Exception | None = None
        while True:
            before = self._calls.counters.totals()[1:]
            left, raised = self.drain(_PURGE_PATIENCE)
            last = raised or last
            if not left or self._calls.counters.totals()[1:] == before:
                return last

    def release(self) -> None:
        """Forget callbacks, on the threads of the application; those under way refer to their own.

        The delivery counters' reference is the last: what the application has to destroy then is destroyed with no lock
        held.
        """
        self._dispatcher.intake.release_reports()
        deadline = clock.monotonic() + _NOTED
        while self._route.sender.alive and self._dispatcher.record_buffer.numbers and clock.monotonic() < deadline:
            if self._dispatcher.record_buffer.records:
                break
            self._route.sender.wait(_LOOK)  # batches refer to callbacks until the sender has taken note of their end
        self._calls.counters.release_callbacks()

    def release_when_idle(self, now: float) -> None:
        """Forget callbacks for an application that only polls. What they destroy may call the producer: not here."""
        due, before = self._released
        if now < due:
            return
        if idle := (accepted := self._calls.counters.accepted) != before and not self._calls.queued:
            self._notices.tell(self.release)
        self._released = now + _RELEASE_EVERY, accepted if idle else before
