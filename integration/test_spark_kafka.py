"""The Spark jobs of the examples on real Spark and real Kafka: rows, reports, failures, a start from the checkpoint.

The job from text files writes three micro-batches; in the last one a record is larger than the topic allows, which
fails the query. Then the topic allows it and the query is started again. The job from topic to topic runs until it is
stopped, and again with more to read.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from confluent_kafka import Producer

from integration.kafka.cluster import KafkaCluster
from integration.kafka.jars import CONNECTOR, classpath
from integration.kafka.log import read_records
from integration.kafka.poll import until
from integration.spark import Finished, run_script, spark_environment

EXAMPLES = Path(__file__).parent.parent / "examples"
TOPIC = "spark"
PARTITIONS = 4
GOOD_BATCHES = 2
FILES_PER_BATCH = 2
ROWS_PER_FILE = 6000
LAST_FILE_ROWS = 2000
PAYLOAD = "marker-of-a-payload"

pytestmark = pytest.mark.timeout(400)


@dataclass
class Story:
    """What happened, with the topic's content as values and how often each is there."""

    scratch: Path
    rows: dict[str, list[str]]
    first: Finished
    after_first: Counter[str]
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


def run(job: str, arguments: Sequence[str], scratch: Path, conf: dict[str, str] | None = None) -> Finished:
    """An example over what is there now."""
    scratch.mkdir(exist_ok=True)
    checkpoint = ("--checkpoint", str(scratch / "checkpoint"), "--available-now")
    return run_script(EXAMPLES / job, [*arguments, *checkpoint], scratch, conf=conf)


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
        *("--files-per-batch", str(FILES_PER_BATCH), "--option", "kafka.linger.ms=20"),
    ]
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{scratch}/events",
    }

    def again() -> tuple[Finished, Counter[str]]:
        done = run("spark_job.py", arguments, scratch, conf)
        records = [record for partition in read_records(kafka.direct_bootstrap, TOPIC) for record in partition]
        return done, Counter((record.value or b"").decode() for record in records)

    first, after_first = again()
    kafka.admin.set_topic_config(TOPIC, {"max.message.bytes": None})
    second, after_second = again()
    return Story(scratch, rows, first, after_first, second, after_second)


def test_every_row_is_in_kafka_exactly_once(story: Story) -> None:
    """Without a failed task every row of a micro-batch is in the topic once, and the reports counted them."""
    reports = story.first.tasks
    assert [report["batch_id"] for report in reports] == list(range(GOOD_BATCHES)), story.first.stderr
    assert sum(report["delivered"] for report in reports) == len(story.good) == len(set(story.good)) == 24_000
    assert {report["maybe_twice"] for report in reports} == {0}
    assert {value: story.after_first[value] for value in story.good} == dict.fromkeys(story.good, 1)


def test_a_row_too_large_fails_the_query_and_is_named(story: Story) -> None:
    """By Spark partition, number and size; nothing else of its micro-batch fails for it."""
    assert story.first.returncode == 1
    assert "the query failed" in story.first.stderr
    assert "KafkaWriteError" in story.first.stderr
    assert f"row {LAST_FILE_ROWS} of Spark partition " in story.first.stderr
    assert "(limit 100000)" in story.first.stderr


def test_failed_micro_batch_is_written_again(story: Story) -> None:
    """The query that was started again delivers every row of the failed micro-batch, and no row of the others again."""
    assert story.second.returncode == 0, story.second.stderr
    (report,) = story.second.tasks
    assert (report["batch_id"], report["delivered"]) == (GOOD_BATCHES, 2 * LAST_FILE_ROWS + 1)
    retried = [*story.rows["last"], *story.rows["large"]]
    assert {value: story.after_second[value] - story.after_first[value] for value in retried} == dict.fromkeys(
        retried, 1
    )
    assert {value: story.after_second[value] for value in story.good} == dict.fromkeys(story.good, 1)


def test_no_payload_leaves_the_worker(story: Story) -> None:
    """Neither output nor event log nor checkpoint shows a row of the failed task."""
    files = [path for path in story.scratch.rglob("*") if path.is_file()]
    assert any("events" in path.parts and path.stat().st_size for path in files)
    texts = {str(path): path.read_bytes() for path in files}
    for name, done in (("first run", story.first), ("second run", story.second)):
        texts[name] = (done.stdout + done.stderr).encode()
    assert [name for name, text in texts.items() if PAYLOAD.encode() in text] == []


# --- from topic to topic ---------------------------------------------------------------------------------------------


def produce_orders(kafka: KafkaCluster, numbers: range) -> None:
    """Orders of ten customers, and a line that is none."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in numbers:
        producer.produce("orders", json.dumps({"customer": f"c{number % 10}", "amount": number}), f"c{number % 10}")
    producer.produce("orders", "no order")
    assert producer.flush(30) == 0


def run_until(batches: int, arguments: Sequence[str], scratch: Path, conf: dict[str, str]) -> list[dict[str, Any]]:
    """The reports of the pipeline, which is stopped by a signal once Spark has noted so many micro-batches as done."""
    scratch.mkdir()
    output, checkpoint = scratch / "output", scratch / "checkpoint"
    command = [sys.executable, str(EXAMPLES / "spark_pipeline.py"), *arguments, "--checkpoint", str(checkpoint)]
    with output.open("w") as stdout, (scratch / "errors").open("w") as stderr:
        job = subprocess.Popen(
            [*command, "--trigger", "1 second"],
            cwd=scratch,
            env=spark_environment(scratch, conf=conf),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
        )
        tree = psutil.Process(job.pid)

        def written() -> bool:
            assert job.poll() is None, (scratch / "errors").read_text()
            return (checkpoint / "commits" / str(batches - 1)).exists()

        try:
            until(written, f"{batches} micro-batches are written", 120)
            children = tree.children(recursive=True)
            job.terminate()
            job.wait(60)
            _, alive = psutil.wait_procs(children, 60)
            assert alive == []
        finally:
            job.kill()
            job.wait()
    return [json.loads(line) for line in output.read_text().splitlines() if line.startswith("{")]


def test_the_pipeline_transforms_a_topic_and_goes_on_after_a_restart(kafka: KafkaCluster, tmp_path: Path) -> None:
    """Each order once with its tax, over both runs; each customer on one partition; a line of JSON a micro-batch."""
    for topic in ("orders", "taxed"):
        kafka.admin.create_topic(topic, 3)
    jars = {"spark.jars": ",".join(map(str, classpath(of=CONNECTOR)))}
    arguments = ["--bootstrap-servers", kafka.bootstrap, "--source", "orders", "--target", "taxed"]
    arguments += ["--records-per-batch", "600"]
    produce_orders(kafka, range(1000))
    reports = [run_until(2, arguments, tmp_path / "scratch", jars)]
    produce_orders(kafka, range(1000, 1500))
    done = run("spark_pipeline.py", arguments, tmp_path / "scratch", jars)
    assert done.returncode == 0, done.stderr
    reports.append(done.tasks)
    partitions = read_records(kafka.direct_bootstrap, "taxed")
    orders = [json.loads(record.value or b"") for records in partitions for record in records]
    assert sorted(order["amount"] for order in orders) == list(range(1500))
    assert all(order["tax"] == order["amount"] / 4 for order in orders)
    places = {(record.key, number) for number, records in enumerate(partitions) for record in records}
    assert len(places) == 10
    assert [sum(report["delivered"] for report in run) for run in reports] == [1000, 500]
    ids = [report["batch_id"] for run in reports for report in run]
    assert ids == list(range(len(ids)))
