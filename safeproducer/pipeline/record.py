"""A record that waits in this process is a tuple of plain values, its report callback a number.

An object that refers to a callback is visited by the garbage collector again and again: with a hundred thousand records
waiting, it stops the process for 30 ms, twice a second. A tuple of numbers and bytes is visited once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

from safeproducer.kafka.native import KafkaError, Message

DeliveryCallback = Callable[[KafkaError | None, Message], Any]

HeldRecord = tuple[Any, Any, int, int, Any, int, float]
"""(value, key, number of the report (see ReportNumbers), timestamp in ms, headers, size in bytes, accepted at)."""
VALUE: Final = 0
KEY: Final = 1
REPORT: Final = 2
TIMESTAMP: Final = 3
HEADERS: Final = 4
SIZE: Final = 5
ACCEPTED_AT: Final = 6
OVERHEAD: Final = 13
"""Bytes that a record takes in a batch beside key and value: seven numbers of variable length, of which the time as the
distance from the batch's first takes two, and each of the sizes two. Up to three more for large ones, which the spare
room of a batch covers; `PartitionBuffer.take()` sees to times that are further apart."""


class ReportNumbers:
    """Any thread. A callback is kept while records use its number: whoever has a record holds it once.

    Each step changes both dictionaries without a call in between, which is one step under the interpreter lock (see
    reports/counters.py): a callback that is released for the last time while another thread holds it again is kept.
    `Intake._append` and `QuotaRejections.remember` hold a callback, as a part of a step of their own.
    """

    __slots__ = ("observed", "reports", "uses")

    def __init__(self) -> None:
        self.reports: dict[int, DeliveryCallback] = {}
        self.uses: defaultdict[int, int] = defaultdict(int)
        self.observed = False  # whether hooks ask for records

    def observe(self) -> None:
        self.observed = True

    def __len__(self) -> int:
        return len(self.reports)

    def __getitem__(self, number: int) -> DeliveryCallback:
        return self.reports[number]

    def hold_again(self, number: int) -> None:
        self.uses[number] += 1

    def release(self, number: int, count: int = 1) -> None:
        """`count` records of that number have ended."""
        self.uses[number] -= count
        if not self.uses[number]:
            del self.uses[number], self.reports[number]
