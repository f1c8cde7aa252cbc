"""The transaction of one producer: begin, commit, abort."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from safeproducer.errors import CallbackReentryError, TransactionUnknown, flags_of
from safeproducer.kafka.advice import advice
from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.kafka.statistics import read, repaired
from safeproducer.pipeline.engine import Engine
from safeproducer.pipeline.lanes.native_producers import NOBODY, SessionLog
from safeproducer.pipeline.renewal import change
from safeproducer.policy.coordinator import Call
from safeproducer.policy.renewals import Identity, Session, taken_over
from safeproducer.runtime import clock

_TELLS, _LOOK = 5.0, 0.05  # seconds that statistics may take which tell an epoch: twice a second if not busy
_RESUMED = 1.0  # seconds that a commit has at least which is called again
_TAKEN_OVER = (
    "another instance has registered this transactional.id since the last transaction of this one, which writes "
    "nothing more: its new epoch has fenced that instance, too, so start one of them anew"
)


class Transactions:
    """Any thread, one at a time. `open`: whether one was begun and not ended. `begun`: whether there ever was one.

    `abandoned`: close() could not abort it in time. The native close() would try that again, for ever.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._without_offset = 0
        self._rests_since: float | None = None
        self.open = self.abandoned = self.begun = False
        self._began_at = 0.0
        self._new: Callable[..., Any] | None = None
        """init_transactions() of the native producer that came in place of another one, until it has succeeded."""
        self._before: tuple[Identity | None, int] | None = None  # the epoch that is given up, and requests lost by then

    def init(self, timeout: float) -> None:
        """Register with the coordinator, once there is a permit for its producer ID."""
        engine, started = self._engine, clock.monotonic()
        engine.calls.refuse_in_callback("init_transactions")
        engine.gate.enter_by(timeout, lambda: engine.route.state == "open")
        left = timeout if timeout < 0 else max(0.0, timeout - (clock.monotonic() - started))
        self._wait("init_transactions", engine.calls.serve, engine.native.init_transactions, left)
        self._rests_since = clock.monotonic()

    def begin(self, timeout: float = -1) -> None:
        """Records produced from now on belong to a new one. `timeout`: for a new epoch, if it needs one."""
        calls = self._engine.calls
        calls.refuse_in_callback("begin_transaction")
        if (log := self._log) is not None:
            if log.session.doubt and not self.goes_on and self._engine.route.state == "open":
                self._renew(timeout, log)
            if self._engine.events.fatal is not None:
                calls.run(_raise, calls.fatal_again())  # of which the native producer may know nothing
            calls.run(self._engine.native.poll, 0)
            log.session.begin(log.lost, self._engine.failures.in_requests)
        calls.serve(self._engine.native.begin_transaction)
        self._warn_after_rest()
        self.open = self.begun = True
        self._began_at = clock.monotonic()
        self._without_offset = self._engine.failures.without_offset

    @property
    def goes_on(self) -> bool:
        """Whether one is open, and no call that was to end it has been given up."""
        return self.open and not (self._log is not None and self._log.session.left)

    def commit(self, timeout: float) -> None:
        """Wait for its reports, then commit."""
        raised: BaseException | None = None
        self._refuse_behind_callback("commit_transaction")
        if self.open:
            timeout, raised = self._wait("commit_transaction", self._settle, timeout, drains=True)
        if self._log is not None and self._log.session.left and timeout >= 0:
            # Called again, librdkafka asks its own thread first. If that does not answer in time, it forgets that a
            # commit is under way, takes the coordinator's answer for that to an abort, and ends the process.
            timeout = max(timeout, _RESUMED)
        try:
            self._wait("commit_transaction", self._advised, self._engine.native.commit_transaction, timeout)
        except KafkaException as error:
            self._doubted(error, "commit_transaction")
            if error.args[0].retriable():
                raise TransactionUnknown(error.args[0]) from error
            raise
        raised = self._end("committed") or raised
        if raised is not None:
            try:
                raise raised
            finally:
                del raised  # it refers to this frame

    def abort(self, timeout: float) -> None:
        """Purge what was not sent, and abort."""
        self._engine.calls.refuse_in_callback("abort_transaction")
        self._refuse_behind_callback("abort_transaction")
        error, raised = self._abort(timeout)
        self._doubted(error, "abort_transaction")
        try:
            if (raised := error or raised) is not None:
                self._engine.calls.told(raised)
                raise raised
        finally:
            del error, raised  # they refer to this frame

    def _abort(self, timeout: float) -> tuple[BaseException | None, BaseException | None]:
        """(why it failed, what a callback raised)."""
        raised: BaseException | None = None
        call, deadline = self._engine.native.abort_transaction, clock.monotonic() + timeout
        _, error, from_callback = self._wait("abort_transaction", self._engine.calls.attempt, call, timeout)
        while from_callback and isinstance(error, Exception):  # whether it has aborted the client keeps to itself
            raised, left = error, max(0.0, deadline - clock.monotonic())
            _, error, from_callback = self._engine.calls.attempt(call, timeout if timeout < 0 else left)
            if isinstance(error, KafkaException) and not from_callback and error.args[0].code() == KafkaError._STATE:
                error = None  # it has
        if error is None:
            raised = self._end("aborted") or raised
        return error, raised

    def _refuse_behind_callback(self, method: str) -> None:
        if self._engine.route.behind_callback:  # librdkafka would wait for that report, for ever
            raise CallbackReentryError(
                f"{method}() was called in a signal handler that interrupted a delivery callback, where it could never "
                f"finish. Set a flag in the handler, and call it outside"
            )

    def _end(self, how: str) -> BaseException | None:
        """The transaction is committed or aborted; what a callback raised."""
        raised: BaseException | None = None
        self.open = False
        self._rests_since = clock.monotonic()
        if (log := self._log) is not None:
            # The lines of what was lost are there: librdkafka writes them before it sends a request again.
            raised = self._engine.calls.attempt(self._engine.native.poll, 0)[1]
            log.session.end(log.lost, self._engine.failures.in_requests)
            self._tell(how, log)
        return raised

    # --- a new epoch -------------------------------------------------------------------------------------------------

    @property
    def _log(self) -> SessionLog | None:
        return self._engine.native_producers.session_log

    def _tell(self, outcome: str, log: SessionLog) -> None:
        log.counts[outcome] += 1
        self._engine.notifications.transaction_ended(outcome, clock.monotonic() - self._began_at, log.session.doubt)

    def _doubted(self, error: object, method: str) -> None:
        """Take note of a call whose answer is not known: brokers may do yet what it asked for."""
        if self._log is not None and isinstance(error, KafkaException) and error.args[0].retriable():
            self._log.session.give_up(method)

    def _renew(self, timeout: float, log: SessionLog) -> None:
        """Register a new native producer, and so a new epoch, before the next transaction; say why.

        Brokers end what is open, and refuse what is late of the former one. If another instance was there meanwhile,
        the producer is fatal from then on. Raises what init_transactions() raises: then the next begin() goes on.
        """
        # Each step may raise, by a time-out or a signal handler. What is done is noted (`_before`, `_new`), and the
        # next begin() goes on behind it: a second new epoch would look like another instance's.
        engine = self._engine
        if self._before is None:
            before = self._identity(log)
            if engine.unresolved():
                engine.purge()
                if (raised := engine.serving.drain_purged()) is not None:
                    raise raised
            former, native = engine.native, engine.native_producers.another()
            engine.native_producers.leave(former, NOBODY.statistics)
            engine.sender.run(partial(change, native, engine.route, engine.dispatcher, engine.holds))
            engine.native_producers.forget(former)
            self._before, self._new = (before, log.lost), native.init_transactions
        if self._new is not None:
            self._wait("begin_transaction", engine.calls.serve, self._new, timeout)
            self._new = None
        (identity, lost), session = self._before, log.session
        if taken_over(identity, self._identity(log), not session.left, log.lost - lost):
            fatal = KafkaError(KafkaError.PRODUCER_FENCED, _TAKEN_OVER, fatal=True)
            engine.calls.fatal_in(KafkaException(fatal))
            return
        if session.left:
            self._tell("unknown" if session.left == "commit_transaction" else "aborted", log)
        log.counts["renewed"] += 1
        engine.notifications.new_epoch(session.doubt)
        self._before, self.open, log.session = None, False, Session()

    def _identity(self, log: SessionLog) -> Identity | None:
        """The producer's ID and epoch, by statistics from now on; None if none come."""
        engine, until = self._engine, clock.monotonic() + _TELLS
        engine.serving.poll(0)
        log.take_statistics()
        while clock.monotonic() < until:
            engine.serving.poll(_LOOK)
            text = log.take_statistics()
            found = None if text is None else read(repaired(text, engine.events.client_id))
            if found is not None and found.producer_id is not None and found.producer_epoch is not None:
                return Identity(found.producer_id, found.producer_epoch)
        return None

    def _warn_after_rest(self) -> None:
        """The coordinator may have forgotten the transactional.id, which the commit would only learn."""
        expirations, since, now = self._engine.questions.expirations, self._rests_since, clock.monotonic()
        horizon = expirations.current
        if horizon is not None and since is not None and now - since >= horizon.seconds:
            self._engine.notifications.once(
                f"rest {since}",
                f"this transaction begins after a rest of {now - since:.0f} s, and the coordinator may have forgotten "
                f"its transactional.id by now ({horizon.said}). If commit_transaction() raises "
                f"INVALID_PRODUCER_ID_MAPPING, abort it and run it again. Shorter rests or a larger "
                f"transactional.id.expiration.ms avoid that (KIP-854)",
            )

    def _wait(self, method: str, call: Callable[..., Any], *args: Any, drains: bool = False) -> Any:
        """Make a call of which it is known meanwhile that this method waits."""
        calls = self._engine.holds.cluster.calls
        try:
            calls[method] = Call(method, clock.monotonic(), drains)
            return call(*args)
        finally:
            calls.pop(method, None)

    def _advised(self, call: Any, *args: Any) -> Any:
        """Make a call; what it raises has advice where librdkafka gives none."""
        try:
            return self._engine.calls.serve(call, *args)
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() != KafkaError.INVALID_PRODUCER_ID_MAPPING:
                raise
            text = f"{cause.str()}. {advice(cause.name())}"
            flags = flags_of(cause)
        raise KafkaException(KafkaError(KafkaError.INVALID_PRODUCER_ID_MAPPING, text, **flags))

    def abort_for_close(self, timeout: float) -> Exception | None:
        """Abort; a coordinator that cannot be asked does so after transaction.timeout.ms. What a callback raised."""
        if self._engine.route.behind_callback:
            self.open, self.abandoned = False, True
            return None
        error, raised = self._abort(timeout)
        try:
            if isinstance(error, KafkaException):
                self.open, self.abandoned, error = False, True, None
            if (raised := error or raised) is None or (error is None and isinstance(raised, Exception)):
                return raised
            raise raised
        finally:
            del error, raised

    def _settle(self, timeout: float) -> tuple[float, Exception | None]:
        """Wait for all reports; (how much of `timeout` is left, what a callback raised).

        Raises KafkaException whose error demands an abort when a record was not acknowledged though librdkafka takes it
        for delivered, and would commit without it.
        """
        started = clock.monotonic()
        _, raised = self._engine.awake().serving.drain(timeout)
        if (missing := self._engine.failures.without_offset - self._without_offset) > 0:
            raise KafkaException(
                KafkaError(
                    KafkaError._INCONSISTENT,
                    f"{missing} record(s) of this transaction were not acknowledged by any broker (see their delivery "
                    f"reports). Call abort_transaction() and produce the records again in a new transaction",
                    retriable=False,
                    txn_requires_abort=True,
                )
            )
        return timeout if timeout < 0 else max(0.0, timeout - (clock.monotonic() - started)), raised

    def send_offsets(self, positions: Any, group_metadata: Any, timeout: float) -> None:
        """Commit consumer offsets with it."""
        call = self._engine.native.send_offsets_to_transaction
        try:
            self._wait("send_offsets_to_transaction", self._advised, call, positions, group_metadata, timeout)
        except KafkaException as error:
            self._doubted(error, "send_offsets_to_transaction")
            raise


def _raise(error: BaseException) -> None:
    raise error
