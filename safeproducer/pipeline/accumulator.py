"""The records of one partition that wait in this process."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from safeproducer.pipeline.ledger import DeliveryCallback

if TYPE_CHECKING:
    from safeproducer.pipeline.hand_over import HandOver

HeldRecord = tuple[Any, Any, DeliveryCallback, int, Any, int, float]
"""(value, key, report, timestamp in ms, headers, size in bytes, accepted at): a tuple, because one is made for each
record."""
VALUE: Final = 0
KEY: Final = 1
REPORT: Final = 2
TIMESTAMP: Final = 3
HEADERS: Final = 4
SIZE: Final = 5
ACCEPTED_AT: Final = 6

OVERHEAD = 16
"""Bytes that a record takes in a batch beside key and value: seven numbers of variable length, the time among them as
the distance from the batch's first. Up to 3 more for large ones, which the spare room of a batch covers."""
MOST_OVERHEAD = 36
"""What librdkafka counts, and what headers and an application's own times may take up."""


class Accumulator:
    """Any thread appends to `records`; only the holder of the feed's lock takes away.

    Counters change by in-place addition, which is one step under the interpreter lock (see ledger.py). `held` is why
    records of this partition are held back at all, None while they go straight; `held_since`: when the last of them may
    have gone straight; `why` is what the next batch waits for.
    """

    __slots__ = ("ack_time", "bytes", "held", "held_since", "partition", "records", "topic", "unresolved", "why")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.records: deque[HeldRecord] = deque()
        self.bytes = 0
        self.unresolved: list[HandOver] = []
        self.ack_time: float | None = None
        self.held: str | None = None
        self.held_since = 0.0
        self.why: str | None = None

    def hold(self, reason: str | None, moment: float) -> None:
        """Hold records back for `reason` from now on, or let them go straight again if that is None."""
        if reason is not None and self.held is None:
            self.held_since = moment
        self.held = reason

    def take(self, count: int, size: int) -> list[HeldRecord]:
        """The next batch: up to `count` records of up to `size` bytes, and at least one."""
        taken: list[HeldRecord] = []
        total = 0
        records = self.records
        while records and len(taken) < count:
            total += records[0][SIZE]
            if total > size and taken:
                total -= records[0][SIZE]
                break
            taken.append(records.popleft())
        self.bytes -= total
        return taken

    def fills_count(self, count: int, size: int) -> bool:
        """Whether the next batch holds exactly `count` records."""
        if len(self.records) < count:
            return False
        if self.bytes <= size:
            return True
        # A copy, made in one step under the interpreter lock: produce() may append at any moment.
        return sum(record[SIZE] for record in islice(self.records.copy(), count)) <= size

    def observe_ack(self, seconds: float) -> None:
        """Smooth the time from hand-over to the last report."""
        self.ack_time = seconds if self.ack_time is None else 0.8 * self.ack_time + 0.2 * seconds
