"""What is told of a query's micro-batches, and how often."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from structlog.testing import capture_logs

from safeproducer.runtime import clock
from safeproducer.spark.options import BadRows, Options
from safeproducer.spark.query_account import IDLE_LIMIT, QueryAccount, tell_once
from safeproducer.spark.report import TaskTotals, TopicTotals

OPTIONS = Options("t", {})


def tasks(*ids: int) -> list[TaskTotals]:
    return [
        TaskTotals(number, 0, "host", known, "new", (known,), 1, 1, 1, 3, {f"topic-{number}": TopicTotals(1, 1, 3)})
        for number, known in enumerate(ids)
    ]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    times = [1000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: times[0])
    return times


def events(logs: list[Any], name: str) -> list[dict[str, Any]]:
    return [dict(entry) for entry in logs if entry["event"] == name]


def test_each_micro_batch_is_one_event_of_numbers() -> None:
    """However many topics, brokers and IDs there are, the event has as many fields."""
    with capture_logs() as logs:
        QueryAccount().settle(tasks(*range(100)), 3, "query", OPTIONS)
    (event,) = events(logs, "spark_batch_written")
    assert (event["batch_id"], event["query_id"], event["rows"], event["topics"]) == (3, "query", 100, 100)
    assert (event["producer_ids"], event["ids_per_hour"], event["log_level"]) == (100, 100, "info")
    assert event.pop("bad_rows") == event.pop("slots") == {}  # causes are few, and so are ends of slots
    assert all(isinstance(value, int | float | str) for value in event.values())


def test_a_micro_batch_with_more_bad_rows_than_allowed_is_told_and_fails() -> None:
    """Each task may have had few enough."""
    found = [TaskTotals(number, 0, rows=50, delivered=49, bad_rows={"null_topic": 1}) for number in range(2)]
    with capture_logs() as logs:
        QueryAccount().settle(found, 3, "query", Options("t", {}, bad_rows=BadRows("skip", None, 2)))
        with pytest.raises(RuntimeError, match=r"^2 of 2 rows are bad, and .*bad\.rows\.max allows 1: 2 x null_topic$"):
            QueryAccount().settle(found, 3, "query", Options("t", {}, bad_rows=BadRows("skip", None, 1)))
    assert [event["bad_rows"] for event in events(logs, "spark_batch_written")] == [{"null_topic": 2}] * 2


def test_long_pauses_are_told_once_with_the_cure(now: list[float]) -> None:
    """Spark ends workers that are idle for a minute, and with them their producers."""
    account = QueryAccount()
    with capture_logs() as logs:
        for known in range(3):
            account.settle(tasks(known), known, "query", OPTIONS)
            now[0] += IDLE_LIMIT + 1
    (note,) = events(logs, "spark_note")
    assert "safeproducer.spark.max.writers" in note["note"]
    assert "trigger interval below a minute" in note["note"]


def test_short_pauses_and_empty_micro_batches_are_not_told(now: list[float]) -> None:
    """Neither a query in time nor one that had nothing to write."""
    account = QueryAccount()
    with capture_logs() as logs:
        account.settle(tasks(1), 0, "query", OPTIONS)
        now[0] += IDLE_LIMIT - 1
        account.settle(tasks(1), 1, "query", OPTIONS)
        now[0] += 10 * IDLE_LIMIT
        account.settle([], 2, "query", OPTIONS)
    assert events(logs, "spark_note") == []


def test_batch_writes_are_no_query(now: list[float]) -> None:
    """Nothing is wrong with two writes of a job that are far apart."""
    account = QueryAccount()
    with capture_logs() as logs:
        for known in range(2):
            account.settle(tasks(known), None, None, OPTIONS)
            now[0] += IDLE_LIMIT + 1
    assert events(logs, "spark_note") == []


def test_an_account_can_be_pickled() -> None:
    """As Spark Connect does with the sink; what was told stays told."""
    account = QueryAccount()
    with capture_logs() as logs:
        tell_once(account.told, ["a", "b", "a"])
        tell_once(pickle.loads(pickle.dumps(account)).told, ["a", "c"])  # noqa: S301 - our own bytes
    assert [event["note"] for event in events(logs, "spark_note")] == ["a", "b", "c"]
