"""The report of records whose application asks for errors alone: those that are delivered need only be counted.

A batch lane keeps a number instead of their messages, and poll() counts them in one step.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol


class Delivered(Protocol):
    """Where they are counted."""

    delivered: int


class Account(Protocol):
    """The account of a topic."""

    def placed(self, partition: int) -> Delivered:
        """Records of that partition for which the caller named none."""
        ...


class CountedReport(partial[Any]):
    """Called, it is the report of one record. `offset_proves` as in delivery_counters.Reporting."""

    def __new__(cls, report: Any, callback: Any, *_: Any) -> CountedReport:
        return super().__new__(cls, report, callback)

    def __init__(self, report: Any, callback: Any, account: Account, offset_proves: bool) -> None:
        self.account = account
        self.offset_proves = offset_proves


class CountedBunch:
    """Delivered records of one partition, among the bunches of Reports; nothing of them is in memory any more."""

    __slots__ = ("partition", "report", "waiting")
    first, size, seconds = None, 0, ()

    def __init__(self, report: CountedReport, partition: int, count: int) -> None:
        self.report = report
        self.partition = partition
        self.waiting = count

    def count(self) -> int:
        """Count all of them; how many."""
        account = self.report.account.placed(self.partition)
        # One step under the interpreter lock: another thread, or a signal handler, may be here, too.
        count, self.waiting = self.waiting, 0
        account.delivered += count
        return count
