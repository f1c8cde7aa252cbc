"""One record of SafeProducer.submit(): a future for threads, whose record may be taken back."""

from __future__ import annotations

import concurrent.futures

from safeproducer.errors import failed
from safeproducer.kafka.native import KafkaError, Message
from safeproducer.pipeline.accepting import accept, tells_each
from safeproducer.pipeline.buffer.partition_buffer import Ticket
from safeproducer.pipeline.engine import Engine
from safeproducer.records import DeliveredRecord, delivered
from safeproducer.runtime import clock
from safeproducer.runtime.threads import InterruptSafeEvent

__all__ = ["RecordFuture", "accept", "tells_each"]

_ANSWERS = 5.0
"""Seconds, at most, until the sender says whether a record waits: it takes milliseconds."""


class RecordFuture(concurrent.futures.Future[DeliveredRecord]):
    """A concurrent.futures.Future of a DeliveredRecord. SafeProducer.submit() makes it, from its `engine`.

    It is called with the record's report, `error` and `message`.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine
        self.ticket: Ticket | None = None
        self._asked = False

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """The record's report, on whichever thread serves."""
        if self._asked and error is not None and error.code() == KafkaError._PURGE_QUEUE:
            super().cancel()  # it was taken back
        if not self.set_running_or_notify_cancel():
            return
        if error is None:
            self.set_result(delivered(message))
        else:
            self.set_exception(failed(error))

    def cancel(self) -> bool:
        """Take the record back if it still waits in this process; whether it was taken back: it is nowhere then.

        Waits for the answer, some milliseconds. A record that was handed over goes on, and the future with it.
        """
        engine, ticket = self._engine, self.ticket
        if self.done() or ticket is None or not engine.route.usable or engine.sender.is_this_thread():
            return self.cancelled()
        answered, answers, self._asked = InterruptSafeEvent(), list[bool](), True

        def told(found: bool) -> None:
            answers.append(found)
            answered.set()

        engine.withdraw_soon(ticket, self, told)
        deadline = clock.real() + _ANSWERS
        while not answers and (left := deadline - clock.real()) > 0:
            answered.wait(left)
        return (super().cancel() if answers and answers[0] else False) or self.cancelled()
