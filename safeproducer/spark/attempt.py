"""One attempt of a task sends rows, bounds how many are under way, and gives up after a silence.

The deadline of a row begins when the producer accepts it, and its buffer takes 100 000 rows at once: throttled brokers
may need minutes for them.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from enum import Enum
from functools import partial
from math import inf
from typing import Any

import pyarrow as pa

from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.runtime import clock
from safeproducer.settings.own_settings import MAX_BLOCK_MS
from safeproducer.spark import topic_limits
from safeproducer.spark.bad_rows import FailedRows, SentBatch, check
from safeproducer.spark.columns import Columns
from safeproducer.spark.errors import MOST_BAD_ROWS, UNREACHABLE, Failure
from safeproducer.spark.options import Options
from safeproducer.spark.report import TaskTotals, TopicTotals
from safeproducer.spark.rows import Callback, produce_rows
from safeproducer.spark.topic_limits import TaskEndedError
from safeproducer.spark.worker_producers import Counts, WorkerProducer

AT_ONCE = 4 << 20
"""Bytes of keys and values that may be under way whatever brokers take, and that are sent without a look at it."""
_LOOK_EVERY = AT_ONCE // 2
_BURST, _BURST_SECONDS, _BURST_DEADLINE = 4, 1.0, 15.0
"""The first second takes 4 times as much, once for each 15 s of the deadline at most: how much brokers take shows
only then, and quick ones must not wait for it."""
_PART_OF_DEADLINE = 0.125
"""One broker of several may take less than its share, and serve its partitions one after the other."""


def most_rows(rows: int, size: int) -> int:
    """How many of `rows` with `size` bytes to send without a look."""
    return rows if size <= AT_ONCE else max(1, rows * AT_ONCE // size)


class Pace:
    """The pace of one attempt, which began at `now`. `deadline`: seconds of a row."""

    def __init__(self, deadline: float, now: float) -> None:
        self._within = deadline * _PART_OF_DEADLINE
        self._burst = max(1.0, min(_BURST, deadline / _BURST_DEADLINE))
        self._began = now
        self._rows = self._bytes = self._unseen = 0

    def sent(self, rows: int, size: int) -> None:
        """Count these rows and bytes."""
        self._rows += rows
        self._bytes += size
        self._unseen += size

    def is_to_look(self) -> bool:
        """Whether enough was sent since the last look: to count what is under way costs more than a row."""
        return self._unseen >= _LOOK_EVERY

    def is_ahead(self, under_way: int, now: float) -> bool:
        """Whether more rows are under way than brokers take in a part of the deadline, at the rate of the attempt so
        far. No more than they have taken so far: a quota lets a burst pass before it throttles."""
        size = self._bytes / max(1, self._rows)
        at_once = AT_ONCE * self._burst if now < self._began + _BURST_SECONDS else AT_ONCE
        taken = (self._rows - under_way) * min(1.0, self._within / max(1e-3, now - self._began))
        ahead = under_way * size > max(at_once, taken * size)
        self._unseen = self._unseen if ahead else 0  # look again until it is not
        return ahead


ASK_AFTER = 10.0
"""Seconds without a report after which a task asks whether the topic is there and whether brokers answer; and between
two questions."""
UNREACHABLE_AFTER = 20.0
"""Seconds without a report and without any broker after which a task ends; what is left of its 30 s is for asking."""
_SILENT = 2
"""Questions without an answer after which brokers that nobody throttles count as gone."""


class Verdict(Enum):
    """`ASK`: is anybody there? `UNREACHABLE`, `TOO_LATE`: the task has to end."""

    WAIT = "wait"
    ASK = "ask"
    UNREACHABLE = "unreachable"
    TOO_LATE = "too_late"


class Patience:
    """While rows are on their way, for at most `deadline` seconds without progress. `now`: seconds of any clock."""

    def __init__(self, deadline: float, resolved: int, now: float) -> None:
        self._deadline = deadline
        self._resolved = resolved
        self._since = self._asked_at = now
        self._unanswered = 0

    def look(self, resolved: int, all_down: bool, now: float) -> Verdict:
        """`resolved`: reports so far; `all_down`: no broker can be reached, as far as is known."""
        if resolved != self._resolved:
            self._resolved, self._since, self._asked_at, self._unanswered = resolved, now, now, 0
        quiet = now - self._since
        if quiet >= UNREACHABLE_AFTER and (all_down or self._unanswered >= _SILENT):
            return Verdict.UNREACHABLE
        if quiet >= self._deadline:
            return Verdict.TOO_LATE
        if now - self._asked_at >= ASK_AFTER:
            self._asked_at = now
            return Verdict.ASK
        return Verdict.WAIT

    def asked(self, answered: bool) -> None:
        """How the question ended that ASK was for."""
        self._unanswered = 0 if answered else self._unanswered + 1


EXPIRY_CHECK = 2.0
"""Seconds a task waits beyond its deadline: librdkafka looks for expired records once a second, and they say why."""
_TURN = 1.0
_ROOM_TURN = 0.05
_FEW_TOPICS = 10
_ANSWER = 3.0
"""Seconds for the answer to a question in the middle of a task."""


class Attempt:
    """On the task's thread. No frame of its own raises while it holds payloads, but for what Spark's iterator raises:
    Spark can be told to print the locals of a failed task."""

    def __init__(self, worker: WorkerProducer, options: Options, partition: int, attempt: int) -> None:
        self._worker = worker
        self._topic = options.topic
        self._deadline = options.deadline
        self._max_block = int(options.config[MAX_BLOCK_MS]) / 1000 if MAX_BLOCK_MS in options.config else inf
        self._task = partition, attempt
        self._failed = FailedRows(partition)
        self._ended: TaskEndedError | None = None
        self._before = worker.counts()
        self._rows = 0
        self._by_topic: dict[str, tuple[int, int]] = {}
        self._without_room = 0.0
        self._pace = Pace(options.deadline, clock.monotonic())
        self._patience: Patience | None = None  # none while no row is on its way

    def write(self, batches: Iterator[pa.RecordBatch]) -> Failure | None:
        """Write all rows and wait for their reports. Returns what went wrong; then the producer is closed."""
        for batch in batches:
            goes_on = self._attempted(self._write_batch, batch)
            del batch
            if not goes_on:
                break
        if self._ended is None:
            self._attempted(self._settle)
        after = self._worker.counts()
        interrupted = after.interrupted - self._before.interrupted
        if not (self._failed or self._ended or after.unresolved or interrupted or self._delivered(after) != self._rows):
            return None
        self._failed.ended_by = None if self._ended is None else self._ended.code
        self._worker.end()  # what has no report yet gets it now
        return self._failure(self._worker.counts())

    def _attempted(self, step: Any, *args: Any) -> bool:
        """Whether to go on after this step. An exception of librdkafka ends the attempt."""
        try:
            step(*args)
        except TaskEndedError as ended:
            self._ended = ended
        except KafkaException as error:
            self._failed.count(error.args[0].name())
            self._ended = TaskEndedError(error.args[0].name(), str(error.args[0].str()))
        return self._ended is None and not self._failed

    # --- sending -----------------------------------------------------------------------------------------------------

    def _write_batch(self, batch: pa.RecordBatch) -> None:
        columns = Columns.of(batch, self._topic)
        first_row = self._rows
        self._rows += columns.rows
        names = columns.topic_names(self._topic)
        worker, topic = self._worker, self._topic
        bad = check(columns, topic, worker.know(names), worker.message_max)
        if bad:  # of what is known from earlier tasks, some may have been changed
            bad = check(columns, topic, worker.look_again(names), worker.message_max)
        if bad:
            self._failed.found(bad, first_row)
            return
        worker.renew_outgrown(self._settle)
        size = self._count(columns)
        for part in columns.parts(most_rows(columns.rows, size)):
            self._keep_pace()
            produce_rows(part, topic, worker.kafka, partial(self._reports, first_row), self._again)
            self._pace.sent(part.rows, size * part.rows // columns.rows)
            first_row += part.rows

    def _reports(self, first_row: int, part: Columns, row: int) -> Callback:
        return partial(self._failed.report, SentBatch(part, self._topic, first_row + row))

    def _keep_pace(self) -> None:
        """Wait while more is under way than brokers take in time."""
        began = now = clock.monotonic()
        while self._pace.is_to_look() and not self._failed and self._pace.is_ahead(len(self._worker.kafka), now):
            self._worker.kafka.poll(_ROOM_TURN)
            self._look()
            now = clock.monotonic()
        self._without_room += now - began

    def _count(self, columns: Columns) -> int:
        if columns.topic is None:
            names, rows, sizes = [self._topic], [columns.rows], [pa.compute.sum(columns.size).as_py()]
        else:
            table = pa.table({"topic": columns.topic.dictionary_decode(), "size": columns.size})
            found = table.group_by("topic").aggregate([("size", "count"), ("size", "sum")])
            names, rows, sizes = (found[name].to_pylist() for name in ("topic", "size_count", "size_sum"))
        for name, count, size in zip(names, rows, sizes, strict=True):
            known = self._by_topic.get(str(name), (0, 0))
            self._by_topic[str(name)] = known[0] + count, known[1] + size
        return sum(sizes)

    def _again(self, *record: Any) -> None:
        """produce() refused this record: wait for room and produce it. Raises TaskEndedError or KafkaException."""
        began = clock.monotonic()
        try:
            while (refusal := self._refusal(*record)) is not None:
                if not isinstance(refusal, BufferError):
                    cause = refusal.args[0]
                    raise TaskEndedError(cause.name(), f"for topic {record[0]!r}: {str(refusal).rstrip('.')}")
                self._worker.kafka.poll(min(_ROOM_TURN, self._max_block))
                self._look()
                if clock.monotonic() - began >= self._max_block:
                    raise self._no_room()
        finally:
            self._without_room += clock.monotonic() - began

    def _refusal(self, *record: Any) -> BufferError | KafkaException | None:
        """Produce this record; what produce() refuses it with."""
        try:
            self._worker.kafka.produce(*record)
        except (BufferError, KafkaException) as error:
            return error
        return None

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Wait for all reports."""
        until = clock.monotonic() + self._deadline + EXPIRY_CHECK
        while self._worker.kafka.flush(min(_TURN, max(0.0, until - clock.monotonic()))):
            if clock.monotonic() >= until:
                raise self._too_late()
            self._look()
        self._patience = None

    def _look(self) -> None:
        """Raise TaskEndedError when there is nothing to wait for."""
        resolved, now = self._resolved(), clock.monotonic()
        self._patience = patience = self._patience or Patience(self._deadline + EXPIRY_CHECK, resolved, now)
        verdict = patience.look(resolved, self._worker.all_down, now)
        if verdict is Verdict.TOO_LATE:
            raise self._too_late()
        if verdict is Verdict.UNREACHABLE:
            raise topic_limits.unreachable(self._worker.kafka, UNREACHABLE_AFTER)
        if verdict is Verdict.ASK:
            self._ask(patience)

    def _ask(self, patience: Patience) -> None:
        """Are the topics still there? Raises TaskEndedError when they are not; silence is for patience to judge."""
        waiting = {row.topic: None for row in self._worker.kafka.snapshot().partitions if row.unresolved}
        try:
            topic_limits.partition_counts(
                self._worker.kafka, list(waiting)[:_FEW_TOPICS], appears_within=0.0, answer_within=_ANSWER
            )
        except TaskEndedError as ended:
            if ended.code != UNREACHABLE:
                raise
            patience.asked(answered=bool(self._worker.throttled))  # throttled brokers answer late
        else:
            patience.asked(answered=True)
            self._worker.all_down = False

    def _too_late(self) -> TaskEndedError:
        return TaskEndedError(
            KafkaError(KafkaError._TIMED_OUT).name(),
            f"not all rows had their report within {self._deadline:g} s (safeproducer.spark.deadline). "
            f"{self._worker.kafka.explain()}",
        )

    def _no_room(self) -> TaskEndedError:
        return TaskEndedError(
            KafkaError(KafkaError._QUEUE_FULL).name(),
            f"a row found no room within {self._max_block:g} s (kafka.max.block.ms, {MAX_BLOCK_MS}). "
            f"{self._worker.kafka.explain()}",
        )

    def _resolved(self) -> int:
        account = self._worker.kafka.snapshot()
        return account.delivered + account.failed

    # --- telling -----------------------------------------------------------------------------------------------------

    def totals(self, started: float) -> TaskTotals:
        """The totals of an attempt that wrote all its rows; it began at `started`."""
        worker = self._worker
        after = worker.counts()
        delivered = after.by_topic - self._before.by_topic
        by_topic = {name: TopicTotals(rows, delivered[name], size) for name, (rows, size) in self._by_topic.items()}
        return TaskTotals(
            *self._task,
            producer="reused" if worker.used else "new",
            producer_ids=tuple(sorted(after.known_ids)),
            ids_used=after.ids_used,
            rows=self._rows,
            delivered=self._delivered(after),
            bytes=sum(topic.bytes for topic in by_topic.values()),
            topics=by_topic,
            seconds=clock.monotonic() - started,
            seconds_without_room=self._without_room,
            throttled=dict(worker.throttled),
            client_errors=worker.client_errors,
        )

    def _delivered(self, after: Counts) -> int:
        return after.delivered - self._before.delivered

    def _failure(self, after: Counts) -> Failure:
        delivered, unknown = self._delivered(after), self._failed.unknown + after.interrupted - self._before.interrupted
        codes = dict(self._failed.codes)
        if self._ended is not None and not codes:
            codes[self._ended.code] = self._rows - delivered
        bad_rows = sorted(self._failed.bad_rows, key=lambda bad: -1 if bad.row is None else bad.row)
        return Failure(
            *self._task,
            host=socket.gethostname(),
            process=os.getpid(),
            rows=self._rows,
            delivered=delivered,
            not_written=max(0, self._rows - delivered - unknown),
            unknown=unknown,
            codes=codes,
            bad_rows=tuple(bad_rows[:MOST_BAD_ROWS]),
            reason=None if self._ended is None else self._ended.reason,
        )
