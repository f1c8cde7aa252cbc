"""An Arrow batch on its way: which of its rows a delivery report is about.

The report callback of a batch refers to it, so it lives as long as a report of its rows is missing, and no longer.
Nothing is noted for a row: a failed one is found again by its content.
"""

from __future__ import annotations

from typing import Any

from safeproducer.kafka.native import Message
from safeproducer.spark.columns import ANY_PARTITION, NOW, Columns

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
        """The number, in the Spark partition, of the row that `message` was made of; each row is named once.

        Of rows with the same topic, key, value, timestamp and headers any is named. None when there is no such row.
        """
        if self._rows is None:
            self._rows = self._by_content()
        rows = self._rows.get((message.topic(), message.key(), message.value()), [])
        found = next((row for row in rows if len(rows) == 1 or self._fits(row, message)), None)
        if found is None:
            return None
        rows.remove(found)
        return self.first_row + found

    def _by_content(self) -> dict[_Content, list[int]]:
        columns = self._columns
        found: dict[_Content, list[int]] = {}
        contents = zip(columns.topics(self._topic), columns.keys(), columns.values(), strict=True)
        for row, content in enumerate(contents):
            found.setdefault(content, []).append(row)
        return found

    def _fits(self, row: int, message: Message) -> bool:
        one = self._columns.slice(row)
        timestamp, partition = one.timestamps()[0], one.partitions()[0]
        return (
            timestamp in (NOW, message.timestamp()[1])
            and partition in (ANY_PARTITION, message.partition())
            and (next(one.all_headers()) or None) == _headers(message)
        )


def _headers(message: Message) -> list[Any] | None:
    return list(message.headers() or ()) or None
