"""A record that waits in this process, and who is told what became of it.

A tuple, because one is made for each record: see report_numbers.py for what an object would cost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from safeproducer.kafka.native import KafkaError, Message

DeliveryCallback = Callable[[KafkaError | None, Message], Any]

HeldRecord = tuple[Any, Any, int, int, Any, int, float]
"""(value, key, number of the report (see report_numbers.py), timestamp in ms, headers, size in bytes, accepted at)."""
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
