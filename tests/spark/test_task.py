"""The engine: all rows of a task are acknowledged when it returns, and its totals say so."""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from safeproducer import SafeProducer
from safeproducer.spark import task
from safeproducer.spark.errors import KafkaWriteError
from safeproducer.spark.report import SCHEMA, TaskTotals, TopicTotals
from safeproducer.spark.task import HandedOver, Task, write_task
from safeproducer.spark.worker_producers import WorkerProducer, producers
from safeproducer.testing import FakeCluster
from tests.spark.arrow import HEADERS, batch, numbers, rows
from tests.spark.conftest import MakeOptions, failure_of

TASK = Task(3, 1)


def test_all_rows_are_in_the_log_when_a_task_returns(cluster: FakeCluster, options: MakeOptions) -> None:
    """Also when the answers are late: without the flush, most of them were not there yet."""
    cluster.delay(0.3, api="Produce", side="request")
    totals = write_task([rows(0, 500), rows(500, 0), rows(500, 700)], options(), TASK)
    assert numbers(cluster) == list(range(1200))
    assert (totals.rows, totals.delivered) == (1200, 1200)


def test_the_totals_of_a_task(cluster: FakeCluster, options: MakeOptions) -> None:
    """Rows, bytes and what is delivered, by topic; who wrote; a second task reuses the producer and counts its own."""
    cluster.create_topic("other", 1)
    mixed = batch([b"1", None, b"333"], key=[b"k", b"k", None], topic=["rows", "other", "rows"])
    first = write_task([mixed, mixed], options(topic=None), TASK)
    assert first.topics == {"rows": TopicTotals(4, 4, 10), "other": TopicTotals(2, 2, 2)}
    assert (first.rows, first.delivered, first.bytes) == (6, 6, 12)
    assert (first.partition, first.attempt, first.host, first.process) == (3, 1, socket.gethostname(), os.getpid())
    assert (first.producer, first.client_errors, first.seconds_without_room) == ("new", 0, 0.0)
    second = write_task([mixed], options(topic=None), Task(0, 0))
    assert (second.producer, second.rows, second.delivered) == ("reused", 3, 3)
    assert second.topics == {"rows": TopicTotals(2, 2, 5), "other": TopicTotals(1, 1, 1)}


NULLS = {
    "headers": pa.nulls(3, HEADERS),
    "partition": pa.nulls(3, pa.int32()),
    "timestamp": pa.nulls(3, pa.timestamp("us", tz="UTC")),
}


@pytest.mark.parametrize("column", [{}, {"topic": ["rows"] * 3}, NULLS], ids=["option", "column", "nulls"])
def test_rows_of_one_topic_spare_a_call_for_each(
    cluster: FakeCluster, options: MakeOptions, monkeypatch: pytest.MonkeyPatch, column: dict[str, Any]
) -> None:
    """That call takes a quarter of the time. The topic may be that of the option or of all rows; other columns may
    hold nulls alone."""

    def called(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(SafeProducer, "produce", called)
    options_ = options(topic=None if "topic" in column else "rows")
    totals = write_task([batch([b"0-", b"1-", b"2-"], key=[b"k", None, b"k"], **column)], options_, TASK)
    assert numbers(cluster) == [0, 1, 2]
    assert (totals.delivered, totals.topics) == (3, {"rows": TopicTotals(3, 3, 8)})


def test_a_task_polls_within_an_arrow_batch(
    cluster: FakeCluster, options: MakeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the sender takes the reports, and holds records back: half of the speed near the brokers. And before
    one, as it may have waited for that."""
    poll, accepted = SafeProducer.poll, [0]

    def polled(producer: SafeProducer, *timeout: float) -> int:
        accepted.append(producer.snapshot().accepted)
        return poll(producer, *timeout)

    monkeypatch.setattr(SafeProducer, "poll", polled)
    assert write_task([rows(0, 9_000), rows(9_000, 500)], options(), TASK).delivered == 9_500
    assert numbers(cluster) == list(range(9_500))
    assert accepted.count(9_000) == 2
    assert max(later - earlier for earlier, later in itertools.pairwise(accepted)) <= 1_000


def test_a_task_without_rows_makes_no_producer(options: MakeOptions) -> None:
    """Not even with Arrow batches, which may be empty."""
    for batches in ([], [rows(0, 0)]):
        totals = write_task(batches, options(), TASK)
        assert (totals.producer, totals.rows, totals.topics) == ("none", 0, {})
    assert not producers._idle


def test_totals_tell_the_producer_ids(cluster: FakeCluster, options: MakeOptions) -> None:
    """Of all lanes of the producer; known half a second after they were taken at the latest."""
    deadline = time.monotonic() + 10
    while not (totals := write_task([rows(0, 10)], options(), TASK)).producer_ids and time.monotonic() < deadline:
        time.sleep(0.05)
    told = {number for partition in range(3) for number in cluster.producer_state("rows", partition)}
    assert told <= set(totals.producer_ids)
    assert totals.ids_used >= len(told) >= 1


def test_totals_do_not_grow_with_the_partitions_of_a_topic(cluster: FakeCluster, options: MakeOptions) -> None:
    """Each task sends them to the driver."""
    cluster.create_topic("many", 300)
    few, many = (write_task([rows(0, 2000)], options(topic), TASK) for topic in ("rows", "many"))
    assert sum(bool(cluster.log("many", partition)) for partition in range(300)) > 50
    times = {"seconds": 0.0, "seconds_without_room": 0.0, "throttled": {}}
    sizes = [replace(totals, producer_ids=(), **times).to_arrow().nbytes for totals in (few, many)]  # type: ignore[arg-type]
    assert sizes[0] == sizes[1]


def test_the_counts_of_a_task_are_those_of_the_snapshot_and_cost_no_row_for_each_partition(
    cluster: FakeCluster, options: MakeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A healthy task explains nothing: of ten thousand partitions both took most of its time."""
    asked: list[str] = []
    for name in ("snapshot", "explain"):
        real = getattr(SafeProducer, name)
        monkeypatch.setattr(SafeProducer, name, lambda *a, name=name, real=real: asked.append(name) or real(*a))
    cluster.create_topic("others", 5)
    sent = batch([b"%d-" % n for n in range(500)], topic=["rows", "others"] * 250)
    totals = write_task([sent, batch([b"x"], topic=["rows"])], options(None), TASK)
    assert asked == []
    (worker,) = producers._idle.values()
    counts, account = worker.counts(), worker.kafka.snapshot()
    assert (counts.delivered, counts.unresolved, counts.interrupted) == (501, 0, 0)
    assert (counts.ids_used, counts.known_ids) == (account.producer_ids, frozenset(account.known_producer_ids))
    by_topic = Counter({"rows": 251, "others": 250})
    assert counts.by_topic == by_topic
    assert {name: sums.delivered for name, sums in totals.topics.items()} == by_topic
    assert account.delivered == 501


def test_totals_travel_as_a_row(options: MakeOptions) -> None:
    """As Arrow, in the column that Spark is told of, and back."""
    totals = TaskTotals(
        1,
        2,
        producer="new",
        producer_ids=(7, 9),
        ids_used=2,
        rows=3,
        delivered=3,
        bytes=4,
        topics={"a": TopicTotals(3, 3, 4)},
        seconds=0.5,
        throttled={2: 0.25},
    )
    told = totals.to_arrow()
    assert TaskTotals.from_row(told.to_pylist()[0]) == totals
    assert f"{told.schema.names[0]} {told.schema.types[0]}" == SCHEMA


def test_throttle_times_are_told_by_broker(cluster: FakeCluster, options: MakeOptions) -> None:
    cluster.set_throttle(40)
    totals = write_task([rows(0, 10)], options(), TASK)
    assert totals.delivered == 10
    assert set(totals.throttled) <= {1, 2}
    assert min(totals.throttled.values()) >= 0.04


def test_client_errors_that_were_survived_are_counted(
    cluster: FakeCluster, options: MakeOptions, begun: list[WorkerProducer]
) -> None:
    """Brokers that stop and come back fail no task; the errors are those of this task alone."""

    def survived(_: FakeCluster) -> bool:
        begun[0].kafka.poll(0.02)
        return begun[0].client_errors > 0

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(0, 200)
        for broker in cluster.brokers:
            cluster.stop(broker)
        cluster.wait(survived)
        for broker in cluster.brokers:
            cluster.start(broker)
        yield rows(200, 200)

    totals = write_task(batches(), options(), TASK)
    assert (totals.delivered, totals.client_errors > 0) == (400, True)
    assert write_task([rows(400, 100)], options(), TASK).client_errors == 0
    assert numbers(cluster) == list(range(500))


def test_a_full_buffer_is_waited_for_and_its_time_told(cluster: FakeCluster, options: MakeOptions) -> None:
    """With room for a few records only, a task goes on as room comes."""
    cluster.delay(0.05, api="Produce", side="request")
    made = options()
    made.config["queue.buffering.max.messages"] = "100"
    totals = write_task([rows(0, 1000)], made, TASK)
    assert totals.delivered == 1000
    assert 0 < totals.seconds_without_room < totals.seconds
    assert numbers(cluster) == list(range(1000))


def test_a_row_without_room_for_too_long_ends_its_task(cluster: FakeCluster, options: MakeOptions) -> None:
    """Java's max.block.ms: long before the deadline, and only when it is set."""
    cluster.delay(3, api="Produce", side="request")
    made = options(kafka_max_block_ms="200")
    made.config["queue.buffering.max.messages"] = "100"
    failure = failure_of([rows(0, 1000)], made, TASK)
    assert (failure.delivered, failure.not_written + failure.unknown) == (0, 1000)
    assert 0 < failure.unknown <= 100
    assert failure.reason.startswith("a row found no room within 0.2 s (kafka.max.block.ms, safeproducer.max.block.ms)")


def test_an_exception_of_the_rows_goes_on_and_ends_the_producer(cluster: FakeCluster, options: MakeOptions) -> None:
    """A task that fails upstream leaves nothing that would be sent in the middle of the next attempt."""

    def broken() -> object:
        yield rows(0, 10)
        raise LookupError("upstream")

    with pytest.raises(LookupError, match="upstream"):
        write_task(broken(), options(), TASK)  # type: ignore[arg-type]
    assert not producers._idle
    assert write_task([rows(0, 10)], options(), TASK).producer == "new"


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where an executor has Spark's blocks."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    return tmp_path


def attempted(number: int, *batches: pa.RecordBatch) -> HandedOver:
    """An attempt that was given these batches and has not ended."""
    handed_over = HandedOver(replace(TASK, attempt=number, run="a-run"))
    for each in batches:
        handed_over.note(each)
    return handed_over


def test_what_failed_attempts_were_given_is_known_in_their_executor(executor: Path) -> None:
    attempted(0, rows(0, 4000), rows(0, 100))
    attempted(1)
    attempted(2, rows(0, 7))
    assert attempted(3, rows(0, 100)).before() == 4107


def test_a_query_has_as_many_files_as_attempts_of_its_tasks(executor: Path) -> None:
    """However many micro-batches it writes; and what one of them noted is not counted in the next."""
    for run in ("first", "second"):
        for number in range(2):
            handed_over = HandedOver(replace(TASK, attempt=number, query_id="query", run=run))
            handed_over.note(rows(0, 5))
    assert handed_over.before() == 5


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_what_is_no_query_leaves_no_file_for_each_write(executor: Path) -> None:
    """Nor do attempts of an earlier run, once the first one of a later run begins; another run's number counts not."""
    for run in range(50):
        for number in range(3 if run == 7 else 1):
            HandedOver(replace(TASK, attempt=number, run=f"run-{run}")).note(rows(0, 5))
        assert len(names(executor)) == (3 if run == 7 else 1)
    assert HandedOver(replace(TASK, attempt=1, run="another")).before() is None


def test_small_batches_are_not_noted_each(executor: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file promises no fewer rows than were given at any time, and at the end of an attempt as many."""
    now, written = [1000.0], []
    monkeypatch.setattr(task.clock, "monotonic", lambda: now[0])
    real = Path.write_bytes
    monkeypatch.setattr(Path, "write_bytes", lambda file, text: written.append(int(text[5:])) or real(file, text))
    attempt, one = attempted(0), rows(0, 1)
    for given in range(1, 10_001):
        attempt.note(one)
        assert given <= written[-1] <= 2 * given, "a killed process leaves what was written last"
    assert len(written) < 25
    now[0] += 1.0
    attempt.note(one)
    assert attempted(1).before() == written[-2] >= 10_001
    attempt.end()
    assert attempted(1).before() == 10_001


def test_a_process_that_is_killed_while_it_notes_leaves_the_earlier_number(
    executor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the report could not tell how many rows may be twice."""

    def killed(file: Path, _: bytes) -> None:
        file.open("wb").close()
        raise KeyboardInterrupt

    attempt = attempted(0, rows(0, 5))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", killed)
        with pytest.raises(KeyboardInterrupt):
            attempt.note(rows(0, 5))
    assert attempted(1).before() == 5


def test_what_attempts_elsewhere_were_given_is_not_known(executor: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one of three, and where Spark names no folder or one that cannot be written."""
    attempted(1, rows(0, 10))
    assert attempted(2, rows(0, 10)).before() is None
    for folder in ("", str(executor / "missing")):
        monkeypatch.setenv("SPARK_LOCAL_DIRS", folder)
        assert attempted(1, rows(0, 10)).before() is None


def test_the_rows_of_a_failed_attempt_are_in_the_totals_of_the_next(
    executor: Path, cluster: FakeCluster, options: MakeOptions
) -> None:
    """Also when it was given more than the one that succeeds; Arrow batches that were read, whatever became of them."""
    first, second = (replace(TASK, attempt=number, run="a-run") for number in range(2))
    with pytest.raises(KafkaWriteError):
        write_task([rows(0, 300), batch([b"x" * 2_000_000])], options(), first)
    assert write_task([rows(0, 100)], options(), second).rows_before == 301
    assert write_task([rows(0, 100)], options(), replace(first, partition=1)).rows_before == 0
