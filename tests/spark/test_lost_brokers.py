"""Brokers and topics that go away in the middle of a task, or between two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient

from safeproducer.runtime import clock
from safeproducer.spark import attempt, pace, topic_limits
from safeproducer.spark.errors import KafkaWriteError
from safeproducer.spark.task import Task, write_task
from safeproducer.spark.worker_producers import WorkerProducer, producers
from safeproducer.testing import FakeCluster
from tests.spark.arrow import numbers, rows
from tests.spark.conftest import MakeOptions, failure_of

TASK = Task(0, 0)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rules, ten times as fast."""
    monkeypatch.setattr(pace, "ASK_AFTER", 1.0)
    monkeypatch.setattr(pace, "UNREACHABLE_AFTER", 2.0)
    monkeypatch.setattr(attempt, "_ANSWER", 0.3)
    monkeypatch.setattr(topic_limits, "APPEARS_WITHIN", 0.5)


def with_a_break(happens: object, more: int = 100) -> Iterator[pa.RecordBatch]:
    yield rows(0, 100)
    happens()  # type: ignore[operator]
    yield rows(100, more)


@pytest.mark.parametrize("way", ["stop", "pause"])
def test_brokers_that_go_away_end_the_task(
    way: str, cluster: FakeCluster, options: MakeOptions, begun: list[WorkerProducer]
) -> None:
    """Long before the deadline, whether they refuse connections or only say nothing; the counts are true."""

    def gone() -> None:
        assert begun[0].kafka.flush(10) == 0
        for broker in cluster.brokers:
            getattr(cluster, way)(broker)

    try:
        failure = failure_of(with_a_break(gone), options(safeproducer_spark_deadline=60), TASK, "no broker of")
    finally:
        for broker in cluster.brokers:
            (cluster.start if way == "stop" else cluster.resume)(broker)
    assert failure.codes == {"unreachable": 100}
    assert failure.host in str(failure.reason)
    assert (failure.rows, failure.delivered) == (200, 100)
    assert failure.not_written + failure.unknown == 100
    assert not producers._idle
    assert write_task([rows(100, 100)], options(), TASK).delivered == 100
    assert set(numbers(cluster)) == set(range(200))


def test_room_that_comes_without_any_report_is_no_progress(
    cluster: FakeCluster, options: MakeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that wait for room one after the other wait together: a task without brokers ends in time."""
    rooms = [clock.monotonic()]

    def now_and_then(_: attempt.Attempt, *record: Any) -> BufferError | None:
        if clock.monotonic() - rooms[-1] < pace.UNREACHABLE_AFTER / 2:
            return BufferError("full")
        rooms.append(clock.monotonic())
        return None

    def gone() -> None:
        for broker in cluster.brokers:
            cluster.stop(broker)
        monkeypatch.setattr(attempt.Attempt, "_refusal", now_and_then)

    made = options()
    made.config["queue.buffering.max.messages"] = "100"
    try:
        with pytest.raises(KafkaWriteError, match="no broker of"):
            write_task(with_a_break(gone, 200), made, TASK)
    finally:
        for broker in cluster.brokers:
            cluster.start(broker)
    assert len(rooms) <= 5


def test_a_topic_that_was_deleted_ends_the_task_with_its_name(cluster: FakeCluster, options: MakeOptions) -> None:
    """Between two tasks of the same producer, which knows it still."""
    write_task([rows(0, 100)], options(), TASK)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for done in admin.delete_topics(["rows"]).values():
        done.result(10)
    failure = failure_of([rows(100, 100)], options(), TASK)
    assert (failure.rows, failure.delivered) == (100, 0)
    assert "topic 'rows' cannot be used" in str(failure.reason)
    assert failure.codes == {"UNKNOWN_TOPIC_OR_PART": 100}
    assert not producers._idle


def test_a_leader_that_moves_and_a_broker_that_restarts_fail_no_task(
    cluster: FakeCluster, options: MakeOptions
) -> None:
    def trouble() -> None:
        cluster.move_leader("rows", 0)
        cluster.cut()

    assert write_task(with_a_break(trouble), options(), TASK).delivered == 200
    assert numbers(cluster) == list(range(200))
