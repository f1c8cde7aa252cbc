"""The report of a micro-batch adds up the totals of its tasks, and counts producer IDs an hour."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from safeproducer.spark.errors import WhoWrote

SCHEMA = "totals string"
"""The row that a task yields, as Spark writes schemas: a TaskTotals as JSON."""
HOUR = 3600.0
Writer = tuple[str, int]
"""Host and process ID of a Python worker."""


@dataclass(frozen=True, slots=True)
class Task:
    """Spark's task: the number of its partition, how many attempts there were before, and what it is a task of.

    `run` is another one for each time that a micro-batch is written.
    """

    partition: int
    attempt: int
    query_id: str | None = None
    batch_id: int | None = None
    run: str | None = None

    @property
    def id_prefix(self) -> str:
        """The id of each of its rows, but for the row's number: version, query, batch, Spark partition. A write that
        is no query's has its run in place of the query."""
        return f"1:{self.query_id or self.run}:{'' if self.batch_id is None else self.batch_id}:{self.partition}:"


@dataclass(frozen=True)
class TopicTotals:
    """Rows of one topic. `bytes`: of keys and values."""

    rows: int
    delivered: int
    bytes: int


@dataclass(frozen=True)
class TaskTotals(WhoWrote):
    """The account of one attempt of one task. As in BatchReport, and:

    - `producer`: "new", "reused", or "none" for a task without rows.
    - `producer_ids`: of all lanes of the producer, over its life. One is known half a second after it was taken at the
      latest; so a first short task may know none. `ids_used` counts those, too.
    - `rows`: read; `delivered`, `bytes`, and the same by topic without bad rows.
    - `client_errors`: for example a broker that went away and came back.
    - `rows_before`: those that earlier attempts had handed over; None where it is not known of each.
    - `slot`: of exactly once, "written", "already_there" or "empty".
    """

    producer: str = "none"
    producer_ids: tuple[int, ...] = ()
    ids_used: int = 0
    rows: int = 0
    delivered: int = 0
    bytes: int = 0
    topics: Mapping[str, TopicTotals] = field(default_factory=dict)
    seconds: float = 0.0
    seconds_without_room: float = 0.0
    throttled: Mapping[int, float] = field(default_factory=dict)
    client_errors: int = 0
    bad_rows: Mapping[str, int] = field(default_factory=dict)
    rows_before: int | None = None
    slot: str | None = None

    def to_arrow(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"totals": [json.dumps(asdict(self))]})

    @classmethod
    def from_row(cls, row: Any) -> TaskTotals:
        """Made of a row of SCHEMA: a pyspark.sql.Row, or a mapping."""
        told = json.loads(row["totals"])
        told["producer_ids"] = tuple(told["producer_ids"])
        told["topics"] = {name: TopicTotals(**sums) for name, sums in told["topics"].items()}
        told["throttled"] = {int(broker): seconds for broker, seconds in told["throttled"].items()}
        return cls(**told)


class Used(NamedTuple):
    """How many IDs a worker's producer has used over its life; `new`: it was made in this micro-batch."""

    ids: int
    new: bool


class IdRate:
    """Counts the producer IDs that were taken within the last hour. One thread at a time; can be pickled.

    Counts what the workers say they used, not the IDs that are known: a worker that lives for one short task never
    knows its own. It remembers at most the workers and IDs of an hour.
    """

    def __init__(self) -> None:
        self._used: dict[Writer, tuple[int, float]] = {}
        """How many IDs each worker had used, and when it said so last."""
        self._taken: list[tuple[float, int]] = []
        """When how many were new."""

    def count(self, used: Mapping[Writer, Used], now: float) -> int:
        """Take note of a micro-batch at `now` (seconds); how many IDs were new within the hour that ends there."""
        fresh = 0
        for writer, (ids, new) in used.items():
            before = 0 if new else self._used.get(writer, (0, now))[0]
            fresh += max(0, ids - before)
            self._used[writer] = ids, now
        if fresh:
            self._taken.append((now, fresh))
        self._taken = [(when, count) for when, count in self._taken if when > now - HOUR]
        self._used = {writer: (ids, seen) for writer, (ids, seen) in self._used.items() if seen > now - HOUR}
        return sum(count for _, count in self._taken)


@dataclass(frozen=True)
class BatchReport:
    """The account of a micro-batch whose tasks have all succeeded: each row of it is acknowledged, or is a bad row that
    does not fail its task. Times are seconds.

    - `batch_id`, `query_id`: of Spark; None for a batch write. Under Spark Connect `foreachBatch` has no query ID.
    - `tasks`: how many; `writers`: Python workers that wrote rows.
    - `topics`: topic -> rows, delivered rows, bytes of keys and values.
    - `seconds`: of all tasks added up; `seconds_without_room`: of them, how long there was no room, or enough
      was under way.
    - `throttled`: broker -> throttle times it announced, added up over the tasks.
    - `client_errors`: those that were survived.
    - `bad_rows`: by code, those that were set aside. They are counted in no topic.
    - `producer_ids`: those that are known, ascending. `ids_used`: how many the writers have used over their lives.
      `ids_per_hour`: how many the query took within the hour before the report.
    - `slots`: of exactly once, how many were "written", "already_there" (by an attempt or a run before) and "empty".
      Such a report has `ids_used` 0: slots keep their producer IDs.
    - `repeated_tasks`: tasks that succeeded only after failed attempts. `maybe_twice`: at most so many rows of this
      micro-batch are in the topics more than once, because failed attempts may have written them; it counts one for
      each copy. None where that is not known: see copies_known, and a failed attempt in another executor. It leaves out
      what an earlier run of the micro-batch had written (a query that was started again), and a stage that Spark began
      anew because a shuffle's output was lost: its attempts count from 0 again.
    """

    batch_id: int | None
    query_id: str | None
    tasks: int
    writers: int
    topics: Mapping[str, TopicTotals]
    seconds: float
    seconds_without_room: float
    throttled: Mapping[int, float]
    client_errors: int
    producer_ids: tuple[int, ...]
    ids_used: int
    ids_per_hour: int
    repeated_tasks: int
    maybe_twice: int | None
    bad_rows: Mapping[str, int]
    slots: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        totals: Iterable[TaskTotals],
        batch_id: int | None,
        query_id: str | None,
        rate: IdRate,
        now: float,
        copies_known: bool = True,
    ) -> BatchReport:
        """The report of the successful attempts, of which these are the `totals`, at `now` in seconds.

        `rate` takes note of their producer IDs.
        `copies_known`: no retry can write a row twice, and Spark ran no copies of tasks, of which it tells nobody.
        """
        used = _used(tasks := list(totals))
        repeated = [task for task in tasks if task.attempt]
        known = [task.rows_before for task in repeated if task.rows_before is not None]
        return cls(
            batch_id=batch_id,
            query_id=query_id,
            tasks=len(tasks),
            writers=len(used),
            topics=_by_topic(tasks),
            seconds=sum(task.seconds for task in tasks),
            seconds_without_room=sum(task.seconds_without_room for task in tasks),
            throttled=dict(sum((Counter(task.throttled) for task in tasks), Counter())),
            client_errors=sum(task.client_errors for task in tasks),
            producer_ids=tuple(sorted({known for task in tasks for known in task.producer_ids})),
            ids_used=sum(ids for ids, _ in used.values()),
            ids_per_hour=rate.count(used, now),
            repeated_tasks=len(repeated),
            maybe_twice=sum(known) if len(known) == len(repeated) and copies_known else None,
            bad_rows=dict(sum((Counter(task.bad_rows) for task in tasks), Counter())),
            slots=dict(Counter(task.slot for task in tasks if task.slot is not None)),
        )

    @property
    def rows(self) -> int:
        """Rows that the tasks read, bad ones included."""
        return sum(topic.rows for topic in self.topics.values()) + sum(self.bad_rows.values())

    @property
    def delivered(self) -> int:
        """Rows whose records brokers acknowledged."""
        return sum(topic.delivered for topic in self.topics.values())

    @property
    def bytes(self) -> int:
        """Bytes of their keys and values."""
        return sum(topic.bytes for topic in self.topics.values())

    def as_dict(self) -> dict[str, Any]:
        """All of it, the sums over the topics included, as values that JSON has."""
        return {**asdict(self), "rows": self.rows, "delivered": self.delivered, "bytes": self.bytes}


def _used(tasks: Iterable[TaskTotals]) -> dict[Writer, Used]:
    found: dict[Writer, Used] = {}
    for task in tasks:
        if task.producer != "none":
            writer = task.host, task.process
            ids, new = found.get(writer, (0, False))
            found[writer] = Used(max(ids, task.ids_used), new or task.producer == "new")
    return found


def _by_topic(tasks: Iterable[TaskTotals]) -> dict[str, TopicTotals]:
    sums: dict[str, Counter[str]] = {}
    for task in tasks:
        for name, topic in task.topics.items():
            sums.setdefault(name, Counter()).update(asdict(topic))
    return {name: TopicTotals(found["rows"], found["delivered"], found["bytes"]) for name, found in sums.items()}
