"""This module reads a whole topic back, and makes a topic for one purpose."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from safeproducer.kafka.native import KafkaError, KafkaException, Message
from safeproducer.kafka.properties import connection_settings
from safeproducer.runtime import clock

_BATCH = 5000
_SLICE = 0.25


class LogRecord(NamedTuple):
    """One record as it stands in the log."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class ReadbackIncompleteError(Exception):
    """The log could not be read to its end: records are missing for a reason that is no loss."""


def read_topic(
    config: Mapping[str, Any],
    topic: str,
    partitions: int,
    *,
    timeout: float = 30.0,
    tick: Callable[[], bool] = lambda: True,
) -> Iterator[LogRecord]:
    """Yield every record that is in the topic now, in offset order within each partition.

    `config` is a producer's configuration: the connection and security settings in it are used, and nothing is
    committed or joined, so no right on a consumer group is needed. Uncommitted and aborted records are read too.
    `timeout` is how many seconds may pass without any record or end of partition. `tick` runs between fetches; when
    it answers False reading stops.

    Raises ReadbackIncompleteError if the time is up, or if a log no longer begins at offset 0.
    """
    consumer = Consumer(_consumer_config(config), logger=_silent())
    try:
        ends = _watermarks(consumer, topic, partitions, timeout)
        waiting = {partition for partition, end in ends.items() if end > 0}
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in sorted(waiting)])
        deadline = clock.real() + timeout
        while waiting:
            if not tick():
                return
            messages = consumer.consume(_BATCH, _SLICE)
            if messages:
                deadline = clock.real() + timeout
            elif clock.real() >= deadline:
                raise ReadbackIncompleteError(
                    f"no record came for {timeout:g} s, partitions {sorted(waiting)} of {topic} are not read to the end"
                )
            yield from _records(messages, ends, waiting)
    finally:
        consumer.close()


def _records(messages: list[Message], ends: Mapping[int, int], waiting: set[int]) -> Iterator[LogRecord]:
    """Those that were in the log at the start; a partition that is read to its end is taken out of `waiting`."""
    for message in messages:
        error, partition = message.error(), message.partition()
        assert partition is not None  # noqa: S101 - only a message that was never consumed has none
        if error is None:
            offset = message.offset()
            assert offset is not None  # noqa: S101
            if offset < ends[partition]:
                yield LogRecord(partition, offset, message.key(), message.value())
        elif error.code() == KafkaError._PARTITION_EOF:
            waiting.discard(partition)
        else:
            raise KafkaException(error)


def _watermarks(consumer: Consumer, topic: str, partitions: int, timeout: float) -> dict[int, int]:
    ends = {}
    for partition in range(partitions):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=timeout)
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
        self.name = name
        self.partitions = partitions
        self.keep = keep

    def __enter__(self) -> Self:
        topic = NewTopic(self.name, num_partitions=self.partitions, replication_factor=-1)
        self._admin.create_topics([topic], operation_timeout=_TIMEOUT)[self.name].result(_TIMEOUT)
        return self

    def __exit__(self, *_: object) -> None:
        if not self.keep:
            self._admin.delete_topics([self.name], operation_timeout=_TIMEOUT)[self.name].result(_TIMEOUT)
