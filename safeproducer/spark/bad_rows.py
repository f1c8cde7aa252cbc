"""The rows that failed, with why and which came first. row_check finds those that are not even sent.

Those that do not fail their task: when there are too many, and the record that a dead-letter topic gets of each. Its
headers say what those of Kafka Connect's dead-letter queue say.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

from safeproducer.kafka.callback_errors import PURGED
from safeproducer.kafka.native import KafkaError, Message
from safeproducer.policy.outcome import Outcome
from safeproducer.spark.columns import ANY_PARTITION, NOW, Columns, Header
from safeproducer.spark.errors import MOST_BAD_ROWS, BadRow
from safeproducer.spark.options import BAD_ROWS_MAX, BadRows
from safeproducer.spark.report import Task
from safeproducer.spark.row_check import Found, batch_bytes

REFUSED_TOGETHER = frozenset(
    ("INVALID_RECORD", "INVALID_TIMESTAMP", "MSG_SIZE_TOO_LARGE", "POLICY_VIOLATION", "RECORD_LIST_TOO_LARGE")
) | {"_INVALID_DIFFERENT_RECORD"}
"""A broker refuses a whole batch with these for one record in it, so that most of the rows are good."""
OF_ITS_TOPIC = frozenset({"TOPIC_AUTHORIZATION_FAILED"})
"""Codes with which a broker refuses all rows of a topic, which a column may name."""

BEFORE_A_SHARE_COUNTS = 1_000
"""This many rows may be bad before the end of a task: no share is known before."""
SMALLEST_LIMIT = 1_000_000
"""Bytes of a batch, for a topic whose limit is not known: less than Kafka's default."""
_LENGTHS = 20
"""Bytes that the lengths of key and value may take."""
_GROUP = 1_000
"""Rows that are sent again together at most."""
_Content = tuple[object, bytes | None, bytes | None, int | None]


class SentBatch:
    """An Arrow batch on its way; `numbers`: those of its rows in the Spark partition. For one thread.

    The report callback of a batch refers to it, so it lives as long as a report of its rows is missing, and no longer.
    A row takes no note: a failed one is found again by its content. A report brings topic, partition, key and value,
    but neither headers nor timestamp. Rows that have these get a callback each, which says which row it is.
    """

    def __init__(self, columns: Columns, topic: str | None, numbers: Sequence[int]) -> None:
        self.columns, self.numbers, self._topic = columns, numbers, topic

    def row_of(self, message: Message) -> int | None:
        """The row of this batch that `message` was made of, counted from its first; each row is named once.

        Where rows are equal in all that a report brings, any of them is named. None when there is no such row.
        """
        content = message.topic(), message.key(), message.value()
        # First those that ask for this partition: one of any other may have gone elsewhere.
        for partition in (message.partition(), ANY_PARTITION):
            if rows := self._by_content.get((*content, partition)):
                return rows.popleft()
        return None

    def record(self, row: int, partition: int | None, callback: object) -> tuple[Any, ...]:
        """This row as produce() takes it, for this partition."""
        one = self.columns.slice(row)
        place = one.partitions()[0] if partition is None else partition
        content = one.topics(self._topic)[0], one.values()[0], one.keys()[0], place
        return *content, callback, None, one.timestamps()[0], next(one.all_headers())

    @cached_property
    def _by_content(self) -> dict[_Content, deque[int]]:
        columns = self.columns
        lists = columns.topics(self._topic), columns.keys(), columns.values(), columns.partitions()
        found: dict[_Content, deque[int]] = {}
        for row, content in enumerate(zip(*lists, strict=True)):
            found.setdefault(content, deque()).append(row)
        return found


class Refused(NamedTuple):
    """A row of a batch that a broker refused together with others, of which any may be the reason."""

    batch: SentBatch
    row: int
    bad: BadRow


class FailedRows:
    """`report()` is the callback of a delivery report with an error; on the task's thread, as all of it.

    `ended_by`: the code of what ended the attempt; it is the cause of the rows that were purged because of it.
    `refused`: rows that are to be sent again apart from each other. None where rows that a broker refuses have failed.
    """

    def __init__(self, partition: int, apart: bool = False) -> None:
        self.codes: Counter[str] = Counter()
        self.refused: list[Refused] | None = [] if apart else None
        self.unknown = 0
        self.ended_by: str | None = None
        self._partition = partition
        self._bad: list[BadRow] = []
        self._together: dict[tuple[str | None, int | None, str], BadRow] = {}

    def __bool__(self) -> bool:
        return bool(self.codes)

    @property
    def bad_rows(self) -> list[BadRow]:
        """The rows that are named; of each partition the rows that a broker refused together are one range."""
        return [*self._bad, *self._together.values()]

    def report(self, batch: SentBatch, error: KafkaError, message: Message, row: int | None = None) -> None:
        """A row of `batch` failed; `row` counts from its first and is found out when it is None."""
        cause = error.name() if self.ended_by is None or error.code() not in PURGED else self.ended_by
        of_its_topic = cause in OF_ITS_TOPIC and batch.columns.topic is not None and self.refused is not None
        together = cause in REFUSED_TOGETHER or of_its_topic
        if together or len(self._bad) < MOST_BAD_ROWS:
            row = batch.row_of(message) if row is None else row
        size = len(message.key() or b"") + len(message.value() or b"") if cause == "MSG_SIZE_TOO_LARGE" else None
        number = None if row is None else batch.numbers[row]
        bad = BadRow(self._partition, number, message.topic(), message.partition(), size, None, cause)
        if together and row is not None and self.refused is not None:
            self.refused.append(Refused(batch, row, bad))
            return
        self.codes[cause] += 1
        self.unknown += getattr(error, "outcome", Outcome.NOT_WRITTEN) == Outcome.UNKNOWN
        if together and number is not None:
            self._extend(bad, number)
        elif len(self._bad) < MOST_BAD_ROWS:
            self._bad.append(bad)

    def _extend(self, bad: BadRow, number: int) -> None:
        key = bad.topic, bad.target_partition, bad.cause
        known = self._together.get(key)
        if known is not None and known.row is not None:
            last = known.row if known.last is None else known.last
            bad = replace(known, row=min(known.row, number), last=max(last, number), size=None)
        self._together[key] = bad

    def take_refused(self) -> list[Refused]:
        found = self.refused or []
        self.refused = self.refused and []
        return found

    def found(self, rows: Iterable[Found], first_row: int) -> None:
        """Rows that are not to be sent, of a batch whose first row has this number."""
        for row in rows:
            self.add(BadRow(self._partition, first_row + row.row, *row[1:]))

    def add(self, bad: BadRow) -> None:
        self.codes[bad.cause] += 1
        if len(self._bad) < MOST_BAD_ROWS:
            self._bad.append(bad)


# --- those that do not fail their task --------------------------------------------------------------------------------


class Aside:
    """The bad rows of one attempt that do not fail it. `sent`: records for the dead-letter topic; `lost`: those that it
    did not get. `looked`: topics whose facts are of this attempt."""

    def __init__(self, policy: BadRows, task: Task) -> None:
        self.policy = policy
        self.rows = FailedRows(task.partition)
        self.codes = self.rows.codes
        self.sent = self.lost = 0
        self.last_error: KafkaError | None = None
        self.looked: set[str] = set()
        self._task = task

    def is_too_much(self, rows: int, at_the_end: bool) -> bool:
        """Whether more than allowed of the rows read so far are bad."""
        is_early = not (at_the_end or self.policy.is_number)
        least = max(self.policy.floor, is_early * BEFORE_A_SHARE_COUNTS)
        return self.codes.total() > max(self.policy.allowed(rows), least)

    def letter(self, row: Columns, bad: BadRow, limit: int) -> tuple[Any, ...]:
        """The record of the dead-letter topic for this row, as produce() takes it. `limit`: bytes of a batch there."""
        self.sent += 1
        marks = {
            "sp-error-code": bad.cause,
            "sp-error": bad,
            "sp-topic": bad.topic,
            "sp-query": self._task.query_id,
            "sp-batch": self._task.batch_id,
            "sp-partition": bad.partition,
            "sp-row": bad.row,
        }
        texts = [(name, None if mark is None else str(mark).encode()) for name, mark in marks.items()]
        key, value, headers = fitting(row, texts, limit)
        return self.policy.topic, value, key, ANY_PARTITION, self._report, None, NOW, headers

    def _report(self, error: KafkaError, _message: object) -> None:
        self.lost += 1
        self.last_error = self.last_error if error.code() in PURGED else error

    def reason(self, rows: int) -> str | None:
        """Why an attempt that has read so many rows fails for its bad rows, if it does."""
        if self.last_error is not None:
            return f"the dead-letter topic {self.policy.topic!r} cannot be written: {self.last_error.str()}"
        if self.is_too_much(rows, at_the_end=True):
            always = f", and {self.policy.floor} of a task always" if self.policy.floor else ""
            return f"{self.codes.total()} of {rows} rows are bad, and {BAD_ROWS_MAX} allows {self.policy}{always}"
        return None


def fitting(row: Columns, marks: list[Header], limit: int) -> tuple[bytes | None, bytes | None, list[Header]]:
    """Key, value and headers of one row, and `marks`: all of them, or what fits into a batch of `limit` bytes.

    The value is cut first; when it is gone the headers go, then the key is cut. Header names get librdkafka's form.
    """
    key, value = row.keys()[0], row.values()[0]
    own = [((name or "").replace("\0", "\\0"), content) for name, content in next(row.all_headers()) or ()]
    room = limit - _LENGTHS - batch_bytes(key, None, [*own, *marks])
    if room < 0:
        own, room = [], limit - _LENGTHS - batch_bytes(key, None, marks)
    if key is not None and room < 0:
        key, room = key[: max(0, len(key) + room)], 0
    return key, None if value is None else value[:room], [*own, *marks]


def groups(refused: list[Refused], most: int = _GROUP) -> list[list[Refused]]:
    """Two at least, of which the last one has the first rows."""
    rows = sorted(refused, key=lambda one: one.bad.row or 0)
    size = min(most, (len(rows) + 1) // 2) or 1
    return [rows[first : first + size] for first in range(0, len(rows), size)][::-1]
