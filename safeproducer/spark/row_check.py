"""This module finds bad rows before any is sent, by columns: what no topic takes, and what these topics do not take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeproducer.kafka.arguments import is_no_name
from safeproducer.kafka.native import KafkaError
from safeproducer.runtime import clock
from safeproducer.spark import errors
from safeproducer.spark.columns import ANY_PARTITION, Columns, Header

BATCH_HEADER = 61
"""Bytes of a batch in Kafka's log before its first record."""
_ID_OVERHEAD = 15
"""Bytes of the name of the header, and of lengths, at least."""
RECORD_OVERHEAD = 36
"""Bytes that librdkafka adds to key, value and headers before it compares a record with message.max.bytes."""
_ABSENT = {
    "UNKNOWN_TOPIC_OR_PART": errors.UNKNOWN_TOPIC,
    "_UNKNOWN_TOPIC": errors.UNKNOWN_TOPIC,
    "TOPIC_EXCEPTION": errors.INVALID_TOPIC,
}
CLOCKS = 60_000
"""Milliseconds that the clocks of brokers may differ from this one: closer to a limit, the broker is asked."""


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
    """`partitions`: how many it has. A limit that is None is not known, or there is none: only brokers can tell then.

    `max_bytes`: of a batch that is not compressed. `before`, `after`: how far from now a timestamp may be, in
    milliseconds. `needs_keys`: it is compacted. `absent`: why it cannot be used at all.
    """

    partitions: int
    max_bytes: int | None = None
    before: int | None = None
    after: int | None = None
    needs_keys: bool = False
    absent: KafkaError | None = None


def askable(names: Iterable[str]) -> list[str]:
    return [name for name in names if not is_no_name(name)]


def check(
    columns: Columns, topic: str | None, facts: Mapping[str, TopicFacts], message_max: int, apart: bool = False
) -> list[Found]:
    """All rows that must not be sent, in their order, each with the first cause found.

    `facts` are of all topics of the rows; `message_max` is librdkafka's message.max.bytes. `apart`: also those that
    brokers would refuse by the topic's configs, as far as clocks agree.
    """
    found: dict[int, Found] = {}
    for one in (
        *_without_topic(columns, topic),
        *_to_no_topic(columns, facts),
        *_nowhere(columns, topic, facts),
        *_with_wrong_header_name(columns, topic),
        *_too_old(columns, topic),
        *(_refused_by_config(columns, topic, facts) if apart else ()),
        *_too_large(columns, topic, facts, message_max),
    ):
        found.setdefault(one.row, one)
    return [found[row] for row in sorted(found)]


def _where(mask: Any) -> list[int]:
    """The rows for which `mask` is true."""
    return pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist()  # type: ignore[no-any-return]


def _of(columns: Columns, topic: str | None, row: int) -> tuple[str | None, int | None]:
    one = columns.slice(row)
    partition = one.partitions()[0]
    return one.topics(topic)[0], None if partition == ANY_PARTITION else partition


def _without_topic(columns: Columns, topic: str | None) -> Iterator[Found]:
    if topic is not None:
        return
    for row in range(columns.rows) if columns.topic is None else _where(columns.topic.is_null()):
        yield Found(row, None, None, None, None, errors.NULL_TOPIC)


def _to_no_topic(columns: Columns, facts: Mapping[str, TopicFacts]) -> Iterator[Found]:
    """Rows whose column names a topic that cannot be used."""
    if columns.topic is None:
        return
    causes = {name: errors.INVALID_TOPIC for name in columns.topic_names(None) if is_no_name(name)}
    causes |= {name: _ABSENT.get(one.absent.name(), one.absent.name()) for name, one in facts.items() if one.absent}
    for row in _of_topics(columns, causes):
        name = columns.slice(row).topics(None)[0]
        yield Found(row, name, None, None, None, causes[name])


def _of_topics(columns: Columns, names: Iterable[str], mask: Any = None) -> list[int]:
    """The rows of these topics for which `mask` is true, or all of them."""
    wanted = set(names)
    if columns.topic is not None and wanted:
        at = [number for number, name in enumerate(columns.topic.dictionary.to_pylist()) if name in wanted]
        among = pc.is_in(columns.topic.indices, value_set=pa.array(at, columns.topic.indices.type))
        mask = among if mask is None else pc.and_(mask, among)
    if not wanted:
        return []
    return list(range(columns.rows)) if mask is None else _where(mask)


def _nowhere(columns: Columns, topic: str | None, facts: Mapping[str, TopicFacts]) -> Iterator[Found]:
    if (column := columns.partition) is None:
        return
    fewest = min((one.partitions for one in facts.values() if one.absent is None), default=0)
    for row in _where(pc.or_(pc.less(column, 0), pc.greater_equal(column, fewest))):
        name, number = columns.slice(row).topics(topic)[0], column[row].as_py()
        known = None if name is None else facts.get(name)
        if number < 0 or (known is not None and known.absent is None and number >= known.partitions):
            yield Found(row, name, number, None, None, errors.NO_SUCH_PARTITION)


def _with_wrong_header_name(columns: Columns, topic: str | None) -> Iterator[Found]:
    if columns.headers is None:
        return
    counts, names, _ = columns.flat_headers
    for wrong, cause in (
        (names.is_null(), errors.HEADER_WITHOUT_NAME),
        (pc.match_substring(names, "\0"), errors.HEADER_NAME_WITH_NUL),
    ):
        if where := _where(wrong):
            for row in np.unique(np.repeat(np.arange(columns.rows), counts)[where]).tolist():
                yield Found(row, *_of(columns, topic, row), None, None, cause)


def _too_old(columns: Columns, topic: str | None) -> Iterator[Found]:
    if columns.timestamp is None:
        return
    for row in _where(pc.less_equal(columns.milliseconds(), 0)):
        yield Found(row, *_of(columns, topic, row), None, None, errors.TIMESTAMP_TOO_OLD)


def _refused_by_config(columns: Columns, topic: str | None, facts: Mapping[str, TopicFacts]) -> Iterator[Found]:
    """Rows that their topic takes not: brokers refuse a whole batch for one of them."""
    compacted = [name for name, one in facts.items() if one.needs_keys]
    for row in _of_topics(columns, compacted, None if columns.key is None else columns.key.is_null()):
        yield Found(row, *_of(columns, topic, row), None, None, errors.INVALID_RECORD)
    if columns.timestamp is None:
        return
    ahead = pc.subtract(columns.milliseconds(), int(clock.time() * 1000))
    for name, one in facts.items():
        for limit, beyond in ((one.after, ahead), (one.before, pc.negate(ahead))):
            if limit is not None:
                for row in _of_topics(columns, [name], pc.greater(beyond, limit + CLOCKS)):
                    yield Found(row, *_of(columns, topic, row), None, None, errors.INVALID_TIMESTAMP)


def _too_large(
    columns: Columns, topic: str | None, facts: Mapping[str, TopicFacts], message_max: int
) -> Iterator[Found]:
    limits = [one.max_bytes for one in facts.values() if one.max_bytes is not None]
    size = columns.size
    if columns.headers is not None:
        counts, *fields = columns.flat_headers
        each = pc.add(*(pc.fill_null(pc.binary_length(field), 0) for field in fields)).to_numpy() + 10  # at least
        of_rows = np.bincount(np.repeat(np.arange(columns.rows), counts), each, columns.rows)
        size = pc.add(size, pa.array(of_rows.astype(np.int64)))
    if columns.ids is not None:
        size = pc.add(size, pc.add(pc.fill_null(pc.binary_length(columns.ids), 0), _ID_OVERHEAD))
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
        sizes = message_bytes(key, value, headers), batch_bytes(key, value, headers)
        for taken, limit in zip(sizes, (message_max, of_topic), strict=True):
            if limit is not None and taken > limit:
                yield Found(row, name, number, taken, limit, errors.ROW_TOO_LARGE)


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
