"""This module names what this library takes from confluent_kafka, and the error of a record without an offset.

An idempotent librdkafka that gets a batch acknowledged takes every earlier one for written, whatever became of its own
request: a leader that knows the producer would have rejected the later batch. A leader that does not know it takes any:
of a topic that was deleted and re-created in between, or of a partition that has no batch of this producer yet. Then
the earlier records are nowhere. These records are known by their missing offset.

They come from the C module, not from the package: instrumentation that replaces `confluent_kafka.Producer`
would otherwise wrap the producer inside SafeProducer and count each record twice.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from confluent_kafka import ThrottleEvent
from confluent_kafka import __version__ as _version
from confluent_kafka.cimpl import KafkaError, KafkaException, Message, Producer, libversion
from confluent_kafka.serializing_producer import SerializingProducer

VERSION = str(_version)
if tuple(map(int, re.findall(r"\d+", VERSION)[:3])) < (2, 13, 2):
    raise ImportError(
        f"safeproducer needs confluent-kafka 2.13.2 or newer, and this is {VERSION}, in which the check of arguments "
        "crashes the process, or a full queue leaks the headers of each record it refuses: install a newer one"
    )
if not getattr(sys, "_is_gil_enabled", lambda: True)():
    raise ImportError(
        "safeproducer counts under the interpreter lock, which is off in this free-threaded Python: set PYTHON_GIL=1, "
        "or take a Python that has the lock"
    )

OF_PRODUCER_ID = frozenset({KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.INVALID_PRODUCER_ID_MAPPING})
"""Codes that a broker may answer to each batch of a producer ID, for ever."""
WITHOUT_OFFSET = KafkaError(
    KafkaError._INCONSISTENT,
    "Local: Inconsistent state: a later batch of the partition was acknowledged, this record was not",
)


class ClientProducer(Producer):
    """The producer of the client, which can be referred to weakly."""

    __slots__ = ("__weakref__",)


class NativeProducer(ClientProducer):
    """That of a lane. `relay`: who passes on what it calls."""

    __slots__ = ("relay",)
    relay: Any


KNOWS_CLUSTER_ID = hasattr(NativeProducer, "cluster_id")
"""Whether the client has cluster_id(), as from confluent-kafka 2.16 on."""

__all__ = [
    "KNOWS_CLUSTER_ID",
    "VERSION",
    "ClientProducer",
    "KafkaError",
    "KafkaException",
    "Message",
    "NativeProducer",
    "SerializingProducer",
    "ThrottleEvent",
    "libversion",
]
