"""The report of a micro-batch: the totals of its tasks, added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from safeproducer.spark.id_rate import IdRate, Used, Writer
from safeproducer.spark.totals import TaskTotals, TopicTotals


@dataclass(frozen=True)
class BatchReport:
    """The account of a micro-batch whose tasks have all succeeded: each row of it is acknowledged. Times are seconds.

    - `batch_id`, `query_id`: of Spark; None for a batch write. Under Spark Connect `foreachBatch` has no query ID.
    - `tasks`: how many; `writers`: Python workers that wrote rows.
    - `topics`: topic -> rows, delivered rows, bytes of keys and values.
    - `seconds`: of all tasks added up; `seconds_without_room`: of them, how long there was no room, or enough
      was under way.
    - `throttled`: broker -> throttle times it announced, added up over the tasks.
    - `client_errors`: those that were survived.
    - `producer_ids`: those that are known, ascending. `ids_used`: how many the writers have used over their lives.
      `ids_per_hour`: how many the query took within the hour before the report.
    - `repeated_tasks`: tasks that succeeded only after failed attempts. `maybe_twice`: at most so many rows of this
      micro-batch are in the topics more than once, because failed attempts may have written them; it counts one for
      each copy. A failed attempt returns no totals, so this is its rows times its failed attempts. With speculation all
      rows count once more: of a copy of a task that came too late Spark tells nobody. It leaves out what an earlier run
      of the micro-batch had written (a query that was started again), and a stage that Spark began anew because a
      shuffle's output was lost: its attempts count from 0 again.
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
    maybe_twice: int

    @classmethod
    def of(
        cls,
        totals: Iterable[TaskTotals],
        batch_id: int | None,
        query_id: str | None,
        rate: IdRate,
        now: float,
        speculation: bool = False,
    ) -> BatchReport:
        """The report of the successful attempts, at `now` in seconds. `rate` takes note of their producer IDs.

        `speculation`: Spark may have run a copy of any task, and killed it when it came too late.
        """
        tasks = list(totals)
        used = _used(tasks)
        repeated = [task for task in tasks if task.attempt]
        throttled: Counter[int] = Counter()
        for task in tasks:
            throttled.update(task.throttled)
        return cls(
            batch_id=batch_id,
            query_id=query_id,
            tasks=len(tasks),
            writers=len(used),
            topics=_by_topic(tasks),
            seconds=sum(task.seconds for task in tasks),
            seconds_without_room=sum(task.seconds_without_room for task in tasks),
            throttled=dict(throttled),
            client_errors=sum(task.client_errors for task in tasks),
            producer_ids=tuple(sorted({known for task in tasks for known in task.producer_ids})),
            ids_used=sum(ids for ids, _ in used.values()),
            ids_per_hour=rate.count(used, now),
            repeated_tasks=len(repeated),
            maybe_twice=sum(task.rows * (task.attempt + speculation) for task in tasks),
        )

    @property
    def rows(self) -> int:
        """Rows of all topics that the tasks read."""
        return sum(topic.rows for topic in self.topics.values())

    @property
    def delivered(self) -> int:
        """Those that were acknowledged."""
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
