"""Feeds records into a producer: back-pressure, delivery reports, and an orderly end."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from safeproducer import SafeProducer
from safeproducer.cli.common.connection import BrokerErrors, serve
from safeproducer.cli.common.stop import StopRequest
from safeproducer.cli.demo.tally import Tally
from safeproducer.kafka.advice import advice
from safeproducer.kafka.native import KafkaError, KafkaException, Message

Report = Callable[[int, KafkaError | None, int | None], None]

_POLL_EVERY = 256
_SLICE = 0.1
# After a fatal error librdkafka sends nothing any more: only reports that are under way can still come.
_FATAL_PATIENCE = 2.0


class Feed:
    """One producer and the account of what it was given. Used by the main thread only.

    ``on_report`` gets each record's line, its error or None, and its partition, after the tally has counted it. The
    error is a DeliveryError, or what produce() refused the record with. ``tick`` runs at least about ten times a second
    while the command waits.
    """

    def __init__(
        self,
        producer: SafeProducer,
        tally: Tally,
        errors: BrokerErrors,
        stop: StopRequest,
        *,
        on_report: Report | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._producer = producer
        self._tally = tally
        self._errors = errors
        self._stop = stop
        self._on_report = on_report
        self._tick = tick
        self._until_poll = _POLL_EVERY

    def send(self, line: int, topic: str, value: bytes, key: bytes | None, **options: Any) -> bool:
        """Give one record to the producer, waiting for room; False if the run ended before there was room.

        A record that the producer refuses at once (too large, say) is counted as failed, and the run goes on.
        """
        tally = self._tally
        tally.accept(line, len(value) + len(key or b""))
        while True:
            try:
                self._producer.produce(topic, value, key, on_delivery=partial(self._report, line), **options)
                break
            except BufferError:
                serve(self._producer.poll, self._errors, _SLICE)
                self._tick()
                if self.ended():
                    tally.withdraw(line)
                    return False
            except KafkaException as error:
                reason = error.args[0]
                if reason.code() == KafkaError._FATAL:  # that there was one; poll() brings the error itself
                    serve(self._producer.poll, self._errors, _SLICE)
                    reason = self._errors.fatal or reason
                if reason.fatal():
                    self._errors(reason)
                    tally.withdraw(line)
                    return False
                tally.refuse(line, reason.name(), advice(reason.name(), reason.str()))
                if self._on_report is not None:
                    self._on_report(line, reason, None)
                break
        self._until_poll -= 1
        if not self._until_poll:
            self.serve()
        return True

    def serve(self, timeout: float = 0) -> None:
        """Take the delivery reports that are there, or wait up to ``timeout`` seconds for the first."""
        self._until_poll = _POLL_EVERY
        serve(self._producer.poll, self._errors, timeout)
        self._tick()

    def ended(self) -> bool:
        """Tell whether nothing more should be sent: a signal, a fatal error, or one that all records share."""
        return bool(self._stop) or self._errors.fatal is not None or self._tally.permanent is not None

    def drain(self, timeout: float) -> None:
        """Wait for the reports that are missing.

        At the end of the input, gives up when no report came for ``timeout`` seconds: a slow link may take its
        time. After a signal, gives up ``timeout`` seconds after that in any case: somebody is waiting. After a fatal
        error, waits a moment only.
        """
        deadline = time.monotonic() + timeout
        settled, stopping, fatal = self._tally.settled, bool(self._stop), False
        while self._tally.left and (remaining := deadline - time.monotonic()) > 0:
            serve(self._producer.flush, self._errors, min(_SLICE, remaining))
            self._tick()
            if self._errors.fatal is not None and not fatal:
                fatal = True
                deadline = time.monotonic() + min(timeout, _FATAL_PATIENCE)
            elif self._stop and not stopping:
                stopping = True
                deadline = time.monotonic() + timeout
            elif self._tally.settled != settled and not (stopping or fatal):
                settled = self._tally.settled
                deadline = time.monotonic() + timeout

    def _report(self, line: int, error: KafkaError | None, message: Message) -> None:
        self._tally.report(line, error)
        if self._on_report is not None:
            self._on_report(line, error, message.partition())
