"""What the broker has: its segment files read byte by byte, and its records read by a consumer.

The segment reader is an oracle that shares no code with any client or with the wire tap: it knows the header of a
version 2 record batch (Kafka's documentation, "Record Batch") and nothing else.
"""

import struct
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from safeproducer.testing.produce import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
PREFIX = 12  # base offset and length, which the length does not count
CHECKED_FROM = 21  # the CRC covers everything after itself
CONTROL = 0x20
TRANSACTIONAL = 0x10


@dataclass(frozen=True)
class Batch:
    """One record batch as it stands in a segment."""

    base_offset: int
    last_offset: int
    producer_id: int
    """-1 when the producer was not idempotent; then `epoch` and `base_sequence` are -1 too."""
    epoch: int
    base_sequence: int
    count: int
    max_timestamp: int
    attributes: int
    crc: int
    checked: bytes = field(repr=False, compare=False)

    @property
    def is_control(self) -> bool:
        """A commit or abort marker, which no consumer sees."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @cached_property
    def crc_ok(self) -> bool:
        """Whether the bytes carry the checksum they should. Computed when asked for: about 10 MB/s."""
        return crc32c(self.checked) == self.crc


class Record(NamedTuple):
    """One record as a consumer sees it; the timestamp is in milliseconds."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


def read_segments(partition_folder: Path) -> Iterator[Batch]:
    """The batches of all segments in offset order, up to the last one that is complete."""
    for segment in sorted(partition_folder.glob("*.log")):
        data = segment.read_bytes()
        position = 0
        while position + HEADER.size <= len(data):
            (base, length, _, magic, crc, attributes, last_delta, _, newest, producer, epoch, sequence, count) = (
                HEADER.unpack_from(data, position)
            )
            end = position + PREFIX + length
            if end > len(data):
                return
            if magic != 2:
                raise ValueError(f"{segment} holds a batch of version {magic} at byte {position}, not 2")
            checked = data[position + CHECKED_FROM : end]
            yield Batch(base, base + last_delta, producer, epoch, sequence, count, newest, attributes, crc, checked)
            position = end


def read_records(
    bootstrap: str,
    topic: str,
    *,
    isolation: str = "read_uncommitted",
    timeout: float = 60,
    config: Mapping[str, object] | None = None,
) -> list[list[Record]]:
    """Every record of every partition, from the first offset to the end as it was when the call began.

    `isolation` is `read_uncommitted` (whatever stands in the log, also of open and aborted transactions) or
    `read_committed`. `config` adds consumer settings, for instance of a secure listener. Raises KafkaException for an
    error and TimeoutError when the end is not reached in `timeout` seconds.
    """
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": f"reader-{uuid.uuid4()}",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": isolation,
        "check.crcs": True,
        "log_level": 0,
        **(config or {}),
    }
    consumer = Consumer(settings)
    try:
        return _drain(consumer, topic, timeout)
    finally:
        consumer.close()


def _drain(consumer: Consumer, topic: str, timeout: float) -> list[list[Record]]:
    known = consumer.list_topics(topic, timeout=timeout).topics[topic]
    if known.error is not None:
        raise KafkaException(known.error)
    partitions = sorted(known.partitions)
    ends = {
        number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=timeout)[1]
        for number in partitions
    }
    records: dict[int, list[Record]] = {number: [] for number in partitions}
    missing = {number for number in partitions if ends[number] > 0}
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in sorted(missing)])
    deadline = time.monotonic() + timeout
    while missing:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic}: partitions {sorted(missing)} not read to {ends} in {timeout:g} s")
        for message in consumer.consume(1_000, timeout=0.2):
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            number, record = _record(message)
            if error is None and record.offset < ends[number]:
                records[number].append(record)
            # A transaction ends with a marker that no consumer sees; then only the end-of-partition event tells.
            if record.offset >= ends[number] - (error is None):
                missing.discard(number)
    return [records[number] for number in partitions]


def _record(message: Any) -> tuple[int, Record]:
    values = message.timestamp()[1], message.key(), message.value(), message.headers()
    return message.partition(), Record(message.offset(), *values)
