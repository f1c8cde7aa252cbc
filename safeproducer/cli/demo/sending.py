"""This module feeds records into a producer, with back-pressure and an orderly end, and counts what became of each."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from safeproducer import SafeProducer
from safeproducer.cli.common.connection import BrokerErrors, serve
from safeproducer.cli.common.stop import StopRequest
from safeproducer.kafka.advice import advice, is_permanent
from safeproducer.kafka.native import KafkaError, KafkaException, Message

# After a deadline close() purges what is left. Such a record was given up by us, not refused by a broker.
_GIVEN_UP = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT"})


@dataclass(slots=True)
class ErrorCount:
    """One kind of failure and one sentence of advice."""

    code: str
    sentence: str
    count: int = 0


class Tally:
    """The account of one run, line by line, in memory bounded by the producer's own queue.

    sent = delivered + failed + left. Used by one thread: delivery reports arrive in its ``poll()``.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.delivered = 0
        self.failed = 0
        self.bytes_delivered = 0
        self.errors: dict[str, ErrorCount] = {}
        self.permanent: ErrorCount | None = None
        self._open: dict[int, int] = {}

    @property
    def left(self) -> int:
        """Records without a delivery report."""
        return len(self._open)

    @property
    def settled(self) -> int:
        """Records with a final result; grows as long as there is progress."""
        return self.delivered + self.failed

    def accept(self, line: int, size: int) -> None:
        """Count a record that is about to be handed to the producer."""
        self.sent += 1
        self._open[line] = size

    def withdraw(self, line: int) -> None:
        """Undo ``accept`` for a record that the producer had no room for."""
        self.sent -= 1
        del self._open[line]

    def refuse(self, line: int, code: str, sentence: str) -> None:
        """Count a record that was refused before it was sent."""
        self._open.pop(line, None)
        self._fail(code, sentence)

    def report(self, line: int, error: KafkaError | None) -> None:
        """Take the delivery report of a record."""
        if error is None:
            self.bytes_delivered += self._open.pop(line)
            self.delivered += 1
        elif error.name() not in _GIVEN_UP:
            del self._open[line]
            self._fail(error.name(), advice(error.name(), error.str()))

    def ranked_errors(self) -> Iterable[ErrorCount]:
        """Return the kinds of failure, the most frequent first."""
        return sorted(self.errors.values(), key=lambda error: -error.count)

    def _fail(self, code: str, sentence: str) -> None:
        self.failed += 1
        kind = self.errors.setdefault(code, ErrorCount(code, sentence))
        kind.count += 1
        if is_permanent(code):
            self.permanent = kind


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
