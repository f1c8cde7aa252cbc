"""A wire tap for tests: sits between clients and brokers, counts what passes, breaks it on demand."""

from integration.tap.faults import ConfigEntry
from integration.tap.proxy import Route
from integration.tap.seen import (
    AnswerSeen,
    BatchSeen,
    ConnectionSeen,
    PartitionKey,
    RequestSeen,
    Undecoded,
)
from integration.tap.tap import Tap

__all__ = [
    "AnswerSeen",
    "BatchSeen",
    "ConfigEntry",
    "ConnectionSeen",
    "PartitionKey",
    "RequestSeen",
    "Route",
    "Tap",
    "Undecoded",
]
