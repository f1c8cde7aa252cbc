"""This module reads a whole topic back, and makes a topic for one purpose."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.kafka.properties import connection_settings
from safeproducer.runtime import clock

_BATCH = 5000
_SLICE = 0.25
_PATIENCE = 30.0
_TIMEOUT = 15.0
_READING = {
    "group.id": "safeproducer-readback",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "isolation.level": "read_uncommitted",
    "fetch.wait.max.ms": 50,
}
_SILENT = logging.Logger("safeproducer.readback")
_SILENT.disabled = True


class ReadbackIncompleteError(Exception):
    """The log could not be read to its end: records are missing for a reason that is no loss."""


def read_topic(config: Mapping[str, Any], topic: str, partitions: int) -> Iterator[tuple[int, bytes]]:
    """Yield partition and value of every record of the topic, in offset order within each partition.

    `config` is a producer's configuration: the connection and security settings in it are used, and nothing is
    committed or joined, so no right on a consumer group is needed. Uncommitted and aborted records are read too.

    Raises ReadbackIncompleteError if no record and no end of a partition comes for 30 s, or if a log no longer begins
    at offset 0.
    """
    consumer = Consumer(connection_settings(config) | _READING, logger=_SILENT)
    try:
        for partition in range(partitions):
            low, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_PATIENCE)
            if low > 0:
                raise ReadbackIncompleteError(f"the oldest records of partition {partition} of {topic} were deleted")
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
        waiting, deadline = set(range(partitions)), clock.real() + _PATIENCE
        while waiting:
            messages = consumer.consume(_BATCH, _SLICE)
            if messages:
                deadline = clock.real() + _PATIENCE
            elif clock.real() >= deadline:
                raise ReadbackIncompleteError(f"partitions {sorted(waiting)} of {topic} did not come to their end")
            for message in messages:
                error, partition = message.error(), message.partition() or 0
                if error is None:
                    yield partition, message.value() or b""
                elif error.code() == KafkaError._PARTITION_EOF:
                    waiting.discard(partition)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()


@contextmanager
def scratch_topic(config: Mapping[str, Any], name: str, partitions: int, *, keep: bool) -> Iterator[None]:
    """Create the topic, with the cluster's default of replicas; delete it in the end, unless `keep` is set.

    `config` is a producer's configuration. Raises KafkaException (TOPIC_AUTHORIZATION_FAILED, ...).
    """
    admin = AdminClient(connection_settings(config), logger=_SILENT)
    topic = NewTopic(name, num_partitions=partitions, replication_factor=-1)
    admin.create_topics([topic], operation_timeout=_TIMEOUT)[name].result(_TIMEOUT)
    try:
        yield
    finally:
        if not keep:
            admin.delete_topics([name], operation_timeout=_TIMEOUT)[name].result(_TIMEOUT)
