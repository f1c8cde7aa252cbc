"""This module finds bad rows before any is sent, and the rows that failed, with why and which came first."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from safeproducer.kafka.callback_errors import PURGED
from safeproducer.kafka.native import KafkaError, Message
from safeproducer.policy.outcome import Outcome
from safeproducer.spark.columns import ANY_PARTITION, Columns, Header, utf8
from safeproducer.spark.errors import (
    HEADER_NAME_WITH_NUL,
    HEADER_WITHOUT_NAME,
    MOST_BAD_ROWS,
    NO_SUCH_PARTITION,
    NULL_TOPIC,
    ROW_TOO_LARGE,
    TIMESTAMP_TOO_OLD,
    BadRow,
)

BATCH_HEADER = 61
"""Bytes of a batch in Kafka's log before its first record."""
RECORD_OVERHEAD = 36
"""Bytes that librdkafka adds to key, value and headers before it compares a record with message.max.bytes."""


class Found(NamedTuple):
    """A row that is not to be sent; `row` counts from the batch's first."""

    row: int
    topic: str | None
    target_partition: int | None
    size: int | None
    limit: int | None
    cause: str


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """`partitions`: how many it has. `max_bytes`: of a batch, None where that is not known or batches are compressed:
    then only the broker can tell."""

    partitions: int
    max_bytes: int | None = None


def check(columns: Columns, topic: str | None, facts: Mapping[str, TopicFacts], message_max: int) -> list[Found]:
    """All rows that must not be sent, in their order, each with the first cause found.

    `facts` are of all topics of the rows; `message_max` is librdkafka's message.max.bytes.
    """
    found: dict[int, Found] = {}
    for one in (
        *_without_topic(columns, topic),
        *_nowhere(columns, topic, facts),
        *_with_wrong_header_name(columns, topic),
        *_too_old(columns, topic),
        *_too_large(columns, topic, facts, message_max),
    ):
        found.setdefault(one.row, one)
    return [found[row] for row in sorted(found)]


def _where(mask: Any) -> list[int]:
    """The rows for which `mask` is true."""
    return pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist()  # type: ignore[no-any-return]


def _of(columns: Columns, topic: str | None, row: int) -> tuple[str | None, int | None]:
    """Topic and partition that a row asks for."""
    one = columns.slice(row)
    partition = one.partitions()[0]
    return one.topics(topic)[0], None if partition == ANY_PARTITION else partition


def _without_topic(columns: Columns, topic: str | None) -> Iterator[Found]:
    if topic is not None:
        return
    rows = range(columns.rows) if columns.topic is None else _where(columns.topic.is_null())
    for row in rows:
        yield Found(row, None, None, None, None, NULL_TOPIC)


def _nowhere(columns: Columns, topic: str | None, facts: Mapping[str, TopicFacts]) -> Iterator[Found]:
    column = columns.partition
    if column is None:
        return
    fewest = min((one.partitions for one in facts.values()), default=0)
    for row in _where(pc.or_(pc.less(column, 0), pc.greater_equal(column, fewest))):
        name, number = columns.slice(row).topics(topic)[0], column[row].as_py()
        known = None if name is None else facts.get(name)
        if number < 0 or (known is not None and number >= known.partitions):
            yield Found(row, name, number, None, None, NO_SUCH_PARTITION)


def _with_wrong_header_name(columns: Columns, topic: str | None) -> Iterator[Found]:
    if columns.headers is None:
        return
    names = utf8(pc.list_flatten(columns.headers).flatten()[0])
    for wrong, cause in (
        (names.is_null(), HEADER_WITHOUT_NAME),
        (pc.match_substring(names, "\0"), HEADER_NAME_WITH_NUL),
    ):
        if where := _where(wrong):
            parents = pc.list_parent_indices(columns.headers)
            for row in sorted(set(parents.take(pa.array(where)).to_pylist())):
                yield Found(row, *_of(columns, topic, row), None, None, cause)


def _too_old(columns: Columns, topic: str | None) -> Iterator[Found]:
    if columns.timestamp is None:
        return
    for row in _where(pc.less_equal(columns.milliseconds(), 0)):
        yield Found(row, *_of(columns, topic, row), None, None, TIMESTAMP_TOO_OLD)


def _too_large(
    columns: Columns, topic: str | None, facts: Mapping[str, TopicFacts], message_max: int
) -> Iterator[Found]:
    limits = [one.max_bytes for one in facts.values() if one.max_bytes is not None]
    size = columns.size
    if columns.headers is not None:
        size = pc.add(size, _header_bound(columns.headers))
    suspect = min([message_max, *limits]) - RECORD_OVERHEAD - BATCH_HEADER
    if not columns.rows or pc.max(size).as_py() <= suspect:
        return
    for row in _where(pc.greater(size, suspect)):
        one = columns.slice(row)
        name, number = _of(columns, topic, row)
        key, value, headers = one.keys()[0], one.values()[0], next(one.all_headers())
        if any(header is None for header, _ in headers or ()):
            continue
        of_topic = facts[name].max_bytes if name is not None and name in facts else None
        for taken, limit in (
            (message_bytes(key, value, headers), message_max),
            (batch_bytes(key, value, headers), of_topic),
        ):
            if limit is not None and taken > limit:
                yield Found(row, name, number, taken, limit, ROW_TOO_LARGE)


def _header_bound(headers: Any) -> Any:
    """At least what the headers of each row take."""
    names, contents = pc.list_flatten(headers).flatten()
    each = pc.add(
        pc.fill_null(pc.binary_length(names.cast(pa.large_binary())), 0),
        pc.fill_null(pc.binary_length(contents.cast(pa.large_binary())), 0),
    )
    parents = pc.list_parent_indices(headers)
    sums = pa.table({"row": parents, "size": pc.add(each, 10)}).group_by("row").aggregate([("size", "sum")])
    bound = [0] * len(headers)
    for row, taken in zip(sums["row"].to_pylist(), sums["size_sum"].to_pylist(), strict=True):
        bound[row] = taken
    return pa.array(bound, pa.int64())


def message_bytes(key: bytes | None, value: bytes | None, headers: list[Header] | None) -> int:
    """The size that librdkafka compares with message.max.bytes."""
    return RECORD_OVERHEAD + len(key or b"") + len(value or b"") + _headers(headers)


def batch_bytes(key: bytes | None, value: bytes | None, headers: list[Header] | None) -> int:
    """The size that a broker compares with max.message.bytes when the record is alone and not compressed."""
    record = 3 + _field(key) + _field(value) + _varint(len(headers or ())) + _headers(headers)
    return BATCH_HEADER + _varint(record) + record


def _headers(headers: list[Header] | None) -> int:
    return sum(_field(name.encode()) + _field(value) for name, value in headers or ())


def _field(content: bytes | None) -> int:
    return 1 if content is None else _varint(len(content)) + len(content)


def _varint(number: int) -> int:
    """Bytes of a number that is not negative, zigzag-encoded."""
    return max(1, ((number << 1).bit_length() + 6) // 7)


REFUSED_TOGETHER = frozenset(
    {
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
        "MSG_SIZE_TOO_LARGE",
        "POLICY_VIOLATION",
        "RECORD_LIST_TOO_LARGE",
        "_INVALID_DIFFERENT_RECORD",
    }
)
"""A broker refuses a whole batch with these for one record in it, so that most of the rows are good."""


_Content = tuple[object, bytes | None, bytes | None, int | None]


class SentBatch:
    """An Arrow batch on its way; `numbers`: those of its rows in the Spark partition. For one thread.

    The report callback of a batch refers to it, so it lives as long as a report of its rows is missing, and no longer.
    A row takes no note: a failed one is found again by its content. A report brings topic, partition, key and value,
    but neither headers nor timestamp. Rows that have these get a callback each, which says which row it is.
    """

    __slots__ = ("_rows", "_topic", "columns", "numbers")

    def __init__(self, columns: Columns, topic: str | None, numbers: Sequence[int]) -> None:
        self.columns = columns
        self._topic = topic
        self.numbers = numbers
        self._rows: dict[_Content, deque[int]] | None = None

    def row_of(self, message: Message) -> int | None:
        """The row of this batch that `message` was made of, counted from its first; each row is named once.

        Where rows are equal in all that a report brings, any of them is named. None when there is no such row.
        """
        if self._rows is None:
            self._rows = self._by_content()
        content = message.topic(), message.key(), message.value()
        # First those that ask for this partition: one of any other may have gone elsewhere.
        for partition in (message.partition(), ANY_PARTITION):
            if rows := self._rows.get((*content, partition)):
                return rows.popleft()
        return None

    def record(self, row: int, callback: object) -> tuple[Any, ...]:
        """This row as produce() takes it."""
        one = self.columns.slice(row)
        content = one.topics(self._topic)[0], one.values()[0], one.keys()[0], one.partitions()[0]
        return *content, callback, None, one.timestamps()[0], next(one.all_headers())

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
        """Those that are named; of each partition the rows that a broker refused together are one range."""
        return [*self._bad, *self._together.values()]

    def report(self, batch: SentBatch, error: KafkaError, message: Message, row: int | None = None) -> None:
        """A row of `batch` failed; `row` counts from its first and is found out when it is None."""
        cause = error.name() if self.ended_by is None or error.code() not in PURGED else self.ended_by
        together = cause in REFUSED_TOGETHER
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

    def count(self, code: str) -> None:
        """An error of the producer itself, of no row."""
        self.codes[code] += 1
