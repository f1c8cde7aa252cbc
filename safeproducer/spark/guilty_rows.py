"""Which rows of a refused batch are the guilty ones: found by sending parts of it again, until a part is one row.

Pure: the caller sends. All of a partition goes in its order, one group at a time, so that what fails together is what
was sent together; groups of several partitions may be on their way at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

Row = TypeVar("Row")


class GuiltyRows(Generic[Row]):
    """`rows`: those that were refused, by partition, each in its order. For one thread."""

    def __init__(self, rows: Mapping[Hashable, Sequence[Row]]) -> None:
        self._waiting: dict[Hashable, deque[Sequence[Row]]] = {
            partition: deque(_halves(refused)) for partition, refused in rows.items() if refused
        }
        self._under_way: dict[Hashable, Sequence[Row]] = {}

    def next_round(self) -> list[Row]:
        """Rows to send next: one group of each partition. Empty when all is known."""
        self._under_way = {partition: groups.popleft() for partition, groups in self._waiting.items()}
        return [row for group in self._under_way.values() for row in group]

    def refused(self, rows: Mapping[Hashable, Sequence[Row]]) -> list[Row]:
        """How the round ended: which of its rows were refused again. Returns those that are guilty.

        A row that was refused while no other one of its partition was is guilty: it was alone in its batch.
        """
        guilty = []
        for partition in self._under_way:
            again = rows.get(partition, ())
            if len(again) == 1:
                guilty.append(again[0])
            elif again:
                self._waiting[partition].extendleft(reversed(_halves(again)))
        self._waiting = {partition: groups for partition, groups in self._waiting.items() if groups}
        return guilty

    def left(self) -> list[Row]:
        """Rows that were not sent again yet."""
        return [row for groups in self._waiting.values() for group in groups for row in group]


def _halves(rows: Sequence[Row]) -> list[Sequence[Row]]:
    middle = len(rows) // 2
    return [half for half in (rows[:middle], rows[middle:]) if half]
