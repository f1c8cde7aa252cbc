"""Which rows of a refused batch are the guilty ones: found by sending parts of it again, until a part is one row.

Pure: the caller sends. All of a partition goes in its order, one group at a time, so that what fails together is what
was sent together; groups of several partitions may be on their way at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Row = TypeVar("Row")


@dataclass(slots=True)
class _Group(Generic[Row]):
    """Rows to send together. `is_first`: their other half is sent next; `taken_twin`: that half, once it was taken."""

    rows: Sequence[Row]
    is_first: bool = False
    taken_twin: Sequence[Row] | None = None


class GuiltyRows(Generic[Row]):
    """`rows`: those that were refused, by partition, each in its order. For one thread.

    `too_many`: groups that were taken as two halves in the last round, and had been refused as a whole. No row of them
    is guilty: they were too many for one batch. Those halves are in it.
    """

    def __init__(self, rows: Mapping[Hashable, Sequence[Row]]) -> None:
        self.too_many: list[Sequence[Row]] = []
        self._waiting: dict[Hashable, deque[_Group[Row]]] = {
            partition: deque(_halves(refused)) for partition, refused in rows.items() if refused
        }
        self._under_way: dict[Hashable, _Group[Row]] = {}

    def next_round(self) -> list[Row]:
        """Rows to send next: one group of each partition. Empty when all is known."""
        self._under_way = {partition: groups.popleft() for partition, groups in self._waiting.items()}
        return [row for group in self._under_way.values() for row in group.rows]

    def refused(self, rows: Mapping[Hashable, Sequence[Row]]) -> list[Row]:
        """How the round ended: which of its rows were refused again. Returns those that are guilty.

        A row that was refused while no other one of its partition was is guilty: it was alone in its batch.
        """
        guilty = []
        self.too_many = []
        for partition, group in self._under_way.items():
            again = rows.get(partition, ())
            if len(again) == 1:
                guilty.append(again[0])
            elif again:
                self._waiting[partition].extendleft(reversed(_halves(again)))
            else:
                self._taken(group, self._waiting[partition])
        self._waiting = {partition: groups for partition, groups in self._waiting.items() if groups}
        return guilty

    def _taken(self, group: _Group[Row], waiting: deque[_Group[Row]]) -> None:
        if group.taken_twin is not None:
            self.too_many += group.taken_twin, group.rows
        elif group.is_first:
            waiting[0].taken_twin = group.rows

    def join(self) -> None:
        """Send the rows of each partition in one go next: batches are smaller from now on."""
        self._waiting = {
            partition: deque([_Group([row for group in groups for row in group.rows])])
            for partition, groups in self._waiting.items()
        }

    def left(self) -> list[Row]:
        """Rows that were not sent again yet."""
        return [row for groups in self._waiting.values() for group in groups for row in group.rows]


def _halves(rows: Sequence[Row]) -> list[_Group[Row]]:
    middle = len(rows) // 2
    second = _Group(rows[middle:])
    return [_Group(rows[:middle], is_first=True), second] if middle else [second]
