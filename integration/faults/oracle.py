"""Compares what a producer reported with what the partitions hold. Pure: it shares nothing with client or broker."""

from collections.abc import Sequence
from dataclasses import dataclass

from integration.faults.account import Account, Told

SHOWN = 3

Log = Sequence[Sequence[bytes | None]]
"""The values of each partition in the order of the log."""


@dataclass(frozen=True)
class Verdict:
    """Numbers of records. What ought to be zero comes first; `examples` shows some of what is not."""

    lost: int
    """Reported as delivered, in no log."""
    duplicated: int
    """Copies beyond the first, whatever was reported."""
    reordered: int
    """In the log behind a later record of its stream, whatever was reported."""
    phantom: int
    """Reported as not written, or refused by produce(), yet in the log."""
    misplaced: int
    """In another partition than its own, or than others of its key."""
    foreign: int
    """In the log, but no record of the load."""
    unreported: int
    """Accepted, and never reported."""
    reported_again: int
    """Reports too many, or of records that nobody produced."""

    accepted: int
    delivered: int
    not_written: int
    unknown_present: int
    unknown_absent: int
    refused: int
    examples: tuple[str, ...] = ()

    @property
    def unknown(self) -> int:
        """Records of unknown outcome."""
        return self.unknown_present + self.unknown_absent

    @property
    def broken(self) -> list[str]:
        """A sentence for each promise that was not kept."""
        names = ("lost", "duplicated", "reordered", "phantom", "misplaced", "foreign", "unreported", "reported_again")
        return [f"{count} {name.replace('_', ' ')}" for name in names if (count := getattr(self, name))]


def judge(account: Account, log: Log) -> Verdict:
    """The verdict on one load, from its account and everything its topic holds."""
    reading = _Reading(account)
    for partition, values in enumerate(log):
        for value in values:
            reading.found(partition, value)
    copies, told = reading.copies, account.told
    present: dict[Told, int] = dict.fromkeys(Told, 0)
    for index, state in enumerate(told):
        if copies[index]:
            present[Told(state)] += 1
            if state in (Told.NOT_WRITTEN, Told.REFUSED, Told.NOTHING):
                reading.show("phantom", index)
        elif state == Told.DELIVERED:
            reading.show("lost", index, f"at offset {account.offsets[index]} of partition {account.partitions[index]}")
        if state == Told.ACCEPTED:
            reading.show("unreported", index)
    return Verdict(
        lost=account.count(Told.DELIVERED) - present[Told.DELIVERED],
        duplicated=sum(copies) - sum(present.values()),
        reordered=reading.reordered,
        phantom=present[Told.NOT_WRITTEN] + present[Told.REFUSED] + present[Told.NOTHING],
        misplaced=reading.misplaced,
        foreign=reading.foreign,
        unreported=account.count(Told.ACCEPTED),
        reported_again=account.reported_again + account.strange_reports,
        accepted=account.accepted,
        delivered=account.count(Told.DELIVERED),
        not_written=account.count(Told.NOT_WRITTEN),
        unknown_present=present[Told.UNKNOWN],
        unknown_absent=account.count(Told.UNKNOWN) - present[Told.UNKNOWN],
        refused=account.count(Told.REFUSED),
        examples=tuple(sentence for sentences in reading.examples.values() for sentence in sentences),
    )


class _Reading:
    """What is known of the log while it is read."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._records = account.records
        self.copies = [0] * self._records.count
        self.reordered = self.misplaced = self.foreign = 0
        self.examples: dict[str, list[str]] = {}
        self._newest: dict[int, int] = {}
        self._homes: dict[int, int] = {} if self._records.keyed else {n: n for n in range(self._records.streams)}

    def found(self, partition: int, value: bytes | None) -> None:
        index = self._records.index(value)
        if index is None:
            self.foreign += 1
            return
        self.copies[index] += 1
        if self.copies[index] > 1:
            self.show("duplicated", index)
            return
        stream, number = self._records.stream(index), self._records.number(index)
        if self._homes.setdefault(stream, partition) != partition:
            self.misplaced += 1
            self.show("misplaced", index)
            return
        newest = self._newest.get(stream, -1)
        if number < newest:
            self.reordered += 1
            self.show("reordered", index, f"behind {newest}")
        self._newest[stream] = max(newest, number)

    def show(self, kind: str, index: int, more: str = "") -> None:
        """Keep one example, unless there are enough."""
        shown = self.examples.setdefault(kind, [])
        if len(shown) < SHOWN:
            told = Told(self._account.told[index]).name.lower()
            stream, number = self._records.stream(index), self._records.number(index)
            shown.append(f"{kind}: record {number} of stream {stream}, told {told} {more}".rstrip())
