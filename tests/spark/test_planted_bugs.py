"""Bugs that were feared, each planted: the test that is to find it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import numpy as np
import pytest

from safeproducer.pipeline.buffer.partition_buffer import PartitionBuffer
from safeproducer.pipeline.dispatch.intake import Intake
from safeproducer.pipeline.record import DeliveryCallback, HeldRecord
from safeproducer.policy import partitioner
from safeproducer.spark import report, rows
from safeproducer.spark.attempt import Attempt
from safeproducer.spark.bad_rows import FailedRows
from safeproducer.spark.errors import Failure, KafkaWriteError
from safeproducer.spark.report import TaskTotals, TopicTotals
from safeproducer.spark.row_check import Found
from safeproducer.spark.worker_producers import WorkerProducer, producers
from safeproducer.testing import FakeCluster
from tests.pipeline import test_bulk
from tests.spark import (
    test_bad_rows,
    test_blocks,
    test_partitions,
    test_report,
    test_rows,
    test_task,
    test_worker_producers,
)
from tests.spark.conftest import MakeOptions

Find = Callable[[FakeCluster, MakeOptions], None]

_write, _found, _by_topic = Attempt.write, FailedRows.found, report._by_topic
_extend, _halves = Intake._extend, rows.halves


def kept(self: Attempt, batches: Iterable[object]) -> TaskTotals | Failure:
    with mock.patch.object(WorkerProducer, "end"):
        written = _write(self, batches)  # type: ignore[arg-type]
    if isinstance(written, Failure):
        producers.keep(self._worker, 60_000)
    return written


def from_arrow_batch(self: FailedRows, rows: Iterable[Found], first_row: int) -> None:
    _found(self, rows, 0)


def with_failed_attempts(tasks: Iterable[TaskTotals]) -> dict[str, TopicTotals]:
    return _by_topic([task for task in tasks for _ in range(1 + task.attempt)])


def of_signed_bytes(key: bytes | None, count: int) -> int:
    signed = [byte - 256 if byte > 127 else byte for byte in key or b""]
    return (test_partitions.javas(signed) & 0x7FFFFFFF) % count  # type: ignore[arg-type]


def of_signed_octets(octets: Any, starts: Any, lengths: Any) -> Any:
    keys = (octets[start : start + length].tolist() for start, length in zip(starts, lengths, strict=True))
    signed = ([octet - 256 if octet > 127 else octet for octet in key] for key in keys)
    return np.array([test_partitions.javas(key) & 0x7FFFFFFF for key in signed], np.uint32)


def bad_row(cluster: FakeCluster, options: MakeOptions) -> None:
    test_bad_rows.test_a_bad_row_among_good_rows(*test_bad_rows.CAUSES[0], cluster, options)


class Unstable:
    """numpy, as rows.py knows it, whose sort turns equal elements round."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def argsort(self, array: Any, **_: object) -> Any:
        return len(array) - 1 - np.argsort(array[::-1], kind="stable")


def record_by_record(
    self: Intake, buffer: PartitionBuffer, records: list[HeldRecord], report: DeliveryCallback, size: int
) -> None:
    for record in records:
        _extend(self, buffer, [record], report, size // len(records))


def blocks_in_two_steps(cluster: FakeCluster, _: MakeOptions) -> None:
    cluster.create_topic("stopped", 3)
    test_bulk.test_a_handler_that_raises_anywhere_in_a_block_leaves_a_right_account(cluster)


def an_interrupted_row(cluster: FakeCluster, _: MakeOptions) -> None:
    with pytest.MonkeyPatch.context() as patch:
        test_rows.test_an_exception_of_a_signal_handler_is_no_refusal_of_a_row("partition", cluster, patch)


def rows_without_room(cluster: FakeCluster, options: MakeOptions) -> None:
    test_rows.test_rows_find_room_in_their_order("both", cluster, options)


PLANTS: dict[str, tuple[Callable[[], AbstractContextManager[object]], Find]] = {
    "flush left out": (
        lambda: mock.patch.object(Attempt, "_settle"),
        test_task.test_all_rows_are_in_the_log_when_a_task_returns,
    ),
    "totals of a failed attempt added": (
        lambda: mock.patch.object(report, "_by_topic", with_failed_attempts),
        lambda *_: test_report.test_a_repeated_task_may_have_written_what_its_failed_attempts_were_given(),
    ),
    "producer kept after an error": (
        lambda: mock.patch.object(Attempt, "write", kept),
        test_worker_producers.test_a_producer_is_dropped_after_an_error,
    ),
    "murmur2 of signed bytes": (
        lambda: mock.patch.dict(partitioner.PARTITIONERS, {"murmur2_random": of_signed_bytes}),
        lambda *_: test_partitions.test_a_hundred_thousand_keys_on_one_to_fifty_partitions(),
    ),
    "murmur2 of signed bytes in a column": (
        lambda: mock.patch.object(rows, "_hashes", of_signed_octets),
        lambda *given: test_partitions.test_rows_are_on_javas_partitions("held", *given),
    ),
    "row number from the Arrow batch": (
        lambda: mock.patch.object(FailedRows, "found", from_arrow_batch),
        bad_row,
    ),
    "unstable order of rows": (
        lambda: mock.patch.object(rows, "np", Unstable()),
        lambda *_: test_blocks.test_each_row_is_in_one_block("murmur2_random"),
    ),
    "halves of a block in turn": (
        lambda: mock.patch.object(rows, "halves", lambda block: reversed(list(_halves(block)))),
        rows_without_room,
    ),
    "a block accepted in two steps": (
        lambda: mock.patch.object(Intake, "_extend", record_by_record),
        blocks_in_two_steps,
    ),
    "what a signal handler raised sent again": (
        lambda: mock.patch.object(rows, "NOT_ACCEPTED", Exception),
        an_interrupted_row,
    ),
}


@pytest.mark.parametrize("bug", PLANTS)
def test_a_planted_bug_is_found(bug: str, cluster: FakeCluster, options: MakeOptions) -> None:
    plant, find = PLANTS[bug]
    with plant(), pytest.raises((AssertionError, ExceptionGroup, KafkaWriteError)):
        find(cluster, options)
