"""A Spark task with a producer for each micro-batch (KIP-936): the row of docs/operate/producer-id-recipes.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.spark import run_script
from safeproducer.producer_ids.ledger_places import Place
from safeproducer.producer_ids.ledger_reader import LedgerReading, read_ledgers
from safeproducer.settings.id_settings import LEDGER_VARIABLE, POLICY_VARIABLE
from safeproducer.testing import FakeCluster

BATCHES, PARTITIONS = 4, 2
JOB = f"""
import sys

from pyspark.sql import SparkSession

bootstrap, ledgers = sys.argv[1:]


def writer(policy):
    settings = {{
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "safeproducer.producer.ids.per.hour": 3,
        "safeproducer.producer.ids.policy": policy,
        "safeproducer.producer.ids.ledger": ledgers + policy,
    }}

    def write(rows):
        from safeproducer import SafeProducer

        with SafeProducer(settings) as producer:
            for row in rows:
                producer.produce(policy, str(row.id))
            assert producer.flush(30) == 0

    return write


spark = SparkSession.builder.getOrCreate()
for policy in ("warn", "reuse"):
    for batch in range({BATCHES}):
        spark.range(batch * 4, batch * 4 + 4, numPartitions={PARTITIONS}).foreachPartition(writer(policy))
"""

pytestmark = pytest.mark.timeout(300)


def test_a_producer_for_each_task_and_batch(tmp_path: Path) -> None:
    """By default each takes an ID, and the line is told; with `reuse` each worker process takes one."""
    job, scratch, ledgers = tmp_path / "job.py", tmp_path / "scratch", f"{tmp_path}/ledger-"
    job.write_text(JOB)
    scratch.mkdir()
    with FakeCluster(brokers=1) as cluster:
        for policy in ("warn", "reuse"):
            cluster.create_topic(policy, partitions=1)
        # Empty variables are none: the settings count.
        environment = {LEDGER_VARIABLE: "", POLICY_VARIABLE: ""}
        done = run_script(job, [cluster.bootstrap, ledgers], scratch, environment=environment)
        assert done.returncode == 0, done.stderr
        for policy in ("warn", "reuse"):
            written = sorted(int(record.value or b"") for record in cluster.log(policy))
            assert written == list(range(4 * BATCHES))
    told, reused = ledger(f"{ledgers}warn"), ledger(f"{ledgers}reuse")
    assert len(told.in_hour) == BATCHES * PARTITIONS
    assert [pattern.code for pattern in told.patterns()] == ["one-per-request"]
    lines = [line for line in done.stderr.splitlines() if "producer-ID churn" in line]
    assert 1 <= len(lines) <= len(workers(told)) <= PARTITIONS
    assert all("job.py:" in line and "in write" in line for line in lines)
    assert len(reused.in_hour) == len(workers(reused)) <= PARTITIONS


def ledger(directory: str) -> LedgerReading:
    (found,) = read_ledgers(Place(directory))
    return found


def workers(found: LedgerReading) -> set[int]:
    """The processes that took an ID."""
    return {record.process.pid for record in found.in_hour}
