"""A task of an exactly-once sink: writes the rows of one slot in one transaction, with its marker, or finds them there.

markers.py decides what comes next; this carries it out, and ends at the first step without an answer. The producer is a
new one for each task and is closed with it: a commit whose end is not known is settled by the next one's init.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from safeproducer.errors import ConfigurationError, SafeProducerError, TransactionUnknown
from safeproducer.kafka.native import KafkaException
from safeproducer.kafka.positions import Positions
from safeproducer.kafka.properties import whole
from safeproducer.runtime import clock
from safeproducer.spark.attempt import Attempt, sums_of
from safeproducer.spark.columns import Columns
from safeproducer.spark.errors import Failure, KafkaWriteError
from safeproducer.spark.fingerprint import fingerprint
from safeproducer.spark.guarantee import DENIED, FENCED, SINK_ID, TRANSACTION_TIMEOUT, ExactlyOnce, explained
from safeproducer.spark.markers import Marker, Print, Step, steps
from safeproducer.spark.options import Options
from safeproducer.spark.report import Task, TaskTotals, TopicTotals
from safeproducer.spark.topic_limits import TaskEndedError
from safeproducer.spark.worker_producers import producers
from safeproducer.submitting import commit

_LEAVES_WITHIN = 1.0
"""Seconds to abort what is open, so that readers need not wait for the next attempt."""
_BATCH_SIZE, _SMALLEST = 1_000_000, 1_000
_names: set[str] = set()
"""Topics that tasks of this process met: who knows their limits from the start makes no batch that is too large."""


@lru_cache(maxsize=1)
def _positions(_process: int, config: tuple[tuple[str, Any], ...], group: str, topic: str, timeout: float) -> Positions:
    """Kept from task to task: a new consumer may have to look for 50 ms for its coordinator. It remembers no marker."""
    return Positions(dict(config), group, topic, timeout)


def write_slot(
    names: list[str], batches: Iterator[pa.RecordBatch], options: Options, sink: ExactlyOnce, task: Task
) -> TaskTotals:
    """All rows are committed when it returns. `names`: topics of the first batch.

    Raises KafkaWriteError, and where another attempt would not help ConfigurationError and NonDeterministicReplay.
    """
    started = clock.monotonic()
    session = _Session(names, batches, options, sink, task)
    protocol, answer = steps(sink, task.partition, task.batch_id or 0, task.query_id or ""), None
    try:
        while not isinstance(answer, Failure):
            answer = session.carry_out(protocol.send(answer))
    except StopIteration as end:
        return replace(session.totals, slot=end.value, rows_before=0, seconds=clock.monotonic() - started)
    finally:
        session.close()
    raise KafkaWriteError(answer)


class _Session:
    """One attempt, by a producer of its own. `totals`: of what it has done. Its repr shows no row."""

    def __init__(
        self, names: list[str], batches: Iterator[pa.RecordBatch], options: Options, sink: ExactlyOnce, task: Task
    ) -> None:
        self._names, self._batches, self._task, self._sink = names, batches, task, sink
        self._config = options.config
        config = {**options.config, **sink.settings(task.partition)}
        if task.attempt and options.topic is None:
            # Spark ends the process of a failed attempt, and with it _names: smaller batches fit into any topic.
            size = whole(config.get("batch.size")) or _BATCH_SIZE
            config["batch.size"] = str(min(size, max(_SMALLEST, _BATCH_SIZE >> 5 * task.attempt)))
        self._options = replace(options, config=config)
        self._worker: Any = None
        self._positions: Any = None
        self._rows = Print()
        self.totals = TaskTotals(task.partition, task.attempt, producer="new")

    def carry_out(self, command: Step | Marker) -> Any:
        """The answer, or a Failure. Raises ConfigurationError, and what gives the rows raises."""
        does = {Step.INIT: self._init, Step.READ: self._read, Step.COUNT: self._count, Step.WRITE: self._write}
        unknown = False
        try:
            return self._commit(command) if isinstance(command, Marker) else does[command]()
        except ConfigurationError:
            raise
        except KafkaException as error:
            code = error.args[0].name()
            reason = explained(code, str(error.args[0].str()), self._sink)
            unknown = isinstance(error, TransactionUnknown)
        except SafeProducerError as error:
            code, reason = type(error).__name__, str(error)
        except TaskEndedError as ended:
            code, reason = ended.code, ended.reason
        return self._failure(code, reason, unknown)

    def close(self) -> None:
        if self._worker is not None:
            self._worker.end(_LEAVES_WITHIN)

    def _init(self) -> None:
        _names.update(self._names)
        options, sink = self._options, self._sink
        self._worker = producers.take(options, sorted(_names))
        config = sorted({**self._config, **options.resolve_secrets()}.items())
        self._positions = _positions(os.getpid(), tuple(config), sink.group, sink.marker_topic, options.deadline)
        self._worker.kafka.init_transactions(options.deadline)

    def _read(self) -> Marker | None:
        slot = self._task.partition
        ((offset, metadata),) = self._positions.committed(range(slot, slot + 1))
        return Marker.of(offset, metadata, self._sink)

    def _count(self) -> Print:
        by_topic: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for batch in self._noted():
            for name, rows, size in sums_of(Columns.of(batch, self._options.topic), self._options.topic):
                by_topic[name] += rows
                sizes[name] += size
        rows, topics = self._rows.rows, {name: TopicTotals(n, n, sizes[name]) for name, n in by_topic.items()}
        self.totals = replace(self.totals, rows=rows, delivered=rows, bytes=sizes.total(), topics=topics)
        return self._rows

    def _write(self) -> Print | Failure:
        self._worker.kafka.begin_transaction()
        written = Attempt(self._worker, self._options, self._task).write(self._noted())
        if isinstance(written, TaskTotals):
            self.totals = replace(written, ids_used=0, producer="new")
            return self._rows
        reason, fenced = written.reason or "", next((code for code in written.codes if code in FENCED), None)
        if fenced is not None:
            reason = self._failure(fenced, reason).reason or ""
        elif DENIED in written.codes:
            reason = explained(DENIED, reason, self._sink, self._options.topic or "TOPIC")
        # Who reads what is committed never sees what was delivered.
        return replace(written, delivered=0, not_written=written.rows, unknown=0, reason=reason)

    def _commit(self, marker: Marker) -> None:
        self._positions.send_to(self._worker.kafka, self._task.partition, marker.batch, marker.text())
        commit(self._worker.kafka, self._options.deadline)

    def _noted(self) -> Iterator[pa.RecordBatch]:
        return map(self._note, self._batches)  # a generator would keep a batch

    def _note(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = Columns.of(batch, self._options.topic, self._options.id_column)
        self._rows = self._rows.plus(fingerprint(columns, self._options.topic))
        _names.update(columns.topic_names(self._options.topic))
        return batch

    def _failure(self, code: str, reason: str, unknown: bool = False) -> Failure:
        _positions.cache_clear()  # it tells of a right that is missing once
        sink, slot, rows = self._sink, self._task.partition, self._rows.rows
        if code in FENCED:
            told = f"another writer took over slot {slot} of {SINK_ID}={sink.sink_id}, or its transaction was open for"
            reason = f"{told} longer than {sink.transaction_timeout:g} s ({TRANSACTION_TIMEOUT}): {reason}"
        gone, codes = rows if unknown else 0, {code: rows or 1}
        who = slot, self._task.attempt
        return Failure(*who, rows=rows, not_written=rows - gone, unknown=gone, codes=codes, reason=reason)
