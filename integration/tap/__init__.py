"""A wire tap for tests: sits between clients and brokers, counts what passes, breaks it on demand."""

from integration.tap.faults import ConfigEntry
from integration.tap.proxy import Route
from integration.tap.seen import (
    AnswerSeen,
    BatchSeen,
    ConnectionSeen,
    InFlight,
    PartitionKey,
    RequestSeen,
    Stream,
    Undecoded,
)
from integration.tap.tap import Tap

__all__ = [
    "AnswerSeen",
    "BatchSeen",
    "ConfigEntry",
    "ConnectionSeen",
    "InFlight",
    "PartitionKey",
    "RequestSeen",
    "Route",
    "Stream",
    "Tap",
    "Undecoded",
]
