"""Writes the Arrow batches of one task: all of them are acknowledged when it returns, or it raises KafkaWriteError.

A task promises at least once. Spark runs a failed task from its first row again: what the failed attempt had delivered
is then in the topic twice. Idempotence removes the duplicates of librdkafka's own retries, not these.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import pyarrow as pa

from safeproducer.runtime import clock
from safeproducer.spark.attempt import Attempt
from safeproducer.spark.columns import Columns
from safeproducer.spark.errors import Failure, KafkaWriteError
from safeproducer.spark.options import Options
from safeproducer.spark.report import Task, TaskTotals
from safeproducer.spark.slot import write_slot
from safeproducer.spark.topic_limits import TaskEndedError
from safeproducer.spark.worker_producers import producers

__all__ = ["HandedOver", "Task", "write_task"]

_EXACT = 8
"""Batches of an attempt that are noted each."""
_NOTE_EVERY = 0.1
"""Seconds after which one is noted as it is."""


def write_task(batches: Iterable[pa.RecordBatch], options: Options, task: Task) -> TaskTotals:
    """Write all rows, wait until each is acknowledged, and return the totals. Bad rows do what the options say.

    The batches have the columns of Spark's Kafka sink, and `timestamp`. Without rows no producer is made. Raises
    KafkaWriteError when a row is not acknowledged; then the producer is closed, and the next attempt starts with a new
    one: nothing of this attempt may be sent in the middle of it. An exception of `batches` closes it, too, and goes on.

    One task at a time in a process, as Spark has it.
    """
    with_rows = filter(attrgetter("num_rows"), batches)  # a generator would keep a batch
    if (sink := options.exactly_once) is not None:
        none: list[str] = [] if options.topic is None else [options.topic]
        return write_slot(*(_filled(with_rows, options.topic) or (none, iter(()))), options, sink, task)
    started, handed_over = clock.monotonic(), HandedOver(task)
    try:
        filled = _filled(map(handed_over.note, with_rows), options.topic)
        written: TaskTotals | Failure
        if filled is None:
            written = TaskTotals(task.partition, task.attempt)
        else:
            names, rest = filled
            del filled  # it holds payloads, and a frame that raises must not show them
            written = _written(names, rest, options, task)
    finally:
        handed_over.end()
    if isinstance(written, Failure):
        raise KafkaWriteError(written)
    return replace(written, rows_before=handed_over.before(), seconds=clock.monotonic() - started)


def _written(names: list[str], batches: Iterator[pa.RecordBatch], options: Options, task: Task) -> TaskTotals | Failure:
    """The totals or the failure of writing `batches`, the first of which has rows for the topics `names`."""
    try:
        worker = producers.take(options, names)
    except TaskEndedError as ended:
        return Failure(task.partition, task.attempt, codes={ended.code: 1}, reason=ended.reason)
    try:
        written = Attempt(worker, options, task).write(batches)
    except BaseException:
        worker.end()
        raise
    if isinstance(written, TaskTotals):
        producers.keep(worker, options.idle_ms)
    return written


class HandedOver:
    """How many rows each attempt of a task was given to write, in files that outlive it: so many, or more.

    They are where Spark has its own blocks: an executor removes them when it ends, and does not see those of another.
    A later run has the same names: a query its own, all that is no query one. No attempt removes its own: it may end
    well here and fail for Spark. The first one of a later run removes those of attempts that it has not had.

    Not each small batch is noted: a file promises more rows than were given, for as long as that lasts.
    """

    def __init__(self, task: Task) -> None:
        folder, self._rows, self._files = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0], 0, list[Path]()
        self._run = (task.run or "").encode()
        self._noted, self._exact, self._last = 0, _EXACT, clock.monotonic()
        if folder and task.run:
            name = f"safeproducer-{task.query_id or 'write'}-{task.partition}"
            self._files = [Path(folder, f"{name}-{number}") for number in range(task.attempt + 1)]
            with suppress(OSError):
                for number in itertools.count(task.attempt + 1):
                    Path(folder, f"{name}-{number}").unlink()
            self._write(0)

    def _write(self, rows: int) -> None:
        self._noted = rows
        for file in self._files[-1:]:
            with suppress(OSError):  # then the number is not known
                new = file.with_name(f"{file.name}.new")
                new.write_bytes(self._run + b"%d" % rows)
                new.replace(file)  # a process that is killed in the middle leaves the earlier number

    def note(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Before it is given to the producer: a killed process can note no more."""
        self._rows += batch.num_rows
        if self._rows > self._noted:
            now = clock.monotonic()
            self._exact -= 1
            is_exact = self._exact >= 0 or now - self._last >= _NOTE_EVERY
            self._last = now
            self._write(self._rows if is_exact else 2 * self._rows)
        return batch

    def end(self) -> None:
        """The attempt ends, however it does: nothing is promised any more."""
        if self._noted != self._rows:
            self._write(self._rows)

    def before(self) -> int | None:
        """The rows of earlier attempts, if they are known of each."""
        counts: list[int] = []
        for file in self._files:
            with suppress(OSError, ValueError):
                counts.append(int(file.read_bytes().removeprefix(self._run)))  # another run's is no number
        return sum(counts[:-1]) if len(counts) == len(self._files) > 0 else None


def _filled(
    batches: Iterator[pa.RecordBatch], fixed_topic: str | None
) -> tuple[list[str], Iterator[pa.RecordBatch]] | None:
    """The topics of the first batch, and all batches, which have rows; None when there is none."""
    if (first := next(batches, None)) is None:
        return None
    return Columns.of(first, fixed_topic).topic_names(fixed_topic), itertools.chain([first], batches)
