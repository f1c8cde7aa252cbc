"""Both doors under Spark Connect, where the client has no JVM and `foreachBatch` runs on the server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from integration import spark_connect
from integration.kafka.cluster import KafkaCluster
from integration.kafka.log import read_records
from integration.spark import run_script
from integration.spark_connect import ROWS
from integration.spark_doors import REPORTS

TOPICS = ("connect-sink", "connect-source", "connect-stream-sink", "connect-stream-source")


@pytest.mark.timeout(200)
def test_both_doors_write_under_spark_connect(kafka: KafkaCluster, tmp_path: Path) -> None:
    """Each row once, batch and stream; the reports come from wherever micro-batches are committed."""
    for topic in TOPICS:
        kafka.admin.create_topic(topic, 2)
    (tmp_path / "reports").touch()
    arguments = [kafka.bootstrap, str(tmp_path)]
    done = run_script(
        Path(spark_connect.__file__), arguments, tmp_path, environment={REPORTS: str(tmp_path / "reports")}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {case["session"] for case in done.tasks} == {"pyspark.sql.connect.session"}
    assert [case["error"] for case in done.tasks if "error" in case] == ["None", "None"]
    for topic in TOPICS:
        values = [int(record.value or b"") for part in read_records(kafka.bootstrap, topic) for record in part]
        assert sorted(values) == list(range(ROWS)), topic
    reports = [json.loads(line) for line in (tmp_path / "reports").read_text().splitlines()]
    delivered = {topic: sums["delivered"] for report in reports for topic, sums in report["topics"].items()}
    assert delivered == dict.fromkeys(TOPICS, ROWS)
