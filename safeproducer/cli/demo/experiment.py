"""The sending half of the demonstration sends real text at a steady rate, and keeps the fate of every record."""

import math
import sysconfig
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from safeproducer import DeliveryError, Outcome, SafeProducer
from safeproducer.cli.common.connection import BrokerErrors, serve
from safeproducer.cli.common.stop import Failure, StopRequest
from safeproducer.cli.demo.display import Latencies
from safeproducer.cli.demo.proof import Fate, Report, Sent
from safeproducer.kafka.advice import advice, is_permanent
from safeproducer.kafka.native import KafkaError, KafkaException, Message


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


_NO_REPORT = Sent(Fate.UNKNOWN, None)
_POLL_EVERY = 256
_SLICE = 0.1
# After a fatal error librdkafka sends nothing any more: only reports that are under way can still come.
_FATAL_PATIENCE = 2.0


class Experiment:
    """Sends records and remembers each value and what the producer said about it. Used by the main thread only.

    Lists go by the number of the record: ``values``, ``accepted_at`` and ``reported_at`` (seconds of the monotonic
    clock, NaN without a report). ``why_left`` says why records have no report, if any has none. ``tick`` runs at least
    about ten times a second while it waits.
    """

    def __init__(
        self, producer: SafeProducer, errors: BrokerErrors, stop: StopRequest, topic: str, tick: Callable[[], None]
    ) -> None:
        self._producer = producer
        self._errors = errors
        self._stop = stop
        self._topic = topic
        self._tick = tick
        self._until_poll = _POLL_EVERY
        self._fates: list[Sent] = []
        self._ended: float | None = None
        self.values: list[bytes] = []
        self.accepted_at = array("d")
        self.reported_at = array("d")
        self.tally = Tally()
        self.latencies = Latencies()
        self.names: set[bytes] = set()
        self.why_left: str | None = None

    @property
    def seconds(self) -> float:
        """From the first produce() to the end of the last drain, or until now."""
        if not self.accepted_at:
            return 0.0
        return (self._ended or time.monotonic()) - self.accepted_at[0]

    def send(self, entry: Entry, partition: int = -1) -> bool:
        """Send one record, to this partition or (-1) to that of its key; False if the run has to end before it.

        It waits for room. A record that the producer refuses at once (too large, say) is counted as failed, and the run
        goes on.
        """
        if self.ended:
            return False
        number, tally = len(self.values), self.tally
        tally.accept(number, len(entry.value) + len(entry.name))
        self.values.append(entry.value)
        self._fates.append(_NO_REPORT)
        self.accepted_at.append(time.monotonic())
        self.reported_at.append(math.nan)
        if not self._produce(number, entry, partition):
            tally.withdraw(number)
            for log in (self.values, self._fates, self.accepted_at, self.reported_at):
                log.pop()
            return False
        self.names.add(entry.name)
        self._until_poll -= 1
        if not self._until_poll:
            self.serve()
        return True

    def _produce(self, number: int, entry: Entry, partition: int) -> bool:
        report = partial(self._report, number)
        while True:
            try:
                self._producer.produce(self._topic, entry.value, entry.name, partition, report)
                return True
            except BufferError:
                serve(self._producer.poll, self._errors, _SLICE)
                self._tick()
                if self.ended:
                    return False
            except KafkaException as error:
                reason = error.args[0]
                if reason.code() == KafkaError._FATAL:  # that there was one; poll() brings the error itself
                    serve(self._producer.poll, self._errors, _SLICE)
                    reason = self._errors.fatal or reason
                if reason.fatal():
                    self._errors(reason)
                    return False
                self.tally.refuse(number, reason.name(), advice(reason.name(), reason.str()))
                self._note(number, reason, None)
                return True

    def send_all(self, files: Sequence[tuple[str, Path]], records: int | None, timeout: float) -> None:
        """Send the lines of the files, as fast as they are taken, and wait for their reports."""
        for entry in read_corpus(files, records=records):
            if not self.send(entry):
                break
        self.drain(timeout)

    def serve(self, timeout: float = 0) -> None:
        """Take the delivery reports that are there, or wait up to ``timeout`` seconds for the first."""
        self._until_poll = _POLL_EVERY
        serve(self._producer.poll, self._errors, timeout)
        self._tick()

    @property
    def ended(self) -> bool:
        """Whether the run has to end: a signal, a fatal error, or one that all records share."""
        return bool(self._stop) or self._errors.fatal is not None or self.tally.permanent is not None

    def drain(self, timeout: float) -> None:
        """Wait for the reports that are missing.

        At the end of the input, gives up when no report came for ``timeout`` seconds: a slow link may take its
        time. After a signal, gives up ``timeout`` seconds after that in any case: somebody is waiting. After a fatal
        error, waits a moment only.
        """
        deadline = time.monotonic() + timeout
        settled, stopping, fatal = self.tally.settled, bool(self._stop), False
        while self.tally.left and (remaining := deadline - time.monotonic()) > 0:
            serve(self._producer.flush, self._errors, min(_SLICE, remaining))
            self._tick()
            if self._errors.fatal is not None and not fatal:
                fatal = True
                deadline = time.monotonic() + min(timeout, _FATAL_PATIENCE)
            elif self._stop and not stopping:
                stopping = True
                deadline = time.monotonic() + timeout
            elif self.tally.settled != settled and not (stopping or fatal):
                settled = self.tally.settled
                deadline = time.monotonic() + timeout
        self._ended = time.monotonic()
        self.why_left = self._producer.explain(self._topic) if self.tally.left else None

    def sent(self) -> dict[bytes, Sent]:
        """Return the fate of each record by its value."""
        return dict(zip(self.values, self._fates, strict=True))

    def fate(self, number: int) -> Sent:
        return self._fates[number]

    def _report(self, number: int, error: KafkaError | None, message: Message) -> None:
        self.tally.report(number, error)
        self._note(number, error, message.partition())

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


_STEP_SLICE = 0.02


class StepSender:
    """One step's share of an experiment: it begins with the next record that is sent. ``first`` is its number."""

    def __init__(self, entries: Iterator[Entry], experiment: Experiment, timeout: float) -> None:
        self._entries = entries
        self._experiment = experiment
        self._timeout = timeout
        self.first = len(experiment.values)

    @property
    def end(self) -> int:
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
                experiment.serve(min(early, _STEP_SLICE))
            entry = next(self._entries, None)
            if entry is None or not experiment.send(entry, partition_of(number)):
                return

    def drain(self) -> None:
        """Wait for all acknowledgements."""
        self._experiment.drain(self._timeout)

    def rest(self, until: float) -> None:
        """Send nothing until this time, in seconds since the Unix epoch."""
        while (left := until - time.time()) > 0 and not self._experiment.ended:
            self._experiment.serve(min(left, _STEP_SLICE))

    def reports(self) -> list[Report]:
        """The reports of its delivered records so far."""
        experiment, found = self._experiment, []
        for number in range(self.first, self.end):
            partition, reported = experiment.fate(number).partition, experiment.reported_at[number]
            if partition is not None:
                found.append(Report(partition, reported - experiment.accepted_at[number], reported))
        return found
