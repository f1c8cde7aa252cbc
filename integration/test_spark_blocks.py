"""Rows that a Spark task accepts as blocks, on real Kafka; no Spark is needed for a task's Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from integration.kafka.cluster import KafkaCluster
from integration.kafka.log import Record, read_records
from safeproducer import SafeProducer
from safeproducer.policy.partitioner import murmur2
from safeproducer.spark.options import Options
from safeproducer.spark.task import Task, write_task

pytestmark = pytest.mark.usefixtures("_no_idle_producer_left")

TopicFactory = Callable[..., str]
BATCHES, ROWS = 4, 10_000
PARTITIONS = {"all": 5, "few": 3}
SIZE = 100


def batches(names: dict[str, str]) -> Iterator[pa.RecordBatch]:
    """Rows of both topics; each second one asks for a partition."""
    for first in range(0, BATCHES * ROWS, ROWS):
        numbers = range(first, first + ROWS)
        yield pa.RecordBatch.from_pydict(
            {
                "key": pa.array([None if n % 11 == 0 else b"key-%d" % (n % 97) for n in numbers], pa.binary()),
                "value": pa.array([b"%d-" % n + b"x" * SIZE for n in numbers], pa.binary()),
                "topic": [names["few" if n % 5 == 0 else "all"] for n in numbers],
                "partition": pa.array([n % 3 if n % 2 == 0 else None for n in numbers], pa.int32()),
            }
        )


@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_blocks_of_several_topics_and_partitions(
    kafka: KafkaCluster, topic: TopicFactory, ordering: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row is once in the log, where it asks for or where its key belongs; rows of a key are in order."""

    def called(*_: Any) -> None:
        raise AssertionError("one by one, though there is room")

    names = {name: topic(count) for name, count in PARTITIONS.items()}
    options = Options.parse(
        {
            "kafka.bootstrap.servers": kafka.bootstrap,
            "kafka.linger.ms": "20",
            "safeproducer.mode": "held",
            "safeproducer.ordering": ordering,
        }
    )
    options.config["log_level"] = "0"
    with monkeypatch.context() as patch:
        patch.setattr(SafeProducer, "produce", called)
        totals = write_task(batches(names), options, Task(0, 0))
    assert (totals.delivered, totals.seconds_without_room) == (BATCHES * ROWS, 0)
    found: list[int] = []
    for name, count in PARTITIONS.items():
        for partition, records in enumerate(read_records(kafka.direct_bootstrap, names[name])):
            found += in_order(records, partition, count)
    assert sorted(found) == list(range(BATCHES * ROWS))


def in_order(records: list[Record], partition: int, count: int) -> Iterator[int]:
    """The number of each; it is in the right partition, behind those of its key that came before."""
    last: dict[bytes | None, int] = {}
    for record in records:
        number = int((record.value or b"").split(b"-")[0])
        if number % 2 == 0:
            assert partition == number % 3
        elif record.key is not None:
            assert partition == (murmur2(record.key) & 0x7FFFFFFF) % count
        if record.key is not None:
            assert number > last.get(record.key, -1)
            last[record.key] = number
        yield number
