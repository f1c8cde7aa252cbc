"""The transaction of one producer: begin, commit, abort."""

from __future__ import annotations

from typing import Any

from safeproducer import clock
from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.pipeline.engine import Engine


class Transactions:
    """Any thread, one at a time. `open`: whether one was begun and not ended. `begun`: whether there ever was one.

    `abandoned`: close() could not abort it in time. The native close() would try that again, for ever.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._without_offset = 0
        self.open = self.abandoned = self.begun = False

    def init(self, timeout: float) -> None:
        """Register with the coordinator, once there is a permit for its producer ID."""
        engine, started = self._engine, clock.monotonic()
        engine.calls.refuse_in_callback("init_transactions")
        engine.gate.enter_by(timeout, lambda: engine.client.state == "open")
        left = timeout if timeout < 0 else max(0.0, timeout - (clock.monotonic() - started))
        engine.calls.serve(engine.client.native.init_transactions, left)

    def begin(self) -> None:
        """Records produced from now on belong to a new one."""
        self._engine.calls.serve(self._engine.client.native.begin_transaction)
        self.open = self.begun = True
        self._without_offset = self._engine.updates.failures.without_offset

    def commit(self, timeout: float) -> None:
        """Wait for its reports, then commit."""
        raised: Exception | None = None
        if self.open:
            timeout, raised = self._settle(timeout)
        self._engine.calls.serve(self._engine.client.native.commit_transaction, timeout)
        self.open = False
        if raised is not None:
            try:
                raise raised
            finally:
                del raised  # it refers to this frame

    def abort(self, timeout: float) -> None:
        """Purge what was not sent, and abort."""
        self._engine.calls.serve(self._engine.client.native.abort_transaction, timeout)
        self.open = False

    def abort_for_close(self, timeout: float) -> None:
        """The coordinator may not answer: then it aborts after transaction.timeout.ms, and the records are purged."""
        try:
            self.abort(timeout)
        except KafkaException:
            self.open = False
            self.abandoned = True

    def _settle(self, timeout: float) -> tuple[float, Exception | None]:
        """Wait for all reports; (how much of `timeout` is left, what a callback raised).

        Raises KafkaException whose error demands an abort when a record was not acknowledged though librdkafka takes it
        for delivered, and would commit without it.
        """
        started = clock.monotonic()
        _, raised = self._engine.flush.drain(timeout)
        if (missing := self._engine.updates.failures.without_offset - self._without_offset) > 0:
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
        call = self._engine.client.native.send_offsets_to_transaction
        self._engine.calls.serve(call, positions, group_metadata, timeout)
