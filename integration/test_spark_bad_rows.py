"""Each cause for which a row cannot be written, on real Spark and real Kafka, alone and among 10 000 rows: the row is
named, all others are where they should be, and the query goes on after the cure.

All causes run in one Spark session, see spark_bad_rows.py.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from integration import spark_bad_rows
from integration.kafka.cluster import KafkaCluster
from integration.kafka.log import read_records
from integration.spark import Finished, run_script
from integration.spark_bad_rows import ARROW_ROWS, BAD_ROW, CAUSES, DELETED, FEW, FILES, OLD, PARTITIONS, ROWS
from safeproducer.spark.jaas import MODULES

USER, PASSWORD = "reads-no-limit", "password-of-the-user"
ALL_ROWS = FILES * ROWS
OTHERS = ALL_ROWS - ROWS
"""Rows of the tasks without a bad row."""

pytestmark = pytest.mark.timeout(500)


@dataclass
class Story:
    """What the session printed, and the cluster it wrote to."""

    kafka: KafkaCluster
    done: Finished

    def found(self, case: str, topic: str) -> dict[str, Any]:
        """The one line of this case."""
        lines = [line for line in self.done.tasks if (line["case"], line["topic"]) == (case, topic)]
        assert len(lines) == 1, self.done.stderr[-5000:]
        return lines[0]

    def times(self, topic: str) -> Counter[tuple[int, int]]:
        """File and number of a row -> how often it is in the topic."""
        found: Counter[tuple[int, int]] = Counter()
        for records in read_records(self.kafka.direct_bootstrap, topic):
            for record in records:
                file, row = (record.value or b"").split(b"-")[:2]
                found[int(file), int(row)] += 1
        return found


@pytest.fixture(scope="module")
def story(kafka_secure: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """One session that met all causes."""
    kafka = kafka_secure
    scratch = tmp_path_factory.mktemp("spark-bad-rows")
    for topic, cause in CAUSES.items():
        kafka.admin.create_topic(topic, PARTITIONS, configs=cause.configs)
        kafka.admin.add_acl(f"User:{USER}", topic, AclOperation.WRITE, AclOperation.DESCRIBE)
    kafka.admin.create_topic(DELETED, PARTITIONS)
    kafka.admin.add_scram_user(USER, PASSWORD)
    mechanism = "SCRAM-SHA-512"
    settings = {
        "scratch": str(scratch),
        "bootstrap": kafka.direct_bootstrap,
        "secure": {
            "kafka.bootstrap.servers": kafka.secure_bootstrap,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(kafka.ca_pem),
            "kafka.sasl.mechanism": mechanism,
            "kafka.sasl.jaas.config": f'{MODULES[mechanism]} required username="{USER}" password="{PASSWORD}";',
        },
    }
    (scratch / "settings.json").write_text(json.dumps(settings))
    conf = {
        "spark.sql.files.maxPartitionBytes": "100",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
    }
    done = run_script(
        Path(spark_bad_rows.__file__), [str(scratch / "settings.json")], scratch, cores=1, conf=conf, timeout=400
    )
    return Story(kafka, done)


@pytest.mark.parametrize("topic", CAUSES)
def test_a_bad_row_alone_is_named(story: Story, topic: str) -> None:
    """With its cause, and that nothing is written."""
    error = story.found("alone", topic)["error"]
    assert re.search(rf"^- row 0 of Spark partition 0 for [^:]*: {CAUSES[topic].code}: ", error, re.MULTILINE), error
    assert "Of 1 rows read, 0 delivered, 1 not written, 0 of unknown outcome" in error


@pytest.mark.parametrize("topic", CAUSES)
def test_a_bad_row_among_ten_thousand_is_named(story: Story, topic: str) -> None:
    """By the number that it has in its Spark partition, though it is in the third Arrow batch; and no other row. Where
    only the broker knew, by the range of those that it rejected together."""
    error, code = story.found("among", topic)["error"], CAUSES[topic].code
    found = re.findall(
        r"^- .*?rows? (\d+)(?: to (\d+))? of Spark partition (\d+) for [^:]*: (\w+)", error, re.MULTILINE
    )
    named = {(int(row), int(last or row), int(partition)) for row, last, partition, cause in found if cause == code}
    assert {partition for *_, partition in named} == {FILES - 1}, error
    if CAUSES[topic].by_broker:
        assert any(row <= BAD_ROW <= last for row, last, _ in named), error
        return
    assert (len(found), named) == (1, {(BAD_ROW, BAD_ROW, FILES - 1)}), error
    delivered = 2 * ARROW_ROWS  # those of the Arrow batches before
    assert f"Of {ROWS} rows read, {delivered} delivered, {ROWS - delivered} not written, 0 of unknown" in error


@pytest.mark.parametrize("topic", CAUSES)
def test_the_query_goes_on_after_the_cure(story: Story, topic: str) -> None:
    """From its checkpoint: every row is there. Twice are those, and only those, which were delivered before it."""
    report = story.found("report", topic)["report"]
    assert (report["rows"], report["delivered"], report["repeated_tasks"]) == (ALL_ROWS, ALL_ROWS, 0)
    assert report["batch_id"] == list(CAUSES).index(topic)
    times = story.times(topic)
    assert set(times) == {(file, row) for file in range(FILES) for row in range(ROWS)}
    twice = {place for place, count in times.items() if count > 1}
    once = set(times) - twice
    if topic == "bad-partition":  # also written to by the case "counted"
        assert once == {(FILES - 1, row) for row in range(2 * ARROW_ROWS, ROWS)}
        assert set(times.values()) == {1, 3}
        return
    assert set(times.values()) == {1, 2}
    if CAUSES[topic].by_broker:
        delivered = re.search(r"(\d+) delivered", story.found("among", topic)["error"])
        assert delivered is not None
        assert (FILES - 1, BAD_ROW) in once
        assert {file for file, _ in once} == {FILES - 1}
        assert len(once) == ROWS - int(delivered[1])
    else:
        assert once == {(FILES - 1, row) for row in range(2 * ARROW_ROWS, ROWS)}


def test_all_is_written_in_the_end(story: Story) -> None:
    """The last run of the query did not fail."""
    assert story.found("cured", "all")["error"] == ""


def test_rows_of_other_tasks_are_counted_when_a_write_is_given_up(story: Story) -> None:
    """By the data source, in the event of the process that commits."""
    assert "no_such_partition" in story.found("counted", "bad-partition")["error"]
    events = [line for line in story.done.stderr.splitlines() if "spark_batch_aborted" in line]
    assert any(f"tasks_written={FILES - 1}" in line and f"delivered_by_them={OTHERS}" in line for line in events), (
        events
    )


def test_times_before_1970_are_named(story: Story) -> None:
    """Whatever their zone, down to a part of a millisecond; nothing is written for the row of now beside them."""
    error = story.found("old", "bad-timestamp")["error"]
    named = re.findall(r"^- row (\d+) of Spark partition 0 for [^:]*: timestamp_too_old", error, re.MULTILINE)
    assert named == [str(row) for row in range(len(OLD))], error
    rows = len(OLD) + 1
    assert f"Of {rows} rows read, 0 delivered, {rows} not written, 0 of unknown outcome" in error


def test_a_topic_that_is_deleted_under_a_query_is_named(story: Story) -> None:
    """The query fails with it and with the counts of its task; what was written before was reported."""
    found = story.found("deleted", DELETED)
    assert found["delivered"] == [FEW] * 2
    assert repr(DELETED) in found["error"]
    assert f"Of {FEW} rows read, 0 delivered" in found["error"]
