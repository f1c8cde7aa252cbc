"""The oracle of the demonstration: what was reported against what the log holds. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import NamedTuple

Row = int | None
"""The partition or step of a row of the table; None for records that belong to none."""


class Fate(Enum):
    """The producer's last word about a record. Without any report it is of unknown outcome."""

    REFUSED = "refused"
    DELIVERED = "delivered"
    NOT_WRITTEN = "not_written"
    UNKNOWN = "unknown"


class Sent(NamedTuple):
    """The fate of one record; ``partition`` is None where no report named one."""

    fate: Fate
    partition: int | None


@dataclass(slots=True)
class Counts:
    """Records of one row, or of all.

    accepted = delivered + not_written + unknown; produce() refused others. in_log: found there, every copy. lost:
    reported delivered and not in the log. duplicated: further copies of a record. reordered: the first copy of a
    record that stands behind a later record of the same source. unexpected: in the log but never sent. contradicted:
    refused or reported as not written, and in the log all the same. unconfirmed: of unknown outcome and in the log,
    which is allowed.
    """

    accepted: int = 0
    delivered: int = 0
    not_written: int = 0
    unknown: int = 0
    refused: int = 0
    in_log: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    unexpected: int = 0
    contradicted: int = 0
    unconfirmed: int = 0

    def add(self, other: "Counts") -> None:
        """Add another row to this one."""
        for column in fields(self):
            setattr(self, column.name, getattr(self, column.name) + getattr(other, column.name))

    @property
    def flawless(self) -> bool:
        """Every record delivered, and the log holds each once, in order, and nothing else."""
        return not any(getattr(self, flaw) for flaw in FLAWS) and self.accepted == self.delivered == self.in_log


FLAWS = ("refused", "not_written", "unknown", "lost", "duplicated", "reordered", "unexpected", "contradicted")
"""Columns that have to be 0."""

Identify = Callable[[bytes], tuple[bytes, int] | None]
RowOf = Callable[[int | None, bytes], Row]


def by_partition(partition: int | None, value: bytes) -> Row:
    """The row of a record in a table with one row for each partition."""
    del value
    return partition


def compare(
    sent: Mapping[bytes, Sent], log: Iterable[tuple[int, bytes]], identify: Identify, row_of: RowOf = by_partition
) -> tuple[dict[Row, Counts], Counts]:
    """Return the rows and their total.

    ``sent`` maps each value, which is unique, to its fate. ``log`` holds (partition, value) in offset order within
    each partition. ``identify`` gives a value's source and its position in that source. ``row_of`` says which row a
    record belongs to, from its partition and value.
    """
    rows: dict[Row, Counts] = {}
    for value, (fate, partition) in sent.items():
        row = rows.setdefault(row_of(partition, value), Counts())
        row.accepted += fate is not Fate.REFUSED
        setattr(row, fate.value, getattr(row, fate.value) + 1)

    found = _count_log(rows, sent, log, identify, row_of)
    for value, (fate, partition) in sent.items():
        if fate is Fate.DELIVERED and value not in found:
            rows[row_of(partition, value)].lost += 1

    total = Counts()
    for row in rows.values():
        total.add(row)
    return rows, total


def _count_log(
    rows: dict[Row, Counts],
    sent: Mapping[bytes, Sent],
    log: Iterable[tuple[int, bytes]],
    identify: Identify,
    row_of: RowOf,
) -> set[bytes]:
    """Count what is in the log, into its rows; the values of ``sent`` that are there."""
    found: set[bytes] = set()
    newest: dict[tuple[int, bytes], int] = {}
    for partition_in_log, value in log:
        row = rows.setdefault(row_of(partition_in_log, value), Counts())
        row.in_log += 1
        identity = identify(value)
        if value not in sent or identity is None:
            row.unexpected += 1
        elif value in found:
            row.duplicated += 1
        else:
            found.add(value)
            row.unconfirmed += sent[value].fate is Fate.UNKNOWN
            row.contradicted += sent[value].fate in (Fate.REFUSED, Fate.NOT_WRITTEN)
            source, position = identity
            last = newest.get((partition_in_log, source), position)
            row.reordered += position < last
            newest[partition_in_log, source] = max(position, last)
    return found
