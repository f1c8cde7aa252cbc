"""One attempt of a task sends rows, and sends those again that a broker refused together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from math import inf
from typing import Any

import pyarrow as pa

from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.producer import engine_of
from safeproducer.runtime import clock
from safeproducer.settings.own_settings import MAX_BLOCK_MS
from safeproducer.spark import pace, topic_limits
from safeproducer.spark.bad_rows import OF_ITS_TOPIC, SMALLEST_LIMIT, Aside, FailedRows, Refused, SentBatch, groups
from safeproducer.spark.columns import Columns
from safeproducer.spark.errors import MOST_BAD_ROWS, UNREACHABLE, BadRow, Failure
from safeproducer.spark.options import FAIL, POSITION, Options
from safeproducer.spark.pace import Pace, PaceStep, TaskPatience, most_rows
from safeproducer.spark.report import Task, TaskTotals, TopicTotals
from safeproducer.spark.row_check import Found, askable, check
from safeproducer.spark.rows import Callback, produce_rows
from safeproducer.spark.topic_limits import TaskEndedError
from safeproducer.spark.worker_producers import Counts, WorkerProducer

EXPIRY_CHECK = 2.0
"""Seconds a task waits beyond its deadline: librdkafka looks for expired records once a second, and they say why."""
_EXPIRED = KafkaError(KafkaError._MSG_TIMED_OUT).name()
_TOLD = 0.2
"""Part of a row's time-out after which it is noted what rows wait for: once it has expired nothing tells."""
_TURN = 1.0
_ROOM_TURN = 0.05
_FEW_TOPICS = 10
Place = tuple[str | None, int | None]
"""Topic and partition of a record, each None where it is not known."""
_ANSWER = 3.0
"""Seconds for the answer to a question in the middle of a task."""


def sums_of(columns: Columns, topic: str | None) -> list[tuple[str, int, int]]:
    """Each topic, how many of these rows go there, and the bytes of their keys and values."""
    if columns.topic is None:
        return [(str(topic), columns.rows, pa.compute.sum(columns.size).as_py())]
    table = pa.table({"topic": columns.topic.dictionary_decode(), "size": columns.size})
    found = table.group_by("topic").aggregate([("size", "count"), ("size", "sum")])
    names, rows, sizes = (found[name].to_pylist() for name in ("topic", "size_count", "size_sum"))
    return list(zip(map(str, names), rows, sizes, strict=True))


class Attempt:
    """On the task's thread. No frame of its own raises while it holds payloads, but for what Spark's iterator raises:
    Spark can be told to print the locals of a failed task."""

    def __init__(self, worker: WorkerProducer, options: Options, task: Task) -> None:
        self._worker, self._options, self._task = worker, options, task
        self._topic = options.topic
        self._max_block = float(options.config.get(MAX_BLOCK_MS, inf)) / 1000
        self._failed = FailedRows(task.partition, apart=options.bad_rows.mode != FAIL)
        self._aside = Aside(options.bad_rows, task)
        self._ended: TaskEndedError | None = None
        self._before = worker.counts()
        self._rows = 0
        self._by_topic: dict[str, tuple[int, int]] = {}
        self._without_room = 0.0
        self._explained = clock.monotonic(), ""
        """When, and what the rows waited for then."""
        self._pace = Pace(options.deadline, clock.monotonic())
        self._patience: TaskPatience | None = None  # none while no row is on its way

    def write(self, batches: Iterator[pa.RecordBatch]) -> TaskTotals | Failure:
        """Write all rows and wait for their reports; what it did, or what went wrong: then the producer is closed."""
        for batch in batches:
            goes_on = self._attempted(self._write_batch, batch)
            del batch
            if not goes_on:
                break
        if self._ended is None:
            self._attempted(self._finish)
        after = self._worker.counts()
        interrupted = after.interrupted - self._before.interrupted
        missing = self._rows - self._aside.codes.total() - self._delivered(after)
        if not (self._failed or self._ended or after.unresolved or interrupted or missing):
            return self._totals(after)
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
            self._failed.codes[error.args[0].name()] += 1  # of the producer itself, of no row
            self._ended = TaskEndedError(error.args[0].name(), str(error.args[0].str()))
        return self._ended is None and not self._failed

    # --- sending -----------------------------------------------------------------------------------------------------

    def _write_batch(self, batch: pa.RecordBatch) -> None:
        columns = Columns.of(batch, self._topic, self._options.id_column)
        first_row = self._rows
        if self._options.row_id == POSITION:
            columns = columns.at_positions(self._task.id_prefix, first_row)
        self._rows += columns.rows
        names, apart = askable(columns.topic_names(self._topic)), self._failed.refused is not None
        worker, topic = self._worker, self._topic
        if topic is not None:
            worker.know_one(topic)
        self._aside.looked.update(name for name in names if name not in worker.facts)
        bad = check(columns, topic, worker.know(names), worker.message_max, apart)
        if bad and not self._aside.looked.issuperset(names):  # since earlier tasks, some may have been changed
            self._aside.looked.update(names)
            bad = check(columns, topic, worker.look_again(names), worker.message_max, apart)
        if bad and not apart:
            self._failed.found(bad, first_row)
            return
        numbers: Sequence[int] = range(first_row, self._rows)
        if bad:
            self._set_aside(columns, bad, numbers)
            places = {one.row for one in bad}
            columns, numbers = columns.without(places), [n for n in numbers if n - first_row not in places]
        if self._failed or not columns.rows:
            return
        worker.renew_outgrown(self._settle)
        size = self._count(columns)
        for part in columns.parts(most_rows(columns.rows, size)):
            self._keep_pace()
            produce_rows(part, topic, worker.kafka, partial(self._reports, numbers), self._again)
            self._pace.sent(part.rows, size * part.rows // columns.rows)
            numbers = numbers[part.rows :]
        if self._failed.refused:
            self._sort_out()

    # --- bad rows that do not fail the task --------------------------------------------------------------------------

    def _set_aside(self, columns: Columns, bad: Sequence[Found], numbers: Sequence[int]) -> None:
        self._aside.rows.found(bad, numbers[0])
        self._refuse_too_many(at_the_end=False)
        for one in bad:
            self._to_dead_letters(columns.slice(one.row), BadRow(self._task.partition, numbers[one.row], *one[1:]))

    def _sort_out(self) -> None:
        """Send rows again that brokers refused together, in ever smaller groups: one that is refused alone is bad.

        A broker refuses a batch, which is of one partition: so each has its own groups, of which one is sent at a time.
        """
        self._settle()
        waiting: dict[Place, list[list[Refused]]] = {}
        self._divide(self._failed.take_refused(), {}, waiting)
        while (waiting := {place: stack for place, stack in waiting.items() if stack}) and not self._failed:
            sent = {place: stack.pop() for place, stack in waiting.items()}
            for one in chain.from_iterable(sent.values()):
                report = partial(self._failed.report, one.batch, row=one.row)
                self._again(*one.batch.record(one.row, one.bad.target_partition, report))
            self._settle()
            self._divide(self._failed.take_refused(), {place: len(group) for place, group in sent.items()}, waiting)

    def _divide(
        self, refused: Sequence[Refused], sent: Mapping[Place, int], waiting: dict[Place, list[list[Refused]]]
    ) -> None:
        """Set those aside that were refused alone, and put groups of the others onto the stack of their partition.
        `sent`: how many were sent together."""
        by_place: dict[Place, list[Refused]] = {}
        for one in refused:
            by_place.setdefault((one.bad.topic, one.bad.target_partition), []).append(one)
        for place, some in by_place.items():
            alone = [one for one in some if sent.get(place) == 1 or one.bad.cause in OF_ITS_TOPIC]
            waiting.setdefault(place, []).extend(groups([one for one in some if one not in alone] if alone else some))
            for batch, row, bad in alone:
                self._count(batch.columns.slice(row), -1)
                self._aside.rows.add(bad)
                self._refuse_too_many(at_the_end=False)
                self._to_dead_letters(batch.columns.slice(row), bad)

    def _to_dead_letters(self, row: Columns, bad: BadRow) -> None:
        name = self._aside.policy.topic
        if name is None or self._failed:
            return
        is_new = name not in self._aside.looked
        self._aside.looked.add(name)
        known = self._worker.know_one(name, is_new).max_bytes
        if is_new:  # letters leave in batches, of which none may be larger than the topic takes
            self._worker.renew_outgrown(self._settle)
        self._again(*self._aside.letter(row, bad, min(known or SMALLEST_LIMIT, self._worker.message_max)))

    def _refuse_too_many(self, at_the_end: bool) -> None:
        if not self._failed and self._aside.is_too_much(self._rows, at_the_end):
            self._failed.codes.update(self._aside.codes)

    def _finish(self) -> None:
        self._settle()
        self._sort_out()
        self._refuse_too_many(at_the_end=True)
        self._settle()  # the dead letters
        if (lost := self._aside.last_error) is not None:
            self._failed.codes[lost.name()] += 1

    def _reports(self, numbers: Sequence[int], part: Columns, row: int) -> Callback:
        return partial(self._failed.report, SentBatch(part, self._topic, numbers[row : row + part.rows]))

    def _keep_pace(self) -> None:
        """Wait while more is under way than brokers take in time."""
        began = now = clock.monotonic()
        while self._pace.is_to_look() and not self._failed and self._pace.is_ahead(len(self._worker.kafka), now):
            self._worker.kafka.poll(_ROOM_TURN)
            self._look()
            now = clock.monotonic()
        self._without_room += now - began

    def _count(self, columns: Columns, sign: int = 1) -> int:
        sums = sums_of(columns, self._topic)
        for name, count, size in sums:
            known = self._by_topic.get(name, (0, 0))
            self._by_topic[name] = known[0] + sign * count, known[1] + sign * size
        return sum(size for *_, size in sums)

    def _again(self, *record: Any) -> None:
        """produce() refused this record: wait for room and produce it. Raises TaskEndedError or KafkaException."""
        began = clock.monotonic()
        try:
            while (refusal := self._refusal(*record)) is not None:
                if not isinstance(refusal, BufferError):
                    sentence = f"for topic {record[0]!r}: {str(refusal).rstrip('.')}"
                    raise TaskEndedError(refusal.args[0].name(), sentence)
                self._worker.kafka.poll(min(_ROOM_TURN, self._max_block))
                self._look()
                if clock.monotonic() - began >= self._max_block:
                    problem = f"a row found no room within {self._max_block:g} s (kafka.max.block.ms, {MAX_BLOCK_MS})"
                    raise self._ended_by(KafkaError._QUEUE_FULL, problem)
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
        until = clock.monotonic() + self._options.deadline + EXPIRY_CHECK
        while self._worker.kafka.flush(min(_TURN, max(0.0, until - clock.monotonic()))):
            if clock.monotonic() >= until:
                raise self._too_late()
            self._look()
        self._patience = None

    def _look(self) -> None:
        """Raise TaskEndedError when there is nothing to wait for."""
        resolved, now = sum(engine_of(self._worker.kafka).counters.lately()[1:]), clock.monotonic()
        self._patience = patience = self._patience or TaskPatience(self._options.deadline + EXPIRY_CHECK, resolved, now)
        since = patience.since
        verdict = patience.look(resolved, self._worker.all_down, now)
        if patience.since > since:
            self._worker.login_refused = None  # it was of a former login
        told_every = int(self._options.config["delivery.timeout.ms"]) / 1000 * _TOLD
        if now >= self._explained[0] + told_every:  # with many partitions it takes long
            self._explained = now, self._worker.kafka.explain()
        first, last, told = self._worker.login_refused or (inf, 0.0, "")
        if last - max(first, patience.since) >= topic_limits.LOGIN_LASTS:  # one refusal may be of a former login
            raise topic_limits.login_refused(told)
        if verdict is PaceStep.TOO_LATE:
            raise self._too_late()
        if verdict is PaceStep.UNREACHABLE:
            raise topic_limits.unreachable(self._worker.kafka, pace.UNREACHABLE_AFTER)
        if verdict is PaceStep.ASK:
            self._ask(patience)

    def _ask(self, patience: TaskPatience) -> None:
        """Are the topics still there? Raises TaskEndedError when not, or when silent brokers had refused the login: of
        one broker librdkafka tells that once in half a minute. TaskPatience judges other silence."""
        waiting = {row.topic: None for row in self._worker.kafka.snapshot().partitions if row.unresolved}
        kafka = self._worker.kafka
        try:
            _, absent = topic_limits.partition_counts(
                kafka, list(waiting)[:_FEW_TOPICS], appears_within=0.0, answer_within=_ANSWER
            )
            for name, error in absent.items():
                raise topic_limits.not_usable(kafka, name, error)
        except TaskEndedError as ended:
            if ended.code != UNREACHABLE:
                raise
            answered = bool(self._worker.throttled)  # throttled brokers answer late
            if not answered and self._worker.login_refused is not None:
                raise topic_limits.login_refused(self._worker.login_refused[2]) from None
            patience.asked(answered)
        else:
            patience.asked(answered=True)
            self._worker.all_down = False

    def _too_late(self) -> TaskEndedError:
        problem = f"not all rows had their report within {self._options.deadline:g} s (safeproducer.spark.deadline)"
        return self._ended_by(KafkaError._TIMED_OUT, problem)

    def _ended_by(self, code: int, problem: str) -> TaskEndedError:
        return TaskEndedError(KafkaError(code).name(), f"{problem}. {self._worker.kafka.explain()}")

    # --- telling -----------------------------------------------------------------------------------------------------

    def _totals(self, after: Counts) -> TaskTotals:
        worker = self._worker
        delivered = after.by_topic - self._before.by_topic - Counter({self._aside.policy.topic or "": self._aside.sent})
        by_topic = {name: TopicTotals(rows, delivered[name], size) for name, (rows, size) in self._by_topic.items()}
        return TaskTotals(
            self._task.partition,
            self._task.attempt,
            producer="reused" if worker.used else "new",
            producer_ids=tuple(sorted(after.known_ids)),
            ids_used=after.ids_used,
            rows=self._rows,
            delivered=self._delivered(after),
            bytes=sum(topic.bytes for topic in by_topic.values()),
            topics=by_topic,
            seconds_without_room=self._without_room,
            throttled=dict(worker.throttled),
            client_errors=worker.client_errors,
            bad_rows=dict(self._aside.codes),
        )

    def _delivered(self, after: Counts) -> int:
        return after.delivered - self._before.delivered - (self._aside.sent - self._aside.lost)

    def _failure(self, after: Counts) -> Failure:
        delivered, unknown = self._delivered(after), self._failed.unknown + after.interrupted - self._before.interrupted
        codes = dict(self._failed.codes)
        if self._ended is not None and not codes:
            codes[self._ended.code] = self._rows - delivered
        reason = None if self._ended is None else self._ended.reason
        bad_rows = self._failed.bad_rows or self._aside.rows.bad_rows
        bad_rows.sort(key=lambda bad: -1 if bad.row is None else bad.row)
        return Failure(
            self._task.partition,
            self._task.attempt,
            rows=self._rows,
            delivered=delivered,
            not_written=max(0, self._rows - delivered - unknown),
            unknown=unknown,
            codes=codes,
            bad_rows=tuple(bad_rows[:MOST_BAD_ROWS]),
            reason=reason or self._aside.reason(self._rows) or (self._explained[1] if _EXPIRED in codes else None),
        )
