"""Both doors of the Spark sink on real Spark and real Kafka: what is in the topics, and what the reports say of it.

All cases run in one Spark session, see spark_doors.py; each test reads what one of them left.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from integration import spark_doors
from integration.kafka.cluster import KafkaCluster
from integration.kafka.jars import CONNECTOR, classpath
from integration.kafka.log import Record, read_records
from integration.spark import Finished, run_script
from integration.spark_doors import (
    BAD_ROW,
    BATCHES,
    FEWER_PARTITIONS,
    KEYS,
    MOST_PARTITIONS,
    REPORTS,
    ROTATED,
    ROWS,
    TASK_ROWS,
)

ATTEMPTS = 2
"""Of the task that raises once."""
PASSWORD = "marker-of-a-password"
PAYLOAD = "payload-marker"
TOPICS = {
    "columns-sink": 3,
    "columns-sink-b": 3,
    "columns-source": 3,
    "columns-source-b": 3,
    **{f"large-{door}{name}": 3 for door in ("sink", "source") for name in ("", "-b")},
    "empty": 2,
    "refused": 1,
    "raises": 2,
    "killed": 2,
    "bad-row": 2,
    "many": 2,
    **{f"query-{number}": 2 for number in range(3)},
    "restarted": 2,
    "stopped": 2,
    **{f"keys-{door}-{count}": count for door in ("sink", "spark") for count in (*FEWER_PARTITIONS, MOST_PARTITIONS)},
    "secured": 1,
    "secured-as-it-is": 1,
    "rotated": 2,
    "not-allowed": 1,
    "continuous": 2,
}
LONG_AGO = {"retention.ms": "-1"}
CONFIGS = {"bad": {"max.message.bytes": "200000"}, "columns": LONG_AGO, "large": LONG_AGO}

pytestmark = pytest.mark.timeout(600)


@dataclass
class Story:
    """What the session printed, and the cluster it wrote to."""

    kafka: KafkaCluster
    scratch: Path
    done: Finished
    keys: int
    reports: list[dict[str, Any]] = field(default_factory=list)

    @cached_property
    def cases(self) -> dict[str, dict[str, Any]]:
        """What each case printed, by its name."""
        return {line["case"]: line for line in self.done.tasks}

    def case(self, name: str) -> dict[str, Any]:
        """What it printed; fails when it could not."""
        assert name in self.cases, self.done.stderr[-5000:]
        assert "failed" not in self.cases[name], self.cases[name]
        return self.cases[name]

    def records(self, topic: str) -> list[tuple[int, Record]]:
        """Everything in the topic, with the partition."""
        partitions = read_records(self.kafka.direct_bootstrap, topic)
        return [(number, record) for number, records in enumerate(partitions) for record in records]

    def values(self, topic: str) -> Counter[str]:
        """How often each value is there."""
        return Counter((record.value or b"").decode() for _, record in self.records(topic))


@pytest.fixture(scope="module")
def story(kafka_secure: KafkaCluster, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Story:
    """One Spark session that ran all cases."""
    kafka = kafka_secure
    scratch, keys = tmp_path_factory.mktemp("spark-doors"), KEYS * (10 if pytestconfig.getoption("--full") else 1)
    (scratch / "events").mkdir()
    (scratch / "reports").touch()
    for name, partitions in TOPICS.items():
        kafka.admin.create_topic(name, partitions, configs=CONFIGS.get(name.split("-")[0]))
    kafka.admin.add_scram_user("spark", PASSWORD)
    kafka.admin.add_acl("User:rotating", "rotated", AclOperation.WRITE, AclOperation.DESCRIBE)
    for topic in ("secured", "secured-as-it-is"):
        kafka.admin.add_acl("User:spark", topic, AclOperation.WRITE, AclOperation.DESCRIBE)
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    settings = {
        "scratch": str(scratch),
        "bootstrap": kafka.direct_bootstrap,
        "keys": keys,
        "secure": {
            "kafka.bootstrap.servers": kafka.secure_bootstrap,
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(kafka.ca_pem),
        },
        "rotation": {"user": "rotating", "place": str(tmp_path_factory.mktemp("rotation") / "login")},
    }
    (scratch / "settings.json").write_text(json.dumps(settings))
    done = run_script(
        Path(spark_doors.__file__),
        [str(scratch / "settings.json")],
        scratch,
        cores="2,4",
        conf={
            "spark.jars": ",".join(map(str, classpath(of=CONNECTOR))),
            "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
            "spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled": "true",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": f"file://{scratch}/events",
        },
        environment={
            "MARKER_LOGIN": f'{login} username="spark" password="{PASSWORD}";',
            REPORTS: str(scratch / "reports"),
        },
        timeout=480,
    )
    reports = [json.loads(line) for line in (scratch / "reports").read_text().splitlines()]
    (scratch / "output").write_text(done.stdout + done.stderr)
    return Story(kafka, scratch, done, keys, reports)


def expected_columns(topic: str) -> dict[str, list[tuple[Any, ...]]]:
    """Topic -> number of the row, partition or None, key, value, headers."""
    found: dict[str, list[tuple[Any, ...]]] = {topic: [], f"{topic}-b": []}
    for row in range(ROWS):
        headers = None if row % 4 == 0 else [("n", str(row).encode()), ("n", None)]
        found[topic if row % 2 == 0 else f"{topic}-b"].append(
            (
                1_700_000_000_000 + row,
                None if row % 5 == 0 else row % 3,
                None if row % 10 == 0 else f"k{row % 7}".encode(),
                b"" if row % 11 == 0 else f"v{row}".encode(),
                headers,
            )
        )
    return found


@pytest.mark.parametrize("topic", ["columns-sink", "columns-source", "large-sink", "large-source"])
def test_all_columns_arrive_by_both_doors(story: Story, topic: str) -> None:
    """Key, value, topic, partition, headers and timestamp of each row, as they were; null is not empty."""
    for name, rows in expected_columns(topic).items():
        written = sorted((record.timestamp, partition, record) for partition, record in story.records(name))
        assert [(at, record.key, record.value, record.headers) for at, _, record in written] == [
            (at, key, value, headers) for at, _, key, value, headers in rows
        ]
        assert [got for (_, got, _), row in zip(written, rows, strict=True) if row[1] is not None] == [
            row[1] for row in rows if row[1] is not None
        ]
        key_to_partitions = {
            (record.key, got) for (_, got, record), row in zip(written, rows, strict=True) if row[1] is None
        }
        keys = [key for key, _ in key_to_partitions if key is not None]
        assert len(keys) == len(set(keys))


def test_large_types_were_large(story: Story) -> None:
    """As Spark gave the columns of the rows above; and timestamps were told in the zone of the session."""
    kinds = set(story.case("large_types")["kinds"])
    assert {"large_string", "large_binary", "timestamp[us, tz=Asia/Kathmandu]"} <= kinds


def test_no_trigger_loses_rows(story: Story) -> None:
    """Spark refuses all but one; for that one no offset gets into the checkpoint, and the driver's log says why."""
    case = story.case("other_triggers")
    assert set(case["refused"]) == {"foreachBatch continuous", "foreachBatch realTime", "safeproducer realTime"}
    assert case["committed"] == 0
    assert story.records("continuous") == []
    told = [line for line in story.done.stderr.splitlines() if "spark_commit_refused" in line]
    assert any("with a continuous trigger Spark calls no data source in Python" in line for line in told)


def test_tasks_without_rows_write_nothing(story: Story) -> None:
    """They are no writers, and a DataFrame without rows has a report, too."""
    found = story.case("empty_partitions")
    few, none = found["2"], found["0"]
    assert (few["tasks"], few["rows"], few["maybe_twice"]) == (6, 2, 0)
    assert 1 <= few["writers"] <= 2
    assert (none["rows"], none["writers"], none["topics"]) == (0, 0, {})
    assert story.values("empty") == {"0": 2, "1": 2}


@pytest.mark.parametrize("door", ["sink", "source"])
def test_the_report_of_a_batch(story: Story, door: str) -> None:
    """It counts the rows of each topic, and Spark's observation sees as many."""
    case = story.case(f"columns_by_{door}")
    if door == "sink":
        reports = [case["report"]]
    else:
        assert case["observed"] == ROWS
        reports = [report for report in story.reports if f"columns-{door}" in report["topics"]]
    (report,) = reports
    assert {name: sums["delivered"] for name, sums in report["topics"].items()} == {
        f"columns-{door}": ROWS / 2,
        f"columns-{door}-b": ROWS / 2,
    }
    assert (report["rows"], report["tasks"], report["maybe_twice"]) == (ROWS, 3, 0)


def test_mistakes_are_refused_on_the_driver(story: Story) -> None:
    """Wrong columns, options and save modes: one sentence, the last line of Spark's error, and nothing is written."""
    case = story.case("refused")
    assert case["sink"].startswith("Configuration")
    assert "value" in case["sink"]
    assert case["source"].startswith("AnalysisException")
    assert "column 'value'" in case["source"].replace(" SQLSTATE: 38000", "").strip().splitlines()[-1]
    assert "kafka.linger.ms" in case["option"]
    assert "overwrite" in case["overwrite"]
    assert "ErrorIfExists" in case["default mode"]
    assert '"Append"' in case["default mode"]
    # Spark's words: it looks at the output mode before anything asks the data source, which would refuse an option.
    assert "requirement failed: safeproducer does not support Update mode." in case["update"]
    assert "lingerms" not in case["update"]
    assert "Call it on the driver: pass it to foreachBatch, or call write(df)" in case["captured"]
    assert story.records("refused") == []


@pytest.mark.parametrize(("case", "topic"), [("task_that_raises", "raises"), ("worker_killed", "killed")])
def test_a_repeated_task_writes_each_row_again_at_most(story: Story, case: str, topic: str) -> None:
    """Every row at least once; what is in the log beyond them is at most `maybe_twice`."""
    report = story.case(case)["report"]
    values = story.values(topic)
    assert set(values) == {f"{row}{'-' * 100}" for row in range(2 * TASK_ROWS)}
    beyond = values.total() - 2 * TASK_ROWS
    assert report["repeated_tasks"] >= 1
    most = report["maybe_twice"]
    if most is None:  # a worker was killed before it began
        assert case == "worker_killed"
        most = 2 * TASK_ROWS
    assert 0 < beyond <= most
    assert report["delivered"] == report["rows"] == 2 * TASK_ROWS
    assert most <= report["repeated_tasks"] * TASK_ROWS * 3


def test_a_key_keeps_its_order_within_an_attempt(story: Story) -> None:
    """Rows of a key stand as Spark gave them. What a failed attempt had under way may stand between those of the next.

    So a key has at most as many rising sequences as there were attempts: picked out of its rows, no longer sequence
    never rises.
    """
    for number in range(2):
        falling: dict[tuple[bytes | None, int], list[int]] = defaultdict(list)
        for partition, record in story.records("raises"):
            if partition == number:
                value = int((record.value or b"").rstrip(b"-"))
                longest = falling[record.key, value // TASK_ROWS]
                place = bisect_right(longest, -value)
                longest[place : place + 1] = [-value]
        assert falling
        assert max(map(len, falling.values())) <= ATTEMPTS


def test_a_bad_row_is_named(story: Story) -> None:
    """By Spark's partition and the row's number in it; the rows of the other task are delivered."""
    error = story.case("bad_row")["error"]
    assert f"row {BAD_ROW} of Spark partition 1 for topic bad-row" in error
    assert PAYLOAD not in error
    good = story.values("bad-row")
    assert {str(row) for row in range(5000)} <= set(good)


def test_many_micro_batches_take_an_id_for_each_worker(story: Story) -> None:
    """Each row once, reports equal to the log, and at most as many producer IDs as there are workers."""
    case = story.case("many_micro_batches")
    reports = case["reports"]
    assert [report["batch_id"] for report in reports] == list(range(BATCHES))
    assert {report["query_id"] for report in reports} == {case["query"]}
    values = story.values("many")
    assert len(values) == values.total() == BATCHES * 20
    assert sum(report["delivered"] for report in reports) == values.total()
    assert sum(report["maybe_twice"] for report in reports) == 0
    known = {state.producer_id for number in range(2) for state in story.kafka.admin.describe_producers("many", number)}
    assert 1 <= len(known) <= 2
    assert {known_id for report in reports for known_id in report["producer_ids"]} <= known
    assert reports[-1]["ids_per_hour"] == len(known)


def test_queries_one_after_another_take_an_id_for_each_worker(story: Story) -> None:
    """Each of them, as it has a producer of its own; the reports name the IDs."""
    for topic, reports in story.case("three_queries").items():
        if topic not in TOPICS:
            continue
        known = {
            state.producer_id for number in range(2) for state in story.kafka.admin.describe_producers(topic, number)
        }
        assert 1 <= len(known) <= 2
        assert {known_id for report in reports for known_id in report["producer_ids"]} == known
        assert reports[-1]["ids_per_hour"] == len(known)
        assert story.values(topic).total() == sum(report["delivered"] for report in reports) == 40


def test_a_query_of_the_data_source_goes_on_from_its_checkpoint(story: Story) -> None:
    """Each row once over both runs; the reports come from the process that commits, and Spark counts the same rows."""
    case = story.case("restarted_source")
    values = story.values("restarted")
    assert len(values) == values.total() == 7 * 50
    reports = [report for report in story.reports if "restarted" in report["topics"]]
    assert [report["batch_id"] for report in reports] == list(range(7))
    assert {report["query_id"] for report in reports} == {case["query"]}
    assert sum(report["delivered"] for report in reports) == values.total()
    notes = [line for line in story.done.stderr.splitlines() if "spark_note" in line and "'not_written'" in line]
    assert 1 <= len(notes) <= len(case["output"]), "told once by each start of the query"
    # By Spark: what its sink took of each micro-batch, and what observe() saw on the way.
    assert [[told for told in run if told[0]] for run in case["output"]] == [[[50, 50]] * 4, [[50, 50]] * 3]


def test_a_stopped_query_writes_one_micro_batch_again_at_most(story: Story) -> None:
    """Nothing is missing, and no more than the micro-batch that was under way is there twice."""
    case = story.case("stopped_and_started")
    values = story.values("stopped")
    assert set(values) == {f"stopped-{number}-{line}" for number in range(6) for line in range(3000)}
    twice = {value.rsplit("-", 1)[0] for value, count in values.items() if count > 1}
    assert len(twice) <= 1
    assert max(values.values()) <= 2
    assert case["before"] >= 2


def test_keys_go_where_sparks_own_sink_sends_them(story: Story) -> None:
    """The same key has the same partition, from the empty key to one of 40 bytes."""
    assert story.case("keys")["report"]["rows"] == 2 * story.keys
    found = []
    for count in (*FEWER_PARTITIONS, MOST_PARTITIONS):
        ours, sparks = (
            {record.value: (record.key, partition) for partition, record in story.records(f"keys-{door}-{count}")}
            for door in ("sink", "spark")
        )
        assert ours == sparks, count
        found.append(len(ours))
    assert (sum(found), found[-1]) == (2 * story.keys, story.keys)
    assert min(found) >= story.keys // len(FEWER_PARTITIONS)


def test_a_password_changes_while_a_query_runs(story: Story) -> None:
    """The broker forgets the old one, each connection is a new one, and neither micro-batch nor task fails."""
    case = story.case("password_changed")
    assert min(case["connections"][1:]) >= 1, "the workers were connected before"
    reports = case["reports"] + [report for report in story.reports if "rotated" in report["topics"]]
    assert [report["repeated_tasks"] for report in reports] == [0] * (ROTATED + 2)
    values = story.values("rotated")
    assert values.total() == sum(report["delivered"] for report in reports) == ROTATED * 50 + 200
    assert {values[f"rotated-{number}-{line}"] for number in range(ROTATED) for line in range(50)} == {1}
    assert {values[str(row)] for row in range(100)} == {2}


def test_no_producer_is_made_on_the_driver(story: Story) -> None:
    """Nor is anything loaded there that makes one: a driver may have neither the way nor the secrets."""
    modules = set(story.case("driver")["modules"])
    assert "safeproducer.spark.sink" in modules
    assert not modules & {"safeproducer.spark.task", "safeproducer.spark.worker_producers"}


@pytest.mark.parametrize(
    ("case", "topic", "times"), [("secured", "secured", 2), ("secured_as_it_is", "secured-as-it-is", 2)]
)
def test_both_doors_log_in(story: Story, case: str, topic: str, times: int) -> None:
    """With a login that only the workers read, and with one among the options; what they may not do fails."""
    values = story.values(topic)
    assert {value: values[value] for value in map(str, range(100))} == {str(row): times for row in range(100)}
    for error in story.case(case)["errors"]:
        assert "KafkaWriteError" in error or "TOPIC_AUTHORIZATION_FAILED" in error, error


def test_a_login_among_the_options_writes_streams_too(story: Story) -> None:
    """And one that cannot be read is refused without being quoted."""
    values = story.values("secured-as-it-is")
    assert {values[f"secured-{number}-{line}"] for number in range(2) for line in range(50)} == {2}
    for refusal in story.case("secured_as_it_is")["refused"]:
        assert "'kafka.sasl.jaas.config' = ***" in refusal


def test_no_login_and_no_row_is_shown(story: Story) -> None:
    """In no output, plan, event log or checkpoint, whether it stands at a place or among the options."""
    texts = {str(path): path.read_bytes() for path in story.scratch.rglob("*") if path.is_file()}
    assert any("events" in name and text for name, text in texts.items())
    assert [name for name, text in texts.items() if PASSWORD.encode() in text] == []
    row = f"{5000 + BAD_ROW}{PAYLOAD}".encode()  # of bad_row()
    forms = row, row.hex().encode(), row.hex().upper().encode()
    assert [name for name, text in texts.items() if any(form in text for form in forms)] == []
