"""The engine inside one of Spark's tasks: what sink and data source run there."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark import TaskContext

from safeproducer.spark.options import Options
from safeproducer.spark.query_account import Told
from safeproducer.spark.report import Task, TaskTotals

if TYPE_CHECKING:
    import pyarrow as pa


LEAST_ADDRESS_SPACE = 512 << 20
_ADDRESS_SPACE = (
    f", and dies when it needs more: give it {LEAST_ADDRESS_SPACE >> 20} MB a core at least "
    "(spark.executor.pyspark.memory)"
)
_told = Told()


def write(batches: Iterator[pa.RecordBatch], options: Options, run: str, batch_id: int | None = None) -> TaskTotals:
    """Write all rows of this task and wait for their reports. Raises KafkaWriteError.

    `run`: see Task. `batch_id`: Spark tells it to a task of the data source alone.
    """
    # Here, for whatever plans or commits needs no producer.
    from safeproducer.spark.task import write_task  # noqa: PLC0415

    context, limit = _context(), resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= limit < LEAST_ADDRESS_SPACE:
        _told.once([f"this Python worker may have {limit >> 20} MB of address space{_ADDRESS_SPACE}"])
    if batch_id is None and (told := context.getLocalProperty("streaming.sql.batchId")):
        batch_id = int(told)
    task = Task(context.partitionId(), context.attemptNumber(), query_id(), batch_id, run)
    return write_task(batches, options, task)


def query_id() -> str | None:
    """The ID of the streaming query whose task this is. Spark Connect's `foreachBatch` has none."""
    found: str | None = _context().getLocalProperty("sql.streaming.queryId")
    return found


def setting(name: str, default: str) -> str:
    """A setting of the session: those that are set travel with each task."""
    found: str | None = _context().getLocalProperty(name)
    return default if found is None else found


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("this runs inside a task of Spark only")
    return context
