"""Bugs that were feared, each planted: the test that is to find it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from unittest import mock

import pytest

from safeproducer.policy import partitioner
from safeproducer.spark import report
from safeproducer.spark.attempt import Attempt
from safeproducer.spark.errors import Failure, KafkaWriteError
from safeproducer.spark.failed_rows import FailedRows
from safeproducer.spark.row_checks import Found
from safeproducer.spark.totals import TaskTotals, TopicTotals
from safeproducer.spark.worker_producers import WorkerProducer, producers
from safeproducer.testing import FakeCluster
from tests.spark import test_bad_rows, test_engine, test_partitions, test_report, test_worker_producers
from tests.spark.conftest import MakeOptions

Find = Callable[[FakeCluster, MakeOptions], None]

_write, _found, _by_topic = Attempt.write, FailedRows.found, report._by_topic


def kept(self: Attempt, batches: Iterable[object]) -> Failure | None:
    with mock.patch.object(WorkerProducer, "end"):
        failure = _write(self, batches)  # type: ignore[arg-type]
    if failure is not None:
        producers.keep(self._worker, 60_000)
    return failure


def from_arrow_batch(self: FailedRows, rows: Iterable[Found], first_row: int) -> None:
    _found(self, rows, 0)


def with_failed_attempts(tasks: Iterable[TaskTotals]) -> dict[str, TopicTotals]:
    return _by_topic([task for task in tasks for _ in range(1 + task.attempt)])


def of_signed_bytes(key: bytes | None, count: int) -> int:
    signed = [byte - 256 if byte > 127 else byte for byte in key or b""]
    return (test_partitions.javas(signed) & 0x7FFFFFFF) % count  # type: ignore[arg-type]


def bad_row(cluster: FakeCluster, options: MakeOptions) -> None:
    test_bad_rows.test_a_bad_row_among_good_rows(*test_bad_rows.CAUSES[0], cluster, options)


PLANTS: dict[str, tuple[Callable[[], AbstractContextManager[object]], Find]] = {
    "flush left out": (
        lambda: mock.patch.object(Attempt, "_settle"),
        test_engine.test_all_rows_are_in_the_log_when_a_task_returns,
    ),
    "totals of a failed attempt added": (
        lambda: mock.patch.object(report, "_by_topic", with_failed_attempts),
        lambda *_: test_report.test_a_repeated_task_may_have_written_its_rows_once_for_each_failed_attempt(),
    ),
    "producer kept after an error": (
        lambda: mock.patch.object(Attempt, "write", kept),
        test_worker_producers.test_a_producer_is_dropped_after_an_error,
    ),
    "murmur2 of signed bytes": (
        lambda: mock.patch.dict(partitioner.PARTITIONERS, {"murmur2_random": of_signed_bytes}),
        lambda *_: test_partitions.test_a_hundred_thousand_keys_on_one_to_fifty_partitions(),
    ),
    "row number from the Arrow batch": (
        lambda: mock.patch.object(FailedRows, "found", from_arrow_batch),
        bad_row,
    ),
}


@pytest.mark.parametrize("bug", PLANTS)
def test_a_planted_bug_is_found(bug: str, cluster: FakeCluster, options: MakeOptions) -> None:
    """By the test that passes without it."""
    plant, find = PLANTS[bug]
    with plant(), pytest.raises((AssertionError, KafkaWriteError)):
        find(cluster, options)
