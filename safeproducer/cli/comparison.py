"""The oracle of the demonstration: what was reported against what the log holds. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import NamedTuple


class Outcome(Enum):
    """What the producer said about a record."""

    DELIVERED = "delivered"
    FAILED = "failed"
    LEFT = "left"


class Sent(NamedTuple):
    """The fate of one record; ``partition`` is None where no report named one."""

    outcome: Outcome
    partition: int | None


@dataclass(slots=True)
class Counts:
    """Records of one partition, or of all.

    lost: reported delivered and absent from the log. duplicated: further copies of a record. reordered: the first
    copy of a record that stands behind a later record of the same source. unexpected: in the log but never sent.
    unconfirmed: reported failed, or not reported, and in the log all the same (allowed: the outcome was unknown).
    """

    sent: int = 0
    delivered: int = 0
    failed: int = 0
    left: int = 0
    in_log: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    unexpected: int = 0
    unconfirmed: int = 0

    def add(self, other: "Counts") -> None:
        """Add another row to this one."""
        for column in fields(self):
            setattr(self, column.name, getattr(self, column.name) + getattr(other, column.name))

    @property
    def flawless(self) -> bool:
        """Every record delivered, and the log holds each once, in order, and nothing else."""
        flaws = self.failed + self.left + self.lost + self.duplicated + self.reordered + self.unexpected
        return flaws == 0 and self.sent == self.delivered == self.in_log


Identify = Callable[[bytes], tuple[bytes, int] | None]


def compare(
    sent: Mapping[bytes, Sent], log: Iterable[tuple[int, bytes]], identify: Identify
) -> tuple[dict[int | None, Counts], Counts]:
    """Return one row per partition (None: records without one) and their total.

    ``sent`` maps each value, which is unique, to its fate. ``log`` holds (partition, value) in offset order within
    each partition. ``identify`` gives a value's source and its position in that source.
    """
    rows: dict[int | None, Counts] = {}
    for fate in sent.values():
        row = rows.setdefault(fate.partition, Counts())
        row.sent += 1
        setattr(row, fate.outcome.value, getattr(row, fate.outcome.value) + 1)

    found: set[bytes] = set()
    newest: dict[tuple[int, bytes], int] = {}
    for partition, value in log:
        row = rows.setdefault(partition, Counts())
        row.in_log += 1
        identity = identify(value)
        if value not in sent or identity is None:
            row.unexpected += 1
        elif value in found:
            row.duplicated += 1
        else:
            found.add(value)
            row.unconfirmed += sent[value].outcome is not Outcome.DELIVERED
            source, position = identity
            row.reordered += position < newest.get((partition, source), position)
            newest[partition, source] = max(position, newest.get((partition, source), position))

    for value, fate in sent.items():
        if fate.outcome is Outcome.DELIVERED and value not in found:
            rows[fate.partition].lost += 1

    total = Counts()
    for row in rows.values():
        total.add(row)
    return rows, total
