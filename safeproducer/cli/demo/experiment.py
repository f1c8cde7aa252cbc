"""The sending half of the demonstration sends real text at a steady rate, and keeps the fate of every record."""

import math
import sysconfig
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from safeproducer import DeliveryError, Outcome, SafeProducer
from safeproducer.cli.common.connection import BrokerErrors
from safeproducer.cli.common.stop import Failure, StopRequest
from safeproducer.cli.demo.display import Latencies
from safeproducer.cli.demo.proof import Fate, Report, Sent
from safeproducer.cli.demo.sending import Feed, Tally
from safeproducer.kafka.native import KafkaError


class Entry(NamedTuple):
    """One line of one file. ``name`` is the record's key, ``value`` names file and line before the text."""

    name: bytes
    line: int
    value: bytes


def python_sources() -> list[tuple[str, Path]]:
    """Return the modules of the standard library that runs this program: real text on every machine.

    The small ones come first, so that a run has many files, which are its keys.
    """
    modules = Path(sysconfig.get_path("stdlib")).glob("*.py")
    return [(path.name, path) for path in sorted(modules, key=lambda path: (path.stat().st_size, path.name))]


def named_files(paths: Sequence[str]) -> list[tuple[str, Path]]:
    """Return the given files once each; Failure if one is missing or is no file."""
    files = {}
    for path in paths:
        try:
            with open(path, "rb"):
                files[path] = Path(path)
        except OSError as error:
            raise Failure(
                f"The input {path} cannot be read ({error.strerror}): correct its path or its rights.", code="input"
            ) from None
    return list(files.items())


def read_corpus(files: Sequence[tuple[str, Path]], *, records: int | None) -> Iterator[Entry]:
    """Yield the lines of the files one after the other, up to a number of records."""
    count = 0
    for shown, path in files:
        name = shown.encode("utf-8", "surrogateescape").replace(b"\t", b" ")
        with path.open("rb") as stream:
            for line, text in enumerate(stream, start=1):
                if records is not None and count >= records:
                    return
                count += 1
                yield Entry(name, line, b"%s\t%d\t%s" % (name, line, text.rstrip(b"\n")))


def identify(value: bytes) -> tuple[bytes, int] | None:
    """Return file name and line number of a value made by ``read_corpus``, None for any other."""
    name, _, rest = value.partition(b"\t")
    line, found, _ = rest.partition(b"\t")
    return (name, int(line)) if found and line.isdigit() else None


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


_SLICE = 0.02


class StepSender:
    """One step's share of an experiment: it begins with the next record that is sent. ``first`` is its number."""

    def __init__(self, entries: Iterator[Entry], experiment: Experiment, timeout: float) -> None:
        self._entries = entries
        self._experiment = experiment
        self._timeout = timeout
        self.first = len(experiment.values)

    @property
    def end(self) -> int:
        """The number of the next record."""
        return len(self._experiment.values)

    @property
    def ended(self) -> bool:
        """Whether the run has to end."""
        return self._experiment.ended

    def send(self, records: int, rate: float, partition_of: Callable[[int], int]) -> None:
        """Send so many, ``rate`` a second, the n-th (from 0) to its partition. Ends early if the run has to end."""
        experiment, started = self._experiment, time.monotonic()
        for number in range(records):
            while (early := started + number / rate - time.monotonic()) > 0:
                experiment.serve(min(early, _SLICE))
            entry = next(self._entries, None)
            if entry is None or not experiment.send(entry, partition_of(number)):
                return

    def drain(self) -> None:
        """Wait for all acknowledgements."""
        self._experiment.drain(self._timeout)

    def rest(self, until: float) -> None:
        """Send nothing until this time, in seconds since the Unix epoch."""
        while (left := until - time.time()) > 0 and not self._experiment.ended:
            self._experiment.serve(min(left, _SLICE))

    def reports(self) -> list[Report]:
        """The reports of its delivered records so far."""
        experiment, found = self._experiment, []
        for number in range(self.first, self.end):
            partition, reported = experiment.fate(number).partition, experiment.reported_at[number]
            if partition is not None:
                found.append(Report(partition, reported - experiment.accepted_at[number], reported))
        return found
