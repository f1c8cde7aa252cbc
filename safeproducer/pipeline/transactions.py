"""The transaction of one producer: begin, commit, abort."""

from __future__ import annotations

from typing import Any

from safeproducer.errors import CallbackReentryError, flags_of
from safeproducer.kafka.advice import advice
from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.pipeline.engine import Engine
from safeproducer.runtime import clock


class Transactions:
    """Any thread, one at a time. `open`: whether one was begun and not ended. `begun`: whether there ever was one.

    `abandoned`: close() could not abort it in time. The native close() would try that again, for ever.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._without_offset = 0
        self._rests_since: float | None = None
        self.open = self.abandoned = self.begun = False

    def init(self, timeout: float) -> None:
        """Register with the coordinator, once there is a permit for its producer ID."""
        engine, started = self._engine, clock.monotonic()
        engine.calls.refuse_in_callback("init_transactions")
        engine.gate.enter_by(timeout, lambda: engine.route.state == "open")
        left = timeout if timeout < 0 else max(0.0, timeout - (clock.monotonic() - started))
        engine.calls.serve(engine.native.init_transactions, left)
        self._rests_since = clock.monotonic()

    def begin(self) -> None:
        """Records produced from now on belong to a new one."""
        self._engine.calls.serve(self._engine.native.begin_transaction)
        self._warn_after_rest()
        self.open = self.begun = True
        self._without_offset = self._engine.failures.without_offset

    def commit(self, timeout: float) -> None:
        """Wait for its reports, then commit."""
        raised: Exception | None = None
        self._refuse_behind_callback("commit_transaction")
        if self.open:
            timeout, raised = self._settle(timeout)
        self._advised(self._engine.native.commit_transaction, timeout)
        self._end()
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
        _, error, from_callback = self._engine.calls.attempt(call, timeout)
        while from_callback and isinstance(error, Exception):  # whether it has aborted the client keeps to itself
            raised, left = error, max(0.0, deadline - clock.monotonic())
            _, error, from_callback = self._engine.calls.attempt(call, timeout if timeout < 0 else left)
            if isinstance(error, KafkaException) and not from_callback and error.args[0].code() == KafkaError._STATE:
                error = None  # it has
        if error is None:
            self._end()
        return error, raised

    def _refuse_behind_callback(self, method: str) -> None:
        if self._engine.route.behind_callback:  # librdkafka would wait for that report, for ever
            raise CallbackReentryError(
                f"{method}() was called in a signal handler that interrupted a delivery callback, where it could never "
                f"finish. Set a flag in the handler, and call it outside"
            )

    def _end(self) -> None:
        self.open = False
        self._rests_since = clock.monotonic()

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

    def _advised(self, call: Any, *args: Any) -> Any:
        """What `call` returns, and what it raises, with advice where librdkafka gives none."""
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
        """The coordinator may not answer, or not be asked: it aborts after transaction.timeout.ms, and the records are
        purged.

        What a callback raised.
        """
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
        self._advised(call, positions, group_metadata, timeout)
