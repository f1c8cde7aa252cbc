"""close() and a fork end a producer; records that are lost are told, and its permit is given back if it was not used.

A producer ID costs brokers memory once it writes. Therefore a producer that has certainly sent nothing gives its permit
back, and restarts while the brokers are away cost nothing.
"""

from __future__ import annotations

import sys
import warnings
from threading import get_ident
from typing import Any

from safeproducer.errors import ForkedProducerError, ProducerClosedError
from safeproducer.hooks import Hooks, RecordsLost
from safeproducer.kafka.arguments import NO_TIMEOUT, seconds
from safeproducer.pipeline.engine import Engine
from safeproducer.pipeline.lanes.lane_pool import LanePool
from safeproducer.pipeline.reports.hooked_send import record_of
from safeproducer.pipeline.reuse import ParkedProducers, parkable
from safeproducer.pipeline.transactions import Transactions
from safeproducer.records import ProducerInfo
from safeproducer.runtime import clock, lifetime
from safeproducer.runtime.log import logger
from safeproducer.snapshot import CloseReport

_STATISTICS_LATE = 0.3  # seconds beyond their interval for which statistics are waited for
_PROOF_SLICE = 0.05
_AFTER_ERROR = 5.0  # seconds within which the failure of a record is taken for the reason why its producer is given up
_THREADS_PATIENCE = 0.5
_CLOSES = 0.005  # seconds between two looks whether the close() of another thread has ended
_CLOSED = "Producer has been closed (Handle has been closed): make a new one to produce again"
_FAREWELL = 0.5  # seconds that close() waits for what a batch lane was purged of, all told by then
_SLICE = 0.01
_ENDS = {"garbage collection": "collected", lifetime.EXIT: "exit"}
"""How a permit for a producer ID ends, by the reason for which records may be lost."""


def await_proof(engine: Engine) -> Exception | None:
    """Wait for statistics before close() ends a producer whose records have all failed; what a callback raised.

    Only they tell of a record that was given a partition whether it was in a request, once a broker was reached. The
    wait is left out where nothing can be proven.
    """
    raised = None
    interval, gate = engine.updates.interval, engine.gate
    accepted, _, failed = engine.counters.totals()
    if engine.route.inside or engine.route.state != "open" or not gate.used:
        return None
    if accepted != failed or gate.wrote or _never_sent(engine):
        return None
    if engine.reached_nobody:
        gate.unsent_at = clock.monotonic()
        return None
    if not interval:
        return None
    deadline = clock.monotonic() + interval + _STATISTICS_LATE
    while not (_shown_unsent(engine) or gate.wrote) and clock.monotonic() < deadline:
        try:
            engine.serving.poll(_PROOF_SLICE)
        except Exception as error:
            raised = error
    return raised


def end_permit(engine: Engine, how: str, begun: bool) -> None:
    """End it; give it back if nothing was sent with it. `how` as in Guard.note(). The first call counts.

    `begun`: whether a transaction was, which writes even if it is of offsets alone.
    """
    if engine.events.fatal is not None:
        how = "failed"
    elif isinstance(sys.exception(), Exception):  # of the `with`, `finally` or `except` that closes it
        how = "crashed"
    elif how != "exit" and clock.monotonic() < engine.failures.failed_at + _AFTER_ERROR:
        how = "error"
    never_sent = _never_sent(engine) or engine.reached_nobody
    engine.gate.end(how, not begun and (never_sent or _shown_unsent(engine)))
    engine.gate.lane_permits().end(how, never_sent)


def _never_sent(engine: Engine) -> bool:
    """Whether each record that was accepted has ended without having been in a request."""
    return engine.failures.unsent >= engine.counters.totals()[0]


def _shown_unsent(engine: Engine) -> bool:
    """Whether statistics from after the last record's end show that there never was a request."""
    accepted, delivered, failed = engine.counters.totals()
    return not delivered and accepted == failed and engine.gate.unsent_at > engine.failures.failed_at > 0


class Release:
    """The native producers that an engine has released, and which threads were inside them then.

    `closes`: whether they may be closed at all. `left`: what another producer may have of them.
    """

    def __init__(
        self, lanes: LanePool, native: Any, serving: set[int], closes: bool, left: ParkedProducers | None
    ) -> None:
        self._lanes, self._native, self._serving = lanes, native, serving
        self._left = left
        self._parked = False
        self.closes = closes

    def close(self) -> None:
        """Close them; again after it was interrupted. A batch lane with records reported as unknown is purged of them.

        Not when another thread is inside: the last one that refers to a native producer destroys it.
        """
        lanes = self._lanes
        if lanes.inside:
            lanes.purge()
            deadline = clock.monotonic() + _FAREWELL
            while lanes.inside and clock.monotonic() < deadline:
                for lane in lanes:
                    lane.client.wait(_SLICE)
        full = [lane.client.native for lane in lanes if lane.inside]
        for native in [self._native, *(native for native in lanes.natives if native is not self._native)]:
            if not (self._serving - {get_ident()} or any(native is other for other in full)):
                native.close()  # with records in it, it would wait for ever; releasing it does not

    def parks(self, ended: bool) -> bool:
        """Whether another producer has them now, or may have: then nothing of that is touched here again.

        `ended`: no thread is in the lanes that stay, which never had a record.
        """
        if not self._parked and self._left is not None:
            self._parked = True  # before: a signal handler may raise when they are parked already
            self._parked = self._left.park()
        if self._parked and self._left is not None and ended:
            for native in self._lanes.natives:
                if not any(native is other for other in self._left.natives):
                    native.close()
        return self._parked


class Closing:
    """Any thread, several at once, and signal handlers that raise anywhere in it.

    `closers`: the threads in close() now, by a mark of each call, in their order.
    """

    def __init__(self, engine: Engine, transactions: Transactions, hooks: Hooks, info: ProducerInfo) -> None:
        self._engine = engine
        self._transactions = transactions
        self._hooks = hooks
        self._info = info
        self.closers: dict[object, int] = {}
        self._report: CloseReport | None = None  # the answer of close(), which counts once the engine is closed
        self._ends: Release | None = None  # native producers that end then
        self._failed_before: int | None = None  # records that had failed when a close() began to purge
        self._loss_reported = False

    def close(self, timeout: float | None) -> CloseReport:
        # Several threads may close, and a signal handler inside another call's close(). Each waits for the first one,
        # but not for the one that it interrupted: that goes on only behind the handler.
        if self._engine.route.state == "closed" and self._ends is None and self._report is not None:
            return self._report
        if self._engine.awake().unresolved() or not self._engine.sender.is_this_thread():
            self._engine.calls.refuse_in_callback("close")
        deadline = None if timeout is None or (left := seconds(timeout)) < 0 else clock.monotonic() + left
        closers, mark, raised = self.closers, object(), None
        try:
            closers[mark] = get_ident()
            while self._may_wait_for(next(iter(closers.copy().values())), deadline):
                clock.sleep(_CLOSES)
            if self._engine.route.state != "closed":
                raised = self._end(deadline)
            self._end_natives()
        except ProducerClosedError:
            # A handler, a destructor or another thread has closed it in the middle of this call.
            if self._engine.route.state != "closed":
                raise
        finally:
            closers.pop(mark, None)  # the first call here, so no signal handler comes before it
        if raised is not None:
            try:
                raise raised
            finally:
                del raised  # it refers to this frame: a cycle, and this frame to the producer
        assert self._report is not None  # noqa: S101 - it comes before the state
        return self._report

    def _may_wait_for(self, closer: int, deadline: float | None) -> bool:
        """A close() waits for another one, but not for the call that it interrupted, nor on a thread that the other
        one waits for. None goes on when the interpreter ends."""
        if closer == get_ident() or self._engine.sender.is_this_thread() or sys.is_finalizing():
            return False
        return self._engine.route.state != "closed" and (deadline is None or clock.monotonic() < deadline)

    def _end(self, deadline: float | None) -> Exception | None:
        """Have every record reported, and refuse what comes; what a callback raised.

        A signal handler that raises in it leaves the producer open, and as it was, up to the step that closes it.
        """
        engine = self._engine
        inside = engine.route.inside  # a signal handler: the call that it interrupted still uses the native producer
        started = clock.monotonic()
        aborting = self._transactions.abort_for_close(_left(deadline)) if self._transactions.open else None
        queued, raised = engine.serving.drain(_left(deadline))
        raised = raised or aborting
        taken = _reports_taken(engine, started)
        left = self._count_left(queued, taken)
        if left or (queued and not taken):
            engine.purge()
            raised = engine.serving.drain_purged() or raised
            more = max(0, _reports_taken(engine, started) - taken)  # statistics may have told meanwhile
            left, taken = left - more, taken + more
        engine.serving.release()
        raised = await_proof(engine) or raised
        raised = self._serve_events() or raised
        self.report_loss("close deadline", taken)
        accepted, delivered, failed = self._engine.counters.totals()
        report = CloseReport(accepted, delivered, failed, left, clock.monotonic() - started)
        # With records in it, with a transaction, or another thread, the native close() would wait, for ever or worse;
        # letting go does not.
        free = not (inside or self._transactions.abandoned)
        natives = engine.dispatcher.lanes, engine.native, engine.route.threads
        lanes = parkable(engine) if free else None
        ends = Release(*natives, free and not engine.queued, lanes)
        if engine.route.state != "closed":
            self._report, self._ends = report, ends
            engine.route.retire("closed", lambda: ProducerClosedError(_CLOSED))
        return raised

    def _serve_events(self) -> Exception | None:
        """Serve statistics that wait, which librdkafka counts as it does records; what a callback raised."""
        try:
            if self._engine.counters.interrupts and self._engine.queued and self._engine.route.state == "open":
                self._engine.serving.poll(0)
        except Exception as error:
            return error
        return None

    def _count_left(self, queued: int, taken: int) -> int:
        """Records that are to be purged, and those that a close() purged which was interrupted."""
        failed = self._engine.counters.totals()[2]
        if queued and self._failed_before is None:
            self._failed_before = failed
        if self._failed_before is None:
            return 0
        return self._engine.counters.outstanding(queued)[0] - taken + failed - self._failed_before

    def _end_natives(self) -> None:
        """The rest, once it is closed: nobody comes to a native producer any more that the engine has released.

        One call does it. A signal handler that raises in it leaves it to the next close().
        """
        engine = self._engine
        ends, self._ends = self._ends, None
        if ends is None or self._report is None:
            return
        try:
            ended = engine.stop_threads(_THREADS_PATIENCE)
            if not ends.parks(ended) and ended and ends.closes:
                self._close_natives(ends)
            engine.serving.release()
            end_permit(engine, "closed", self._transactions.begun)
        except BaseException:
            self._ends = ends
            raise
        self._hooks.call("producer_closed", self._info, self._report)

    def _close_natives(self, ends: Release) -> None:
        if self._info.transactional_id is None:
            self._engine.calls.serve(ends.close)
            return
        with warnings.catch_warnings():
            # It warns that it cannot abort a transaction that was never begun, and fails where warnings are errors.
            warnings.simplefilter("ignore", RuntimeWarning)
            self._engine.calls.serve(ends.close)

    def begin(self) -> None:
        self._hooks.call("_producer_began", self._engine)
        self._hooks.call("producer_created", self._info)

    def become_forked(self) -> None:
        """In the child after a fork: the native producer's threads are gone, and touching it would hang."""
        if self._engine.route.state not in ("closed", "forked"):
            why = (
                f"this SafeProducer was made at {self._info.site} before a fork and does not work in the child process"
            )
            cure = "its threads stayed in the parent. Make producers after the fork, one in each process"
            self._engine.route.retire("forked", lambda: ForkedProducerError(f"{why}: {cure}"))

    def collect(self) -> None:
        """The producer is garbage. What it leaves goes to the next one once its threads have ended."""
        engine = self._engine
        engine.stop_threads(None)
        self.report_loss("garbage collection")
        self._hooks.call("_producer_ended", engine)
        left = parkable(engine)
        if left is not None and self._report is None:
            accepted, delivered, failed = self._engine.counters.totals()
            self._report = CloseReport(accepted, delivered, failed, 0, 0.0)
            engine.route.retire("closed", lambda: ProducerClosedError(_CLOSED))
            left.park()

    def report_loss(self, reason: str, taken: int = 0) -> None:
        """Tell once of records that nobody is told of any more; of so many the report was `taken`, and is to be run."""
        if not self._engine.route.usable or self._loss_reported:
            return
        self._loss_reported = True
        try:
            if reason == lifetime.EXIT:
                self._engine.take_last_reports()
            if (how := _ENDS.get(reason)) is not None:
                end_permit(self._engine, how, self._transactions.begun)
            text = self._tell_loss(reason, taken)
        except BaseException:  # a signal handler's: somebody is still to be told
            self._loss_reported = False
            raise
        if text is not None:
            warnings.warn(text, ResourceWarning, stacklevel=3)

    def _tell_loss(self, reason: str, taken: int) -> str | None:
        """Tell log and hooks of records lost without a report, unpolled reports aside; the text of the warning."""
        counters = self._engine.counters
        written, acknowledged = counters.written().total(), counters.acknowledged()
        unresolved = counters.outstanding(self._engine.queued)[0] - written - taken
        if unresolved <= 0:
            return None
        observed = self._engine.route.observed
        open_records = observed.open.difference(map(record_of, acknowledged)) if observed else ()
        text = (
            f"{unresolved} record(s) accepted by a SafeProducer made at {self._info.site} were lost at {reason}: they "
            f"have no delivery report and are of unknown outcome. Call flush() or close() before letting the producer "
            f"go."
        )
        logger.last_words(text)
        self._hooks.call("records_lost", RecordsLost(self._info, reason, unresolved, tuple(open_records)))
        return text


def _reports_taken(engine: Engine, since: float) -> int:
    """Records whose reports a call has taken that a signal handler, the caller, interrupted in a callback at `since`.

    Their callbacks run when that call goes on. 0 while statistics have not told which of its records are no others.
    """
    direct = engine.holds.direct
    if direct is None or not (direct.knows_backlogs and engine.route.behind_callback):
        return 0
    elsewhere = engine.dispatcher.record_buffer.records - len(engine.native)
    unacknowledged = direct.unacknowledged(since)
    return 0 if unacknowledged is None else max(0, engine.unresolved() - elsewhere - unacknowledged)


def _left(deadline: float | None) -> float:
    return NO_TIMEOUT if deadline is None else max(0.0, deadline - clock.monotonic())
