"""An Arrow batch on its way: which of its rows a delivery report is about.

The report callback of a batch refers to it, so it lives as long as a report of its rows is missing, and no longer.
Nothing is noted for a row: a failed one is found again by its content. A report brings topic, partition, key and value,
but neither headers nor timestamp. So rows that have these get a callback each, which says which row it is.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from safeproducer.kafka.native import Message
from safeproducer.spark.columns import ANY_PARTITION, Columns, Header

_Content = tuple[object, bytes | None, bytes | None, int | None]


class _Lists(NamedTuple):
    """A row's content is at its number in each."""

    topics: list[Any]
    values: list[bytes | None]
    keys: list[bytes | None]
    partitions: list[int]
    timestamps: list[int]
    headers: list[list[Header] | None]


class SentBatch:
    """`first_row`: the number of its first row in the Spark partition. For one thread at a time."""

    __slots__ = ("_columns", "_content", "_rows", "_topic", "first_row")

    def __init__(self, columns: Columns, topic: str | None, first_row: int) -> None:
        self._columns = columns
        self._topic = topic
        self.first_row = first_row
        self._rows: dict[_Content, deque[int]] | None = None
        self._content: _Lists | None = None

    def row_of(self, message: Message) -> int | None:
        """The row of this batch that `message` was made of, counted from its first; each row is named once.

        Of rows that are equal in all that a report brings any is named. None when there is no such row.
        """
        if self._rows is None:
            self._rows = self._by_content()
        content = message.topic(), message.key(), message.value()
        # First those that ask for this partition: one of any other may have gone elsewhere.
        for partition in (message.partition(), ANY_PARTITION):
            if rows := self._rows.get((*content, partition)):
                return rows.popleft()
        return None

    def _by_content(self) -> dict[_Content, deque[int]]:
        lists = self._lists()
        found: dict[_Content, deque[int]] = {}
        for row, content in enumerate(zip(lists.topics, lists.keys, lists.values, lists.partitions, strict=True)):
            found.setdefault(content, deque()).append(row)
        return found

    def record(self, row: int, partition: int, callback: object) -> tuple[Any, ...]:
        """What SafeProducer.produce() takes, to send a row again to the partition that it had."""
        lists = self._lists()
        content = lists.topics[row], lists.values[row], lists.keys[row]
        return *content, partition, callback, None, lists.timestamps[row], lists.headers[row]

    def _lists(self) -> _Lists:
        """The columns as Python objects, made once: for one row Arrow takes as long as for hundreds."""
        if self._content is None:
            columns = self._columns
            self._content = _Lists(
                columns.topics(self._topic),
                columns.values(),
                columns.keys(),
                columns.partitions(),
                columns.timestamps(),
                list(columns.all_headers()),
            )
        return self._content
