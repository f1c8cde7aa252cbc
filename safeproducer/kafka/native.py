"""The names this library takes from confluent_kafka, in one place.

They come from the C module, not from the package: instrumentation that replaces `confluent_kafka.Producer`
would otherwise wrap the producer inside SafeProducer and count each record twice.
"""

from __future__ import annotations

from confluent_kafka import ThrottleEvent
from confluent_kafka.cimpl import (
    KafkaError,
    KafkaException,
    Message,
    libversion,
)
from confluent_kafka.cimpl import Producer as NativeProducer
from confluent_kafka.serializing_producer import SerializingProducer

__all__ = [
    "KafkaError",
    "KafkaException",
    "Message",
    "NativeProducer",
    "SerializingProducer",
    "ThrottleEvent",
    "libversion",
]
