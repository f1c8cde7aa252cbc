"""Rows of one batch that a real broker refuses together; no Spark is needed for a task's Arrow batches."""

from __future__ import annotations

import pyarrow as pa
import pytest

from integration.conftest import TopicFactory
from integration.kafka.cluster import KafkaCluster
from integration.kafka.log import read_records
from safeproducer.spark.engine import Task, write_task
from safeproducer.spark.errors import KafkaWriteError
from safeproducer.spark.options import Options

pytestmark = pytest.mark.usefixtures("_no_idle_producer_left")

ROWS = 1000


@pytest.mark.parametrize("guilty", [{519}, {7, 519}, {7, 8, 519, 999}], ids=len)
def test_rows_without_a_key_in_a_compacted_topic_are_named(
    kafka: KafkaCluster, topic: TopicFactory, guilty: set[int]
) -> None:
    """And their neighbours are delivered once. Of several in a batch the broker tells which they are, and librdkafka
    calls the neighbours _INVALID_DIFFERENT_RECORD; with a single one all have its code."""
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
    assert [(bad.row, bad.cause) for bad in found.bad_rows] == [(row, "INVALID_RECORD") for row in sorted(guilty)]
    assert found.codes == {"INVALID_RECORD": len(guilty)}
    assert (found.delivered, found.not_written, found.unknown) == (ROWS - len(guilty), len(guilty), 0)
    (records,) = read_records(kafka.direct_bootstrap, name)
    assert [int(record.value or b"") for record in records] == [row for row in range(ROWS) if row not in guilty]
