"""This module reads a whole topic back, and makes a topic for one purpose."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from safeproducer.kafka.native import KafkaError, KafkaException, Message
from safeproducer.kafka.properties import connection_settings
from safeproducer.runtime import clock

_BATCH = 5000
_SLICE = 0.25
_PATIENCE = 30.0


class ReadbackIncompleteError(Exception):
    """The log could not be read to its end: records are missing for a reason that is no loss."""


def read_topic(config: Mapping[str, Any], topic: str, partitions: int) -> Iterator[tuple[int, bytes]]:
    """Yield partition and value of every record that is in the topic now, in offset order within each partition.

    `config` is a producer's configuration: the connection and security settings in it are used, and nothing is
    committed or joined, so no right on a consumer group is needed. Uncommitted and aborted records are read too.

    Raises ReadbackIncompleteError if no record and no end of a partition comes for 30 s, or if a log no longer begins
    at offset 0.
    """
    consumer = Consumer(_consumer_config(config), logger=_silent())
    try:
        ends = _watermarks(consumer, topic, partitions)
        waiting = {partition for partition, end in ends.items() if end > 0}
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in sorted(waiting)])
        deadline = clock.real() + _PATIENCE
        while waiting:
            messages = consumer.consume(_BATCH, _SLICE)
            if messages:
                deadline = clock.real() + _PATIENCE
            elif clock.real() >= deadline:
                raise ReadbackIncompleteError(
                    f"no record came for {_PATIENCE:g} s, "
                    f"partitions {sorted(waiting)} of {topic} are not read to the end"
                )
            yield from _records(messages, ends, waiting)
    finally:
        consumer.close()


def _records(messages: list[Message], ends: Mapping[int, int], waiting: set[int]) -> Iterator[tuple[int, bytes]]:
    """Those that were in the log at the start; a partition that is read to its end is taken out of `waiting`."""
    for message in messages:
        error, partition = message.error(), message.partition()
        assert partition is not None  # noqa: S101 - only a message that was never consumed has none
        if error is None:
            offset = message.offset()
            assert offset is not None  # noqa: S101
            if offset < ends[partition]:
                yield partition, message.value() or b""
        elif error.code() == KafkaError._PARTITION_EOF:
            waiting.discard(partition)
        else:
            raise KafkaException(error)


def _watermarks(consumer: Consumer, topic: str, partitions: int) -> dict[int, int]:
    ends = {}
    for partition in range(partitions):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_PATIENCE)
        if low > 0:
            raise ReadbackIncompleteError(
                f"partition {partition} of {topic} begins at offset {low}: its oldest records were deleted before "
                f"they could be read"
            )
        ends[partition] = high
    return ends


def _consumer_config(config: Mapping[str, Any]) -> dict[str, Any]:
    return connection_settings(config) | {
        "group.id": "safeproducer-readback",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "isolation.level": "read_uncommitted",
        "fetch.wait.max.ms": 50,
    }


def _silent() -> logging.Logger:
    logger = logging.getLogger("safeproducer.readback")
    logger.propagate = False
    return logger


_TIMEOUT = 15.0


class ScratchTopic:
    """Creates the topic when entered and deletes it when left, unless `keep` is set.

    `config` is a producer's configuration. The replication factor is the cluster's default. Raises KafkaException
    (TOPIC_AUTHORIZATION_FAILED, INVALID_PARTITIONS, ...) if the topic cannot be made or deleted.
    """

    def __init__(self, config: Mapping[str, Any], name: str, partitions: int, *, keep: bool) -> None:
        logger = logging.getLogger("safeproducer.admin")
        logger.propagate = False
        self._admin = AdminClient(connection_settings(config), logger=logger)
        self._name = name
        self._partitions = partitions
        self._keep = keep

    def __enter__(self) -> Self:
        topic = NewTopic(self._name, num_partitions=self._partitions, replication_factor=-1)
        self._admin.create_topics([topic], operation_timeout=_TIMEOUT)[self._name].result(_TIMEOUT)
        return self

    def __exit__(self, *_: object) -> None:
        if not self._keep:
            self._admin.delete_topics([self._name], operation_timeout=_TIMEOUT)[self._name].result(_TIMEOUT)
