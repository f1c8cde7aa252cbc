"""The sending half of the demonstration, with the fate of every record."""

import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

from safeproducer import SafeProducer
from safeproducer.cli.comparison import Outcome, Sent
from safeproducer.cli.connection import BrokerErrors
from safeproducer.cli.corpus import read_corpus
from safeproducer.cli.feed import Feed
from safeproducer.cli.latency import Latencies
from safeproducer.cli.stop import StopRequest
from safeproducer.cli.tally import Tally

_NO_REPORT = Sent(Outcome.LEFT, None)


class Experiment:
    """Sends a corpus and remembers each value and what the producer said about it."""

    def __init__(self, producer: SafeProducer, errors: BrokerErrors, stop: StopRequest, topic: str) -> None:
        self._producer = producer
        self._errors = errors
        self._stop = stop
        self._topic = topic
        self._values: list[bytes] = []
        self._fates: list[Sent] = []
        self._started_at = array("d")
        self.tally = Tally()
        self.latencies = Latencies()
        self.names: set[bytes] = set()
        self.seconds = 0.0
        self.why_left: str | None = None
        self.was_cut = False

    def send(
        self,
        files: Sequence[tuple[str, Path]],
        *,
        records: int | None,
        max_bytes: int | None,
        timeout: float,
        show: Callable[[int, int], None],
    ) -> None:
        """Send the lines of the files and wait for their reports."""
        feed = Feed(
            self._producer,
            self.tally,
            self._errors,
            self._stop,
            on_report=self._note,
            tick=lambda: show(self.tally.sent, self.tally.delivered),
        )
        started = time.monotonic()
        for number, entry in enumerate(read_corpus(files, records=records, max_bytes=max_bytes, on_cut=self._note_cut)):
            if feed.ended():
                break
            self._values.append(entry.value)
            self._fates.append(_NO_REPORT)
            self._started_at.append(time.monotonic())
            if not feed.send(number, self._topic, entry.value, entry.name):
                self._values.pop()
                break
            self.names.add(entry.name)
        feed.drain(timeout)
        self.seconds = time.monotonic() - started
        if self.tally.left:
            self.why_left = self._producer.explain(self._topic)

    def sent(self) -> dict[bytes, Sent]:
        """Return the fate of each record by its value."""
        return dict(zip(self._values, self._fates, strict=False))

    def _note_cut(self) -> None:
        self.was_cut = True

    def _note(self, number: int, code: str | None, partition: int | None) -> None:
        known = partition if partition is not None and partition >= 0 else None
        self._fates[number] = Sent(Outcome.DELIVERED if code is None else Outcome.FAILED, known)
        if code is None:
            self.latencies.add(time.monotonic() - self._started_at[number])
