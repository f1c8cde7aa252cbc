"""The demonstration sends real text, keeps the fate of every record, and compares it with the log's content."""

import math
import os
import sysconfig
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from safeproducer import DeliveryError, SafeProducer
from safeproducer.cli.common.connection import BrokerErrors
from safeproducer.cli.common.stop import Failure, StopRequest
from safeproducer.kafka.advice import advice, is_permanent
from safeproducer.kafka.native import KafkaError, KafkaException, Message

_POLL_EVERY = 256
_SLICE = 0.1
FLAWS = ("refused", "not_written", "unknown", "lost", "duplicated", "reordered", "unexpected", "contradicted")
"""Columns that have to be 0."""
COLUMNS = ("accepted", "delivered", *FLAWS[1:3], "refused", "in_log", *FLAWS[3:], "unconfirmed")
Rows = Mapping[int | None, Counter[str]]
Log = Sequence[tuple[int, bytes]]
"""Partition and value, in offset order within each partition."""


@dataclass(slots=True)
class Line:
    """One line of one file: the file's name is the key, and `value` names file and line before the text.

    `fate`: the producer's last word about it; without a report it is of unknown outcome. `partition`: None where no
    report named one. `step`: 0 in a run without steps. Times are of the monotonic clock.
    """

    number: int
    key: bytes
    value: bytes
    step: int = 0
    accepted_at: float = math.nan
    reported_at: float = math.nan
    fate: str = "unknown"
    partition: int | None = None


def read_lines(paths: Sequence[str], most: int | None) -> list[Line]:
    """The lines of these files, each file once; without any, of Python's standard library: small modules first, so that
    there are many keys. Failure if one cannot be read.
    """
    modules = Path(sysconfig.get_path("stdlib")).glob("*.py")
    found = sorted(modules, key=lambda path: (path.stat().st_size, path.name))
    records: list[Line] = []
    for path in dict.fromkeys(map(Path, paths)) or found:
        name = os.fsencode(path if paths else path.name).replace(b"\t", b" ")
        try:
            with path.open("rb") as stream:
                for line, text in enumerate(islice(stream, None if most is None else most - len(records)), start=1):
                    records.append(Line(len(records), name, b"%s\t%d\t%s" % (name, line, text.rstrip(b"\n"))))
        except OSError as error:
            raise Failure(f"The input {path} cannot be read ({error.strerror}).", code="input") from None
    return records


class Experiment:
    """Sends records, and remembers each of them with what the producer said about it. Used by the main thread only.

    `left`: records without a report; `why_left` says why there are any at the end. `failures`: errors by name, each
    with a sentence in `advised`. `seconds`: from the first produce() to the end of the last drain.
    """

    def __init__(
        self, producer: SafeProducer, errors: BrokerErrors, stop: StopRequest, topic: str, timeout: float
    ) -> None:
        self.producer, self.stop, self.topic = producer, stop, topic
        self._errors, self._timeout = errors, timeout
        self.records: list[Line] = []
        self.left = 0
        self.why_left: str | None = None
        self.failures: Counter[str] = Counter()
        self.advised: dict[str, str] = {}
        self.seconds = 0.0

    @property
    def ended(self) -> bool:
        """Whether the run has to end: a signal, a fatal error, or one that all records share."""
        return bool(self.stop) or self._errors.fatal is not None or any(map(is_permanent, self.failures))

    def send(self, record: Line, partition: int = -1) -> bool:
        """Send one record, to this partition or (-1) to that of its key; False if the run has to end before it.

        It waits for room. A record that the producer refuses at once (too large, say) has failed, and the run goes on.
        """
        record.accepted_at = time.monotonic()
        while not self.ended:
            try:
                self.producer.produce(self.topic, record.value, record.key, partition, partial(self._settle, record))
                self.left += 1
            except BufferError:
                self.serve(_SLICE)
                continue
            except KafkaException as error:
                reason = error.args[0]
                if reason.fatal() or reason.code() == KafkaError._FATAL:
                    self.serve(_SLICE)  # _FATAL says that there was an error; poll() brings the error itself
                    self._errors.fatal = self._errors.fatal or reason
                    return False
                self._settle(record, reason)
            self.records.append(record)
            if len(self.records) % _POLL_EVERY == 0:
                self.serve()
            return True
        return False

    def serve(self, timeout: float = 0) -> None:
        """Take the delivery reports that are there, or wait up to `timeout` seconds for the first."""
        self._call(self.producer.poll, timeout)

    # Nobody may wait for ever for records that no broker takes, nor give up while a slow link still carries some: so
    # the time-out counts from the last report. A signal begins it anew, and reports do not put the end off any more.
    # After a fatal error the producer itself ends all records.
    def drain(self) -> None:
        """Wait for the reports that are missing, until none came for the time-out: a slow link may take its time.

        After a signal that long in any case: somebody is waiting.
        """
        seen, since = None, 0.0
        while self.left:
            now, state = time.monotonic(), bool(self.stop) or self.left
            if seen != state:
                seen, since = state, now
            if now - since >= self._timeout:
                break
            self._call(self.producer.flush, min(_SLICE, self._timeout))
        self.seconds = time.monotonic() - self.records[0].accepted_at if self.records else 0.0
        self.why_left = self.producer.explain(self.topic) if self.left else None

    def _call(self, call: Callable[[float], int], timeout: float) -> None:
        """Poll or flush; a fatal error, which they raise, is noted like any other error."""
        try:
            call(timeout)
        except KafkaException as error:
            self._errors(error.args[0])

    def _settle(self, record: Line, error: KafkaError | None, message: Message | None = None) -> None:
        """Take the report, or without a message what produce() raised."""
        record.reported_at = time.monotonic()
        if message is not None:
            self.left -= 1
            record.partition = partition if (partition := message.partition()) is not None and partition >= 0 else None
        if error is None:
            record.fate = "delivered"
            return
        record.fate = error.outcome.value if isinstance(error, DeliveryError) else "refused"  # it was never accepted
        self.failures[error.name()] += 1
        self.advised.setdefault(error.name(), advice(error.name(), error.str()))


def compare(records: Iterable[Line], log: Log, *, by_step: bool = False) -> Rows:
    """Count records by partition or by step; None is the row of those that belong to none, and comes last.

    In steps the order of produce() counts, else that of the lines of each file. accepted = delivered + not_written +
    unknown. in_log: every copy that is found. lost: reported delivered and not in the log. duplicated: further copies
    of a record. reordered: the first copy of a record that stands behind a later one. unexpected: in the log but never
    sent. contradicted: refused or reported as not written, and in the log all the same. unconfirmed: of unknown
    outcome and in the log, which is allowed.
    """
    rows: dict[int | None, Counter[str]] = defaultdict(partial(Counter, dict.fromkeys(COLUMNS, 0)))
    known = {record.value: record for record in records}
    missing, newest = dict(known), defaultdict[tuple[int, bytes], int](int)
    for record in known.values():
        row = rows[record.step if by_step else record.partition]
        row[record.fate] += 1
        row["accepted"] += record.fate != "refused"
    for partition, value in log:
        found = known.get(value)
        row = rows[partition if not by_step else None if found is None else found.step]
        row["in_log"] += 1
        if found is None:
            row["unexpected"] += 1
        elif missing.pop(value, None) is None:
            row["duplicated"] += 1
        else:
            row["unconfirmed"] += found.fate == "unknown"
            row["contradicted"] += found.fate in ("refused", "not_written")
            source = (partition, b"" if found.step else found.key)
            row["reordered"] += found.number < newest[source]
            newest[source] = max(found.number, newest[source])
    for record in missing.values():
        rows[record.step if by_step else record.partition]["lost"] += record.fate == "delivered"
    return {row: rows[row] for row in sorted(rows, key=lambda row: math.inf if row is None else row)}


def total_of(rows: Rows) -> Counter[str]:
    return Counter({name: sum(row[name] for row in rows.values()) for name in COLUMNS})


def flawless(total: Counter[str]) -> bool:
    """Every record was delivered, and the log holds each once, in order, and nothing else."""
    return not any(total[flaw] for flaw in FLAWS) and total["accepted"] == total["delivered"] == total["in_log"]
