"""The sending half of the demonstration, with the fate of every record."""

import math
import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

from safeproducer import DeliveryError, Outcome, SafeProducer
from safeproducer.cli.common.connection import BrokerErrors
from safeproducer.cli.common.stop import StopRequest
from safeproducer.cli.demo.comparison import Fate, Sent
from safeproducer.cli.demo.corpus import Entry, read_corpus
from safeproducer.cli.demo.feed import Feed
from safeproducer.cli.demo.latency import Latencies
from safeproducer.cli.demo.tally import Tally
from safeproducer.kafka.native import KafkaError

_NO_REPORT = Sent(Fate.UNKNOWN, None)


class Experiment:
    """Sends records and remembers each value and what the producer said about it.

    Lists go by the number of the record: ``values``, ``accepted_at`` and ``reported_at`` (seconds of the monotonic
    clock, NaN without a report). ``why_left`` says why records have no report, if any has none. ``tick`` runs at least
    about ten times a second while it waits.
    """

    def __init__(
        self,
        producer: SafeProducer,
        errors: BrokerErrors,
        stop: StopRequest,
        topic: str,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._fates: list[Sent] = []
        self._ended: float | None = None
        self.values: list[bytes] = []
        self.accepted_at = array("d")
        self.reported_at = array("d")
        self.tally = Tally()
        self.latencies = Latencies()
        self.names: set[bytes] = set()
        self.why_left: str | None = None
        self._feed = Feed(producer, self.tally, errors, stop, on_report=self._note, tick=tick)

    @property
    def seconds(self) -> float:
        """From the first produce() to the end of the last drain, or until now."""
        if not self.accepted_at:
            return 0.0
        return (self._ended or time.monotonic()) - self.accepted_at[0]

    def send(self, entry: Entry, partition: int | None = None) -> bool:
        """Send one record, to this partition or to that of its key; False if the run has to end before it."""
        if self._feed.ended():
            return False
        number = len(self.values)
        self.values.append(entry.value)
        self._fates.append(_NO_REPORT)
        self.accepted_at.append(time.monotonic())
        self.reported_at.append(math.nan)
        options = {} if partition is None else {"partition": partition}
        if not self._feed.send(number, self._topic, entry.value, entry.name, **options):
            for log in (self.values, self._fates, self.accepted_at, self.reported_at):
                log.pop()
            return False
        self.names.add(entry.name)
        return True

    def send_all(self, files: Sequence[tuple[str, Path]], records: int | None, timeout: float) -> None:
        """Send the lines of the files, as fast as they are taken, and wait for their reports."""
        for entry in read_corpus(files, records=records):
            if not self.send(entry):
                break
        self.drain(timeout)

    def serve(self, timeout: float = 0) -> None:
        """Take the delivery reports that are there, or wait up to ``timeout`` seconds for the first."""
        self._feed.serve(timeout)

    @property
    def ended(self) -> bool:
        """Whether the run has to end: a signal, a fatal error, or one that all records share."""
        return self._feed.ended()

    def drain(self, timeout: float) -> None:
        """Wait for the reports that are missing; gives up when none came for ``timeout`` seconds."""
        self._feed.drain(timeout)
        self._ended = time.monotonic()
        self.why_left = self._producer.explain(self._topic) if self.tally.left else None

    def sent(self) -> dict[bytes, Sent]:
        """Return the fate of each record by its value."""
        return dict(zip(self.values, self._fates, strict=True))

    def fate(self, number: int) -> Sent:
        """Return the fate of one record."""
        return self._fates[number]

    def _note(self, number: int, error: KafkaError | None, partition: int | None) -> None:
        now = time.monotonic()
        self.reported_at[number] = now
        self._fates[number] = Sent(_fate(error), partition if partition is not None and partition >= 0 else None)
        if error is None:
            self.latencies.add(now - self.accepted_at[number])


def _fate(error: KafkaError | None) -> Fate:
    if error is None:
        return Fate.DELIVERED
    if not isinstance(error, DeliveryError):
        return Fate.REFUSED  # produce() raised it
    return Fate.NOT_WRITTEN if error.outcome is Outcome.NOT_WRITTEN else Fate.UNKNOWN
