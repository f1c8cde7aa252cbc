"""This module makes a topic for one purpose, and reads a whole topic back."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.kafka.positions import SILENT
from safeproducer.kafka.properties import connection_settings

_PATIENCE, _TIMEOUT = 30.0, 15.0
_READING = {
    "group.id": "safeproducer-readback",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_uncommitted",
    "fetch.wait.max.ms": 50,
}


def read_topic(config: Mapping[str, Any], topic: str, partitions: int) -> list[tuple[int, bytes]]:
    """Partition and value of every record of the topic, in offset order within each partition; of aborted ones, too.

    `config` is a producer's: its connection and security settings count. No right on a consumer group is needed.
    Raises EOFError if nothing comes for 30 s, or if a log no longer begins at offset 0: that is no loss.
    """
    consumer = Consumer(connection_settings(config) | _READING, logger=SILENT)
    log, begun, waiting = list[tuple[int, bytes]](), set[int](), set(range(partitions))
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in waiting])
        while waiting:
            message = consumer.poll(_PATIENCE)
            if message is None:
                raise EOFError(f"partitions {sorted(waiting)} of {topic} did not come to their end")
            error, partition = message.error(), message.partition() or 0
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            if partition not in begun and message.offset():
                raise EOFError(f"the oldest records of partition {partition} of {topic} were deleted")
            begun.add(partition)
            if error is None:
                log.append((partition, message.value() or b""))
            else:
                waiting.discard(partition)
    finally:
        consumer.close()
    return log


@contextmanager
def scratch_topic(config: Mapping[str, Any], name: str, partitions: int, *, keep: bool) -> Iterator[None]:
    """Create the topic, and delete it in the end, unless `keep` is set. Raises KafkaException."""
    admin = AdminClient(connection_settings(config), logger=SILENT)
    topic = NewTopic(name, num_partitions=partitions, replication_factor=-1)  # as many as the cluster's default
    admin.create_topics([topic], operation_timeout=_TIMEOUT)[name].result(_TIMEOUT)
    try:
        yield
    finally:
        if not keep:
            admin.delete_topics([name], operation_timeout=_TIMEOUT)[name].result(_TIMEOUT)
