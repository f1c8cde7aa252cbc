"""An error of a report that waits before it is run, and what would be forgotten meanwhile."""

from __future__ import annotations

from safeproducer.errors import DeliveryError
from safeproducer.kafka.native import WITHOUT_OFFSET, KafkaError
from safeproducer.runtime import clock


class DatedError(KafkaError):
    """`error` as librdkafka gave it: served now, of a record that produce() took `age` seconds ago, if that is known.

    The age that a Message tells is of the moment when it was served.
    """

    def __init__(self, error: KafkaError, age: float | None = None) -> None:
        super().__init__(
            error.code(),
            error.str(),
            fatal=bool(error.fatal()),
            retriable=bool(error.retriable()),
            txn_requires_abort=bool(error.txn_requires_abort()),
        )
        self.served_at = clock.time()
        self.accepted_at = None if age is None else self.served_at - age


def dated(error: KafkaError) -> KafkaError:
    """`error` with the moment, unless it says enough, or is known by its identity."""
    if error is WITHOUT_OFFSET or isinstance(error, DatedError | DeliveryError):
        return error
    return DatedError(error)
