"""The totals of tasks, added up: what a micro-batch's report says."""

from __future__ import annotations

import json
from typing import Any

from safeproducer.spark.report import BatchReport, IdRate, TaskTotals, TopicTotals


def task(partition: int, rows: int = 10, *, topic: str = "orders", **fields: Any) -> TaskTotals:
    return TaskTotals(
        partition,
        fields.pop("attempt", 0),
        **{
            "host": "a",
            "process": partition,
            "producer": "new",
            "producer_ids": (100 + partition,),
            "ids_used": 1,
            "rows": rows,
            "delivered": rows,
            "bytes": rows * 5,
            "topics": {topic: TopicTotals(rows, rows, rows * 5)},
            "seconds": 1.5,
            **fields,
        },
    )


def report(*tasks: TaskTotals, rate: IdRate | None = None) -> BatchReport:
    return BatchReport.of(tasks, 7, "query", rate or IdRate(), 0.0)


def test_sums_are_over_all_tasks_and_by_topic() -> None:
    """Rows, bytes and times add up; a topic that several tasks wrote to is one entry."""
    found = report(task(0, 10), task(1, 20), task(2, 5, topic="audit", seconds_without_room=0.5, client_errors=2))
    assert found.topics == {"orders": TopicTotals(30, 30, 150), "audit": TopicTotals(5, 5, 25)}
    assert (found.rows, found.delivered, found.bytes) == (35, 35, 175)
    assert (found.tasks, found.writers, found.seconds) == (3, 3, 4.5)
    assert (found.seconds_without_room, found.client_errors) == (0.5, 2)
    assert (found.batch_id, found.query_id) == (7, "query")


def test_throttle_times_are_added_by_broker() -> None:
    """Each writer is throttled for itself."""
    assert report(task(0, throttled={1: 0.5, 2: 1.0}), task(1, throttled={1: 0.25})).throttled == {1: 0.75, 2: 1.0}


def test_a_repeated_task_may_have_written_what_its_failed_attempts_were_given() -> None:
    """They may have read other rows than the last one."""
    found = report(task(0, 10), task(1, 20, attempt=1, rows_before=5), task(2, 30, attempt=2, rows_before=100))
    assert (found.repeated_tasks, found.maybe_twice) == (2, 105)
    assert found.rows == 60  # nothing of the failed attempts


def test_what_is_not_known_is_no_number() -> None:
    """Of a failed attempt in an executor that is gone, of copies of tasks, and of retries that may write twice."""
    found = report(task(0, 10), task(1, 20, attempt=1, rows_before=5), task(2, 30, attempt=1, rows_before=None))
    assert (found.repeated_tasks, found.maybe_twice) == (2, None)
    assert BatchReport.of([task(0)], 7, "query", IdRate(), 0.0, copies_known=False).maybe_twice is None
    assert json.loads(json.dumps(found.as_dict()))["maybe_twice"] is None


def test_two_tasks_of_one_worker_are_one_writer_with_one_producer() -> None:
    """Its IDs count once, and a task without rows is no writer."""
    first = task(0, process=9, producer_ids=(), ids_used=1)
    second = task(1, process=9, producer="reused", producer_ids=(100, 101), ids_used=2)
    found = report(first, second, TaskTotals(2, 0, "a", 10))
    assert (found.tasks, found.writers, found.ids_used, found.ids_per_hour) == (3, 1, 2, 2)
    assert found.producer_ids == (100, 101)


def test_ids_an_hour_go_on_over_micro_batches() -> None:
    """What was counted once is not counted again; an ID that is not known yet is."""
    rate = IdRate()
    report(task(0), rate=rate)
    assert report(task(0, producer="reused"), rate=rate).ids_per_hour == 1
    assert report(task(1, producer_ids=()), rate=rate).ids_per_hour == 2


def test_a_report_goes_into_json() -> None:
    text = json.dumps(report(task(0, throttled={1: 0.5})).as_dict())
    assert json.loads(text)["rows"] == 10
    assert json.loads(text)["topics"] == {"orders": {"rows": 10, "delivered": 10, "bytes": 50}}


def test_an_empty_micro_batch_has_a_report() -> None:
    """Spark runs no task at all for it."""
    found = report()
    assert (found.tasks, found.rows, found.writers, found.ids_per_hour, found.maybe_twice) == (0, 0, 0, 0, 0)
