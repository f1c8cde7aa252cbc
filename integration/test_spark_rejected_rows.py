"""Rows of one batch that a real broker refuses together; no Spark is needed for a task's Arrow batches."""

from __future__ import annotations

import pyarrow as pa
import pytest

from integration.conftest import TopicFactory
from integration.kafka.cluster import KafkaCluster
from integration.kafka.log import read_records
from safeproducer.spark.errors import KafkaWriteError
from safeproducer.spark.options import Options
from safeproducer.spark.task import Task, write_task

pytestmark = pytest.mark.usefixtures("_no_idle_producer_left")

ROWS = 1000


@pytest.mark.parametrize("guilty", [{519}, {7, 519}], ids=len)
def test_rows_without_a_key_in_a_compacted_topic_are_in_the_range(
    kafka: KafkaCluster, topic: TopicFactory, guilty: set[int]
) -> None:
    """Of several in a batch the broker tells which they are, and librdkafka calls the neighbours
    _INVALID_DIFFERENT_RECORD; with a single one all have its code."""
    name = topic(configs={"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"})
    options = Options.parse({"kafka.bootstrap.servers": kafka.bootstrap, "topic": name, "kafka.linger.ms": "200"})
    options.config["log_level"] = "0"
    rows = {
        "key": pa.array([None if row in guilty else b"key-%d" % row for row in range(ROWS)], pa.binary()),
        "value": pa.array([b"%d" % row for row in range(ROWS)], pa.binary()),
    }
    with pytest.raises(KafkaWriteError) as raised:
        write_task([pa.RecordBatch.from_pydict(rows)], options, Task(2, 0))
    found = raised.value.failure
    (named,) = [bad for bad in found.bad_rows if bad.cause == "INVALID_RECORD"]
    assert named.row is not None
    assert guilty <= set(range(named.row, (named.row if named.last is None else named.last) + 1))
    assert (named.topic, named.target_partition) == (name, 0)
    (records,) = read_records(kafka.direct_bootstrap, name)
    written = {int(record.value or b"") for record in records}
    assert not guilty & written
    assert found.delivered == len(written) == ROWS - sum(found.codes.values())
