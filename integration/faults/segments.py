"""The values in a deleted topic's segment files, which a broker keeps for a minute under another name."""

from collections.abc import Iterator
from pathlib import Path

from integration.kafka.log import read_segments
from integration.kafka.node import Node
from integration.kafka.poll import until

RECORDS_FROM = 40
"""Where the records begin in a batch's checked bytes, behind its attributes, timestamps, producer and count."""
CODEC = 0x07


def deleted_values(node: Node, topic: str, partition: int) -> list[bytes | None]:
    """The values of a partition that the node deletes; waits until it has begun to.

    Raises TimeoutError when it does not, and ValueError for a compressed batch.
    """
    pattern = f"{topic}-{partition}.*-delete"
    folders = until(lambda: sorted(node.log_dir.glob(pattern)), f"{node} marks {topic}[{partition}] as deleted")
    return [value for folder in folders for value in values(folder)]


def values(partition_folder: Path) -> Iterator[bytes | None]:
    """The values of all records in a partition's folder, in order."""
    for batch in read_segments(partition_folder):
        if batch.attributes & CODEC:
            raise ValueError(f"{partition_folder}: the batch at offset {batch.base_offset} is compressed")
        if not batch.is_control:
            yield from _values(batch.checked, batch.count)


def _values(data: bytes, count: int) -> Iterator[bytes | None]:
    position = RECORDS_FROM
    for _ in range(count):
        length, position = _varint(data, position)
        end = position + length
        position += 1  # attributes
        _, position = _varint(data, position)  # timestamp
        _, position = _varint(data, position)  # offset
        key, position = _varint(data, position)
        value, position = _varint(data, position + max(key, 0))
        yield None if value < 0 else data[position : position + value]
        position = end


def _varint(data: bytes, position: int) -> tuple[int, int]:
    coded = shift = 0
    while True:
        byte = data[position]
        position += 1
        coded |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (coded >> 1) ^ -(coded & 1), position
        shift += 7
