"""What a producer said about each record of a load, kept by the load itself."""

import time
from array import array
from collections import Counter
from enum import IntEnum
from typing import Any

from integration.faults.records import Records


class Told(IntEnum):
    """The last that the producer said about a record."""

    NOTHING = 0
    """produce() was not called, or did not return yet."""
    REFUSED = 1
    """produce() raised, and the load did not try again."""
    ACCEPTED = 2
    """produce() returned; no report yet."""
    DELIVERED = 3
    NOT_WRITTEN = 4
    """A report with an error whose outcome is `not_written`."""
    UNKNOWN = 5
    """A report with any other error; those of a confluent_kafka producer have no outcome."""


class Account:
    """One entry a record. `report` is the delivery callback; all writers are on the thread that drives the load."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.told = bytearray(records.count)
        self.partitions = array("h", [-1]) * records.count
        """Where the report says that the record is, or should have been."""
        self.offsets = array("q", [-1]) * records.count
        """At which offset the report says that the record is."""
        self.accepted_at = array("d", [0.0]) * records.count
        self.reported_at = array("d", [0.0]) * records.count
        self.accepted = 0
        self.reported = 0
        self.reported_again = 0
        """Reports for records that had one already or were never accepted."""
        self.strange_reports = 0
        """Reports whose message is no record of the load."""
        self.errors: Counter[str] = Counter()
        """What the failed reports and the exceptions of produce() were called."""

    @property
    def outstanding(self) -> int:
        """Accepted records without a report. May be read by any thread."""
        return self.accepted - self.reported

    def accept(self, index: int) -> None:
        """Call before produce(): its report may come before it returns."""
        self.told[index] = Told.ACCEPTED
        self.accepted_at[index] = time.monotonic()
        self.accepted += 1

    def take_back(self, index: int, error: BaseException | None = None) -> None:
        """produce() raised: `error` when the record is given up, None when it is tried again."""
        self.accepted -= 1
        self.told[index] = Told.NOTHING
        if error is not None:
            self.told[index] = Told.REFUSED
            self.errors[_name(error)] += 1

    def report(self, error: Any, message: Any) -> None:
        index = self.records.index(message.value())
        if index is None:
            self.strange_reports += 1
            return
        if self.told[index] != Told.ACCEPTED:
            self.reported_again += 1
            return
        self.told[index] = _told(error)
        self.reported_at[index] = time.monotonic()
        self.reported += 1
        partition = message.partition()
        self.partitions[index] = -1 if partition is None else partition
        if error is None:
            offset = message.offset()
            self.offsets[index] = -1 if offset is None else offset
        else:
            self.errors[_name(error)] += 1

    def count(self, told: Told) -> int:
        return self.told.count(told)

    def oldest_report(self) -> float:
        """The longest time, in seconds, that a record waited for its report."""
        ages = (there - here for here, there in zip(self.accepted_at, self.reported_at, strict=True) if there)
        return max(ages, default=0.0)

    def first_delivery(self, since: float, partitions: set[int]) -> float | None:
        """When the first report without error came of a record accepted after `since` for one of the partitions."""
        times = (
            self.reported_at[index]
            for index in range(self.records.count)
            if self.told[index] == Told.DELIVERED
            and self.accepted_at[index] > since
            and self.partitions[index] in partitions
        )
        return min(times, default=None)


def _told(error: Any) -> Told:
    if error is None:
        return Told.DELIVERED
    return Told.NOT_WRITTEN if getattr(error, "outcome", None) == "not_written" else Told.UNKNOWN


def _name(error: Any) -> str:
    error = error.args[0] if isinstance(error, Exception) and error.args else error
    return str(error.name()) if hasattr(error, "name") else type(error).__name__
