"""Reads the offsets of a consumer group that nobody subscribes with, and commits them with a transaction."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.kafka.properties import connection_settings
from safeproducer.runtime import clock, forks

SILENT = logging.Logger("safeproducer.silent")
SILENT.disabled = True
_PASSES = frozenset({"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "_TIMED_OUT"})
_ROUND, _PAUSE = 5.0, 0.1


class _Consumer(Consumer):
    __slots__ = ("__weakref__",)


class Positions:
    """The offsets of one group in one topic. For one thread. Raises KafkaException; `timeout`: seconds of each call.

    `config` is a producer's: its connection and security settings count. It joins no group.
    """

    def __init__(self, config: Mapping[str, Any], group: str, topic: str, timeout: float) -> None:
        own = {"group.id": group, "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._consumer = forks.spare_in_children(_Consumer({**connection_settings(config), **own}, logger=SILENT))
        self._topic, self._timeout = topic, timeout

    def partitions(self) -> int:
        """How many the topic has; 0 if there is none. Makes none."""
        found = self._consumer.list_topics(self._topic, timeout=self._timeout).topics[self._topic]
        if found.error is not None and found.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise KafkaException(found.error)
        return len(found.partitions)

    def committed(self, partitions: range) -> list[tuple[int, str | None]]:
        """Offset and metadata of each partition, below 0 where there is none. A transaction that ends is waited for."""
        asked = [TopicPartition(self._topic, partition) for partition in partitions]
        until = clock.monotonic() + self._timeout
        while True:
            try:
                answers = self._consumer.committed(asked, timeout=min(_ROUND, self._timeout))
                for one in answers:
                    if one.error is not None:
                        raise KafkaException(one.error)
                return [(one.offset, one.metadata) for one in answers]
            except KafkaException as error:
                if error.args[0].name() not in _PASSES or clock.monotonic() >= until:
                    raise
            # Of a coordinator that it may not ask for it tells here alone.
            refusal = (told := self._consumer.poll(_PAUSE)) and told.error()
            if refusal and refusal.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise KafkaException(refusal)

    def send_to(self, producer: Any, partition: int, offset: int, metadata: str) -> None:
        position = TopicPartition(self._topic, partition, offset, metadata)
        producer.send_offsets_to_transaction([position], self._consumer.consumer_group_metadata(), self._timeout)

    def close(self) -> None:
        self._consumer.close()
