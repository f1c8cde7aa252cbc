"""Both doors under Spark Connect, where the client has no JVM and `foreachBatch` runs on the server.

Both in one session, see spark_connect.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration import spark_connect
from integration.kafka.cluster import KafkaCluster
from integration.kafka.log import read_records
from integration.spark import Finished, run_script
from integration.spark_connect import ROWS
from integration.spark_doors import REPORTS

DOORS = ("sink", "source")

pytestmark = pytest.mark.timeout(200)


@dataclass
class Story:
    """What the session printed, and its reports."""

    kafka: KafkaCluster
    done: Finished
    reports: list[dict[str, Any]]


def topics_of(door: str) -> tuple[str, str]:
    """Of its batch and of its stream."""
    return f"connect-{door}", f"connect-stream-{door}"


@pytest.fixture(scope="module")
def story(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """One session of Spark Connect."""
    scratch = tmp_path_factory.mktemp("spark-connect")
    for topic in (topic for door in DOORS for topic in topics_of(door)):
        kafka.admin.create_topic(topic, 2)
    (scratch / "reports").touch()
    environment = {REPORTS: str(scratch / "reports")}
    done = run_script(
        Path(spark_connect.__file__), [kafka.bootstrap, str(scratch)], scratch, environment=environment, timeout=180
    )
    return Story(kafka, done, [json.loads(line) for line in (scratch / "reports").read_text().splitlines()])


@pytest.mark.parametrize("door", DOORS)
def test_a_door_writes_under_spark_connect(story: Story, door: str) -> None:
    """Each row once, batch and stream; the reports come from wherever micro-batches are committed."""
    cases = {case["case"]: case for case in story.done.tasks}
    told = story.done.stdout + story.done.stderr
    assert story.done.returncode == 0, told
    assert {door, f"stream {door}"} <= set(cases), told
    assert cases[door]["session"] == cases[f"stream {door}"]["session"] == "pyspark.sql.connect.session"
    assert (cases[f"stream {door}"]["ended"], cases[f"stream {door}"]["error"]) == (True, "None"), told
    for topic in topics_of(door):
        partitions = read_records(story.kafka.direct_bootstrap, topic)
        assert sorted(int(record.value or b"") for part in partitions for record in part) == list(range(ROWS)), topic
        reports = [report for report in story.reports if topic in report["topics"]]
        assert [report["topics"][topic]["delivered"] for report in reports] == [ROWS], topic
