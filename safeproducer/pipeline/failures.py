"""What a failed record's callback is told: the error as librdkafka gave it, with the outcome and what is known."""

from __future__ import annotations

import time

from safeproducer.delivery import Delivery
from safeproducer.errors import DeliveryError
from safeproducer.kafka.native import KafkaError, Message
from safeproducer.pipeline.accumulator import TIMESTAMP, HeldRecord
from safeproducer.policy.outcome import Outcome, outcome_of

_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


class Failures:
    """Makes DeliveryErrors and counts them by outcome. Any thread.

    `identity` is the producer ID and epoch last heard of; while `expiring`, librdkafka's purge is this library's
    time-out and is told as one.
    """

    def __init__(self, delivery: Delivery) -> None:
        self.not_written = 0
        self.unknown = 0
        self.identity: tuple[int | None, int | None] = (None, None)
        self.expiring = False
        self._retry_backoff = delivery.retry_backoff

    def reported(self, error: KafkaError, message: Message) -> KafkaError:
        """`error` of a delivery report, as the application gets it."""
        if isinstance(error, DeliveryError):
            return error
        elapsed = message.latency()
        code = error.code()
        reason = error.str()
        if self.expiring and code in _PURGED:
            code, reason = KafkaError._MSG_TIMED_OUT, "Local: Message timed out: no broker answered in time"
        outcome = outcome_of(
            KafkaError(code).name(), handed_over=True, elapsed=elapsed, retry_backoff=self._retry_backoff
        )
        _, accepted_ms = message.timestamp()
        made = self._made(
            error,
            code,
            reason,
            outcome,
            message.topic(),
            message.partition(),
            accepted_ms / 1000 if accepted_ms > 0 else None,
            None if elapsed is None else time.time() - elapsed,
        )
        message.set_error(made)
        return made

    def in_process(
        self, topic: str, partition: int, record: HeldRecord, code: int, reason: str, handed_over: bool
    ) -> KafkaError:
        """The error of a record that this library fails."""
        outcome = Outcome.UNKNOWN if handed_over else Outcome.NOT_WRITTEN
        return self._made(
            KafkaError(code),
            code,
            reason,
            outcome,
            topic,
            partition if partition >= 0 else None,
            record[TIMESTAMP] / 1000,
            None,
        )

    def _made(
        self,
        error: KafkaError,
        code: int,
        reason: str,
        outcome: Outcome,
        topic: str | None,
        partition: int | None,
        accepted_at: float | None,
        handed_over_at: float | None,
    ) -> DeliveryError:
        if outcome is Outcome.NOT_WRITTEN:
            self.not_written += 1
        else:
            self.unknown += 1
        known = outcome is Outcome.UNKNOWN
        if code != error.code() or reason != error.str():
            error = KafkaError(code, reason, txn_requires_abort=error.txn_requires_abort())
        return DeliveryError(
            error,
            outcome,
            topic=topic,
            partition=partition,
            producer_id=self.identity[0] if known else None,
            producer_epoch=self.identity[1] if known else None,
            accepted_at=accepted_at,
            handed_over_at=handed_over_at,
        )
