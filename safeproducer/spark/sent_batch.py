"""An Arrow batch on its way: which of its rows a delivery report is about.

The report callback of a batch refers to it, so it lives as long as a report of its rows is missing, and no longer.
Nothing is noted for a row: a failed one is found again by its content. A report brings topic, partition, key and value,
but neither headers nor timestamp. So rows that have these get a callback each, which says which row it is.
"""

from __future__ import annotations

from typing import Any

from safeproducer.kafka.native import Message
from safeproducer.spark.columns import ANY_PARTITION, Columns

_Content = tuple[object, bytes | None, bytes | None]


class SentBatch:
    """`first_row`: the number of its first row in the Spark partition. For one thread at a time."""

    __slots__ = ("_columns", "_rows", "_topic", "first_row")

    def __init__(self, columns: Columns, topic: str | None, first_row: int) -> None:
        self._columns = columns
        self._topic = topic
        self.first_row = first_row
        self._rows: dict[_Content, list[int]] | None = None

    def row_of(self, message: Message) -> int | None:
        """The row of this batch that `message` was made of, counted from its first; each row is named once.

        Of rows that are equal in all that a report brings any is named. None when there is no such row.
        """
        if self._rows is None:
            self._rows = self._by_content()
        rows = self._rows.get((message.topic(), message.key(), message.value()), [])
        to = (ANY_PARTITION, message.partition())
        found = next((row for row in rows if self._columns.slice(row).partitions()[0] in to), None)
        if found is not None:
            rows.remove(found)
        return found

    def _by_content(self) -> dict[_Content, list[int]]:
        columns = self._columns
        found: dict[_Content, list[int]] = {}
        contents = zip(columns.topics(self._topic), columns.keys(), columns.values(), strict=True)
        for row, content in enumerate(contents):
            found.setdefault(content, []).append(row)
        return found

    def record(self, row: int, partition: int, callback: object) -> tuple[Any, ...]:
        """What SafeProducer.produce() takes, to send a row again to the partition that it had."""
        one = self._columns.slice(row)
        content = one.topics(self._topic)[0], one.values()[0], one.keys()[0]
        return *content, partition, callback, None, one.timestamps()[0], next(one.all_headers())
