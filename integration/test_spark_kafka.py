"""The Spark job of the examples on real Spark and real Kafka: rows, producer IDs, failures, secrets.

One query runs over six micro-batches. The first five are written without trouble; in the sixth one record is larger
than the topic allows, which fails the query. Then the topic allows it and the query is started again.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration.kafka.cluster import KafkaCluster
from integration.kafka.log import read_records
from integration.spark import Finished, run_script

JOB = Path(__file__).parent.parent / "examples" / "spark_job.py"
TOPIC = "spark"
PARTITIONS = 4
GOOD_BATCHES = 5
FILES_PER_BATCH = 2
ROWS_PER_FILE = 6000
LAST_FILE_ROWS = 2000
PASSWORD = "marker-of-a-password"
PAYLOAD = "marker-of-a-payload"

pytestmark = pytest.mark.timeout(400)


@dataclass
class Story:
    """What happened, with the topic's content as values and how often each is there."""

    scratch: Path
    rows: dict[str, list[str]]
    first: Finished
    after_first: Counter[str]
    producer_ids: list[set[int]]
    batch_ids: list[set[int]]
    second: Finished
    after_second: Counter[str]

    @property
    def good(self) -> list[str]:
        return [value for name, values in self.rows.items() if name.startswith("good") for value in values]


def make_files(folder: Path) -> dict[str, list[str]]:
    """Files with distinct lines, oldest first as Spark takes them; the values of each by name."""
    rows = {
        f"good-{number}": [f"good-{number}-{row}-{'x' * 80}" for row in range(ROWS_PER_FILE)]
        for number in range(GOOD_BATCHES * FILES_PER_BATCH)
    }
    rows["last"] = [f"last-{row}-{PAYLOAD}" for row in range(LAST_FILE_ROWS)]
    rows["large"] = [f"large-{row}-{PAYLOAD}" for row in range(LAST_FILE_ROWS)] + [PAYLOAD * 10_000]
    folder.mkdir()
    for age, (name, values) in enumerate(rows.items()):
        path = folder / f"{name}.txt"
        path.write_text("".join(f"key-{row % 997}\t{value}\n" for row, value in enumerate(values)))
        os.utime(path, (1_000_000_000 + age, 1_000_000_000 + age))
    return rows


@pytest.fixture(scope="module")
def story(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Both runs of the query, made once for all tests of this module."""
    folder = tmp_path_factory.mktemp("spark-job")
    scratch = folder / "scratch"
    (scratch / "events").mkdir(parents=True)
    rows = make_files(folder / "input")
    kafka.admin.create_topic(TOPIC, PARTITIONS, configs={"max.message.bytes": "100000"})
    arguments = [
        *("--bootstrap-servers", kafka.bootstrap, "--topic", TOPIC, "--input", str(folder / "input")),
        *("--checkpoint", str(scratch / "checkpoint"), "--files-per-batch", str(FILES_PER_BATCH), "--available-now"),
        # Batches below the topic's limit, so that the broker refuses the one large record and no neighbour.
        # With a long linger the answers of a busy machine's broker do not look as if they had come a long way: that
        # would make a lane more, with a producer ID of its own.
        *("--set", "batch.size=50000", "--set", "linger.ms=100", "--secret", "sasl.password=env:MARKER_PASSWORD"),
    ]
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{scratch}/events",
    }

    def run() -> tuple[Finished, Counter[str]]:
        done = run_script(JOB, arguments, scratch, conf=conf, environment={"MARKER_PASSWORD": PASSWORD})
        records = [record for partition in read_records(kafka.direct_bootstrap, TOPIC) for record in partition]
        return done, Counter((record.value or b"").decode() for record in records)

    first, after_first = run()
    producer_ids = [
        {state.producer_id for state in kafka.admin.describe_producers(TOPIC, number)} for number in range(PARTITIONS)
    ]
    batch_ids = [{batch.producer_id for batch in kafka.read_batches(TOPIC, number)} for number in range(PARTITIONS)]
    kafka.admin.set_topic_config(TOPIC, {"max.message.bytes": None})
    second, after_second = run()
    return Story(scratch, rows, first, after_first, producer_ids, batch_ids, second, after_second)


def test_every_row_is_in_kafka_exactly_once(story: Story) -> None:
    """Without a failed task every row of five micro-batches is in the topic once, and the tasks counted them."""
    tasks = [task for task in story.first.tasks if task["batch"] < GOOD_BATCHES]
    assert {task["batch"] for task in tasks} == set(range(GOOD_BATCHES)), story.first.stderr
    assert sum(task["rows"] for task in tasks) == len(story.good) == len(set(story.good)) >= 50_000
    assert {value: story.after_first[value] for value in story.good} == dict.fromkeys(story.good, 1)


def test_one_producer_id_per_python_worker(story: Story) -> None:
    """Each Python worker process makes one producer and keeps it: the broker knows one producer ID for each."""
    tasks = story.first.tasks
    workers = {task["os_pid"] for task in tasks}
    assert 1 <= len(workers) <= 2
    assert [task["os_pid"] for task in tasks if task["producer"] == "new"] == list(
        dict.fromkeys(t["os_pid"] for t in tasks)
    )
    assert {task["producer"] for task in tasks if task["batch"] > 0} == {"reused"}
    known = set().union(*story.producer_ids)
    assert len(known) == len(workers)
    assert set().union(*story.batch_ids) == known
    told = {(task["os_pid"], task["producer_id"]) for task in tasks if task["producer_id"] is not None}
    assert {producer_id for _, producer_id in told} == known
    assert len(told) == len(workers)


def test_failing_task_fails_the_query_with_counts(story: Story) -> None:
    """A record that the broker refuses fails its task and the query; the message counts truly, by error code."""
    assert story.first.returncode == 1
    assert "the query failed" in story.first.stderr
    message = re.search(r"(\d+) accepted, (\d+) delivered, (\d+) unresolved; errors: (.*?)\. ", story.first.stderr)
    assert message, story.first.stderr
    accepted, delivered, unresolved = (int(message[number]) for number in (1, 2, 3))
    assert re.fullmatch(r"\d+ x MSG_SIZE_TOO_LARGE", message[4])
    assert unresolved == 0
    assert delivered < accepted == LAST_FILE_ROWS + 1
    assert sum(story.after_first[value] for value in story.rows["large"]) == delivered


def test_failed_micro_batch_is_written_again(story: Story) -> None:
    """The query that was started again delivers every row of the failed micro-batch, and no row of the others again."""
    assert story.second.returncode == 0, story.second.stderr
    assert sum(task["rows"] for task in story.second.tasks) == 2 * LAST_FILE_ROWS + 1
    retried = [*story.rows["last"], *story.rows["large"]]
    assert {value: story.after_second[value] - story.after_first[value] for value in retried} == dict.fromkeys(
        retried, 1
    )
    assert {value: story.after_second[value] for value in story.good} == dict.fromkeys(story.good, 1)


def test_no_secret_and_no_payload_leaves_the_worker(story: Story) -> None:
    """Neither output nor event log nor checkpoint shows the password or a row of the failed task."""
    assert "KafkaWriteError" in story.first.stderr
    files = [path for path in story.scratch.rglob("*") if path.is_file()]
    assert any("events" in path.parts and path.stat().st_size for path in files)
    texts = {str(path): path.read_bytes() for path in files}
    for name, done in (("first run", story.first), ("second run", story.second)):
        texts[name] = (done.stdout + done.stderr).encode()
    for marker in (PASSWORD, PAYLOAD):
        assert [name for name, text in texts.items() if marker.encode() in text] == []
