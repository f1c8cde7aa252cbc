"""Rows with bad ones of each cause, by both doors of the Spark sink, with a dead-letter topic: each good row is in its
topic, each bad one in the dead-letter topic with its number, and the query goes on.

All cases run in one Spark session for each cluster, see spark_dead_letters.py. The long form (--full) writes 100 000
rows by each door, with 50 bad ones of each cause.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration import spark_dead_letters
from integration.kafka.cluster import KafkaCluster
from integration.kafka.log import read_records
from integration.spark import run_script
from integration.spark_dead_letters import (
    BATCHES,
    CAUSES,
    DOORS,
    FILES,
    LIMIT,
    OF_FAKE_CLUSTER,
    PARTITIONS,
    REPORTS,
    bad_rows,
    settings_of,
)
from safeproducer.testing import FakeCluster

CASES = ("goes-on", "killed", "too-many")
CONFIGS = {"max.message.bytes": str(LIMIT), "message.timestamp.after.max.ms": "3600000"}
COMPACTED = {"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"}

pytestmark = pytest.mark.timeout(900)


@dataclass
class Story:
    """What the session printed, and how to read a topic."""

    rows: int
    each: int
    causes: tuple[str, ...]
    lines: dict[tuple[str, str], dict[str, Any]]
    reports: list[dict[str, Any]]
    read: Callable[[str], list[Any]]

    def expected(self) -> tuple[set[str], dict[str, str]]:
        """The places of the good rows, and of each bad one its cause."""
        bad = bad_rows(self.rows, self.each, len(self.causes))
        files = [(batch, file) for batch in range(BATCHES) for file in range(FILES)]
        good = {
            f"{batch}:{file}-{row}"
            for batch, file in files
            for row in range(self.rows)
            if file < FILES - 1 or row not in bad
        }
        return good, {
            f"{batch}:{FILES - 1}-{row}": self.causes[cause] for batch in range(BATCHES) for row, cause in bad.items()
        }

    def places(self, topic: str) -> Counter[str]:
        """How often each row is there."""
        return Counter((record.value or b"").decode().rsplit("-", 1)[0] for record in self.read(topic))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((None, 4_000, 5), id="kafka"),
        pytest.param((FakeCluster, 4_000, 5), id="fake", marks=pytest.mark.full),
        pytest.param((FakeCluster, 25_000, 25), id="fake-long", marks=pytest.mark.full),
        pytest.param((KafkaCluster, 25_000, 25), id="kafka-long", marks=pytest.mark.full),
    ],
)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """All cases, on one cluster; the short form takes the shared node."""
    kind, rows, each = request.param
    scratch = tmp_path_factory.mktemp("spark-dead-letters")
    with kind() if kind else nullcontext(request.getfixturevalue("kafka")) as cluster:
        topics = [f"{case}-{door}" for case in CASES for door in DOORS]
        if kind is FakeCluster:
            causes, bootstrap = OF_FAKE_CLUSTER, cluster.bootstrap
            for topic in topics:
                cluster.create_topic(topic, PARTITIONS)
                cluster.create_topic(f"{topic}-bad", 1)
                for name, value in CONFIGS.items():
                    cluster.set_topic_config(topic, name, value)
        else:
            causes, bootstrap = tuple(CAUSES), cluster.bootstrap
            for topic in topics:
                cluster.admin.create_topic(topic, PARTITIONS, configs=CONFIGS)
                cluster.admin.create_topic(f"{topic}-compacted", 1, configs=COMPACTED)
                cluster.admin.create_topic(f"{topic}-bad", 1)

        def read(topic: str) -> list[Any]:
            if kind is FakeCluster:
                partitions = 1 if topic.endswith("-bad") else PARTITIONS
                return [record for number in range(partitions) for record in cluster.log(topic, number)]
            return [record for records in read_records(cluster.direct_bootstrap, topic) for record in records]

        (scratch / "reports").touch()
        done = run_script(
            Path(spark_dead_letters.__file__),
            [settings_of(scratch, bootstrap, dict.fromkeys(causes), rows, each)],
            scratch,
            cores="2,4",
            conf={
                "spark.sql.files.maxPartitionBytes": "4",
                "spark.sql.files.openCostInBytes": "0",
                "spark.sql.execution.arrow.maxRecordsPerBatch": str(rows // 8),
            },
            environment={REPORTS: str(scratch / "reports")},
            timeout=600,
        )
        assert done.returncode == 0, done.stderr[-5000:]
        lines = {(line["case"], line["door"]): line for line in done.tasks}
        reports = [json.loads(line) for line in (scratch / "reports").read_text().splitlines()]
        yield Story(rows, each, causes, lines, reports, read)


@pytest.mark.parametrize("door", DOORS)
def test_every_row_is_once_where_it_belongs(story: Story, door: str) -> None:
    """Good rows in their topic, bad ones with cause and number in the dead-letter topic; over two micro-batches, which
    the reports count."""
    topic = f"goes-on-{door}"
    assert story.lines["goes-on", door]["error"] == ""
    good, bad = story.expected()
    assert story.places(topic) == dict.fromkeys(good, 1)
    letters = [(record, dict(record.headers or ())) for record in story.read(f"{topic}-bad")]
    codes = [marks["sp-error-code"].decode() for _, marks in letters]
    places = [(record.value or b"").decode().rsplit("-", 1)[0] for record, _ in letters]
    assert dict(zip(places, codes, strict=True)) == bad
    assert len(letters) == len(bad)
    for record, marks in letters:
        place = (record.value or b"").decode().rsplit("-", 1)[0]
        batch, row = place.split(":")[0], place.split("-")[1]
        assert (marks["sp-batch"].decode(), marks["sp-row"].decode()) == (batch, row)
        assert record.key == (None if marks["sp-error-code"] == b"INVALID_RECORD" else str(int(row) % 97).encode())
    reports = [report for report in story.reports if topic in report["topics"]]
    assert [report["batch_id"] for report in reports] == list(range(BATCHES))
    for report in reports:
        assert report["bad_rows"] == dict.fromkeys(story.causes, story.each)
        assert report["rows"] == FILES * story.rows == report["delivered"] + story.each * len(story.causes)
        assert report["topics"][topic]["delivered"] == report["delivered"]


@pytest.mark.parametrize("door", DOORS)
def test_a_killed_worker_loses_none(story: Story, door: str) -> None:
    """Each at least once, the bad ones too."""
    topic = f"killed-{door}"
    assert story.lines["killed", door]["error"] == ""
    good, bad = story.expected()
    assert set(story.places(topic)) == good
    assert set(story.places(f"{topic}-bad")) == set(bad)
    reports = [report for report in story.reports if topic in report["topics"]]
    assert sum(report["repeated_tasks"] for report in reports) >= 1
    copies = story.places(topic).total() - len(good) + story.places(f"{topic}-bad").total() - len(bad)
    most = [report["maybe_twice"] for report in reports]  # None: a worker was killed before it began
    assert copies <= (len(good) + len(bad) if None in most else sum(most))


@pytest.mark.parametrize("door", DOORS)
def test_more_bad_rows_than_allowed_fail_the_query(story: Story, door: str) -> None:
    """With the first rows and what to change."""
    error = story.lines["too-many", door]["error"]
    count = story.each * len(story.causes)
    assert f"safeproducer.spark.bad.rows.max allows {count - 1}" in error
    assert "- row 7 of Spark partition " in error
    assert not [report for report in story.reports if f"too-many-{door}" in report["topics"]]
