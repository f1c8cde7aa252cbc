"""The account of a query makes the reports of its micro-batches, and tells each note once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pkgutil import resolve_name
from typing import Any

from safeproducer.errors import ConfigurationValueError
from safeproducer.runtime import clock
from safeproducer.spark.options import BAD_ROWS_MAX, FAILING, ON_BATCH, BadRows, Options
from safeproducer.spark.report import BatchReport, IdRate, TaskTotals
from safeproducer.telemetry import spark_events


class Told:
    """Tells each sentence once. One thread at a time; can be pickled. `sentences`: those that were told."""

    def __init__(self, sentences: Iterable[str] = ()) -> None:
        self.sentences = set(sentences)

    def once(self, sentences: Iterable[str]) -> None:
        """Log those that were not told yet."""
        for sentence in sentences:
            if sentence not in self.sentences:
                self.sentences.add(sentence)
                spark_events.note(sentence)


IDLE_LIMIT = 60.0
"""Seconds after which Spark ends a Python worker that has nothing to do (Spark 4.2: not a setting)."""


class Account:
    """Makes the report of each micro-batch and tells of it. One thread at a time; can be pickled."""

    def __init__(self) -> None:
        self.told = Told()
        self._rate = IdRate()
        self._settled: float | None = None

    def settle(
        self,
        totals: Iterable[TaskTotals],
        batch_id: int | None,
        query_id: str | None,
        *,
        copies_known: bool = True,
        policy: BadRows = FAILING,
    ) -> BatchReport:
        """The report of a micro-batch whose tasks have all succeeded: one event, and a note when workers died idle.

        Raises RuntimeError when it has more than `policy` allows.
        """
        now = clock.monotonic()
        report = BatchReport.of(totals, batch_id, query_id, self._rate, now, copies_known)
        spark_events.batch_written(**_event(report))
        is_late = self._settled is not None and now - self._settled > IDLE_LIMIT
        if batch_id is not None and is_late and report.writers:
            self.told.once([_PAUSES])
        self._settled = now
        if (bad := sum(report.bad_rows.values())) > policy.allowed(report.rows):
            found = ", ".join(f"{count} x {code}" for code, count in sorted(report.bad_rows.items()))
            raise RuntimeError(f"{bad} of {report.rows} rows are bad, and {BAD_ROWS_MAX} allows {policy}: {found}")
        return report


_PAUSES = (
    "micro-batches of this query are more than a minute apart: Spark then ends the Python workers that wrote the last "
    "one, and new ones take new producer IDs (see ids_per_hour in the report). Choose a trigger interval below a "
    "minute, or let fewer workers write: coalesce the DataFrame, or use foreachBatch and safeproducer.spark.max.writers"
)


def _event(report: BatchReport) -> dict[str, object]:
    """The numbers of the report, which fit into a log line however many topics and brokers there are."""
    fields: dict[str, object] = report.as_dict()
    fields["topics"] = len(report.topics)
    fields["throttled"] = sum(report.throttled.values())
    fields["producer_ids"] = len(report.producer_ids)
    return fields


def callback_of(options: Options) -> Callable[[BatchReport], object] | None:
    """The function that the options name, imported in this process. Raises ConfigurationError when there is none."""
    name = options.on_batch
    if name is None:
        return None
    try:
        found: Any = resolve_name(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise ConfigurationValueError(
            ON_BATCH,
            repr(name),
            f"it cannot be imported beside the driver: {error}",
            "Give package.module:function, and install the package where the driver runs",
        ) from None
    if not callable(found):
        raise ConfigurationValueError(ON_BATCH, repr(name), "it cannot be called", "Give package.module:function")
    callback: Callable[[BatchReport], object] = found
    return callback
