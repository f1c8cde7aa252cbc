"""`QueryAccount` makes the reports of a query's micro-batches; each note is told once. `write` runs in each task.

Sink and data source share them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pkgutil import resolve_name
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from safeproducer.errors import ConfigurationValueError
from safeproducer.runtime import clock
from safeproducer.spark.options import BAD_ROWS_MAX, ON_BATCH, Options, weak_settings
from safeproducer.spark.report import BatchReport, IdRate, Task, TaskTotals
from safeproducer.telemetry.spark_events import tell

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

IDLE_LIMIT = 60.0
"""Seconds after which Spark ends a Python worker that has nothing to do (Spark 4.2: not a setting)."""
_PAUSES = (
    "micro-batches of this query are more than a minute apart: Spark then ends the Python workers that wrote the last "
    "one, and new ones take new producer IDs (see ids_per_hour in the report). Choose a trigger interval below a "
    "minute, or let fewer workers write: coalesce the DataFrame, or use foreachBatch and safeproducer.spark.max.writers"
)
LEAST_ADDRESS_SPACE = 512 << 20
_ADDRESS_SPACE = (
    f", and dies when it needs more: give it {LEAST_ADDRESS_SPACE >> 20} MB a core at least "
    "(spark.executor.pyspark.memory)"
)
_told = set[str]()


def tell_once(told: set[str], sentences: Iterable[str]) -> None:
    """Tell those that were not `told`. One thread at a time."""
    for sentence in sentences:
        if sentence not in told:
            told.add(sentence)
            tell("warning", "spark_note", note=sentence)


class QueryAccount:
    """Makes the report of each micro-batch and tells of it. One thread at a time; can be pickled."""

    def __init__(self) -> None:
        self.told = set[str]()
        self._rate = IdRate()
        self._settled: float | None = None

    def settle(
        self,
        totals: Iterable[TaskTotals],
        batch_id: int | None,
        query_id: str | None,
        options: Options,
        on_batch: Callable[[BatchReport], object] | None = None,
        *,
        copies: bool = False,
    ) -> BatchReport:
        """The report of a micro-batch whose tasks have all succeeded: one event, and a note when workers died idle.

        `on_batch` gets it. `copies`: Spark may have run copies of tasks. Raises RuntimeError when more rows are bad
        than the options allow; each task has compared a share.
        """
        now, policy = clock.monotonic(), options.bad_rows
        copies_known = not (copies or weak_settings(options.config))
        report = BatchReport.of(totals, batch_id, query_id, self._rate, now, copies_known)
        tell("info", "spark_batch_written", **_event(report))
        is_late = self._settled is not None and now - self._settled > IDLE_LIMIT
        if batch_id is not None and is_late and report.writers:
            tell_once(self.told, [_PAUSES])
        self._settled = now
        if policy.is_number and (bad := sum(report.bad_rows.values())) > policy.allowed(report.rows):
            found = ", ".join(f"{count} x {code}" for code, count in sorted(report.bad_rows.items()))
            raise RuntimeError(f"{bad} of {report.rows} rows are bad, and {BAD_ROWS_MAX} allows {policy}: {found}")
        if on_batch is not None:
            on_batch(report)
        return report


def _event(report: BatchReport) -> dict[str, object]:
    """The numbers of the report, which fit into a log line however many topics and brokers there are."""
    counts = {"topics": len(report.topics), "producer_ids": len(report.producer_ids)}
    return report.as_dict() | counts | {"throttled": sum(report.throttled.values())}


def callback_of(options: Options) -> Callable[[BatchReport], object] | None:
    """The function that the options name, imported in this process. Raises ConfigurationError when there is none."""
    name = options.on_batch
    if name is None:
        return None
    try:
        found: Any = resolve_name(name)
    except (ValueError, ImportError, AttributeError) as error:
        problem = f"it cannot be imported beside the driver: {error}"
        way_out = "Give package.module:function, and install the package where the driver runs"
        raise ConfigurationValueError(ON_BATCH, repr(name), problem, way_out) from None
    if not callable(found):
        raise ConfigurationValueError(ON_BATCH, repr(name), "it cannot be called", "Give package.module:function")
    return found  # type: ignore[no-any-return]


def write(batches: Iterator[pa.RecordBatch], options: Options, run: str, batch_id: int | None = None) -> TaskTotals:
    """Write all rows of this task and wait for their reports. Raises KafkaWriteError.

    `run`: see Task. `batch_id`: Spark tells it to a task of the data source alone.
    """
    # Here, for whatever plans or commits needs no producer.
    from safeproducer.spark.task import write_task  # noqa: PLC0415

    context = _context()
    limit = -1 if resource is None else resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= limit < LEAST_ADDRESS_SPACE:
        tell_once(_told, [f"this Python worker may have {limit >> 20} MB of address space{_ADDRESS_SPACE}"])
    if batch_id is None and (told := context.getLocalProperty("streaming.sql.batchId")):
        batch_id = int(told)
    task = Task(context.partitionId(), context.attemptNumber(), query_id(), batch_id, run)
    return write_task(batches, options, task)


def query_id() -> str | None:
    """The ID of the streaming query whose task this is. Spark Connect's `foreachBatch` has none."""
    return _context().getLocalProperty("sql.streaming.queryId")


def setting(name: str, default: str) -> str:
    """A setting of the session: those that are set travel with each task."""
    return default if (found := _context().getLocalProperty(name)) is None else found


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("this runs inside a task of Spark only")
    return context
