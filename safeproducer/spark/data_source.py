"""`format("safeproducer")`: Spark's Python data source, for batches and streams."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from safeproducer.errors import ConfigurationValueError
from safeproducer.spark import query_account
from safeproducer.spark.guarantee import EXACTLY_ONCE, GUARANTEE
from safeproducer.spark.java_settings import refused
from safeproducer.spark.options import Options
from safeproducer.spark.query_account import QueryAccount, callback_of, tell_once
from safeproducer.spark.report import TaskTotals
from safeproducer.spark.schema_check import check_schema, check_session
from safeproducer.telemetry.spark_events import tell

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:  # new in 4.1; 4.0 gives Arrow to any writer that is an Arrow writer

        class DataSourceStreamArrowWriter(DataSourceArrowWriter, DataSourceStreamWriter):
            """Stands for the class of this name in Spark 4.1."""


MOST_QUERIES = 32
"""Queries whose accounts a process that commits keeps at most: those that ran last."""

_told = set[str]()
"""The notes that the planning process has given; Spark makes a new data source there for each micro-batch."""
_accounts: OrderedDict[str | None, QueryAccount] = OrderedDict()
"""By query. A module's global, because Spark makes a new writer for each commit."""


_Messages = list["WriterCommitMessage | None"]
"""The message of a task that failed is None."""


@dataclass
class Written(WriterCommitMessage):
    """The message of a task to the process that commits."""

    totals: TaskTotals
    query_id: str | None
    notes: tuple[str, ...]


class SafeProducerDataSource(DataSource):
    """`df.writeStream.format("safeproducer")` and `df.write.format("safeproducer").mode("append")`.

    Spark finds it by itself, through the module `pyspark_safeproducer`. It takes the `options` of SafeProducerSink, but
    for `safeproducer.spark.max.writers`: Spark does not ask a data source how many tasks there are. Output mode
    "complete" is written as plain appends, as by Spark's own sink; Spark refuses "update", and save modes other than
    "append" are refused.

    Reports of micro-batches are events in the process that commits, beside the driver; with the option
    `safeproducer.spark.on.batch` = package.module:function that is called with each, and may fail the query.
    """

    @classmethod
    def name(cls) -> str:
        return "safeproducer"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """For `df.write`. Raises ConfigurationError for options, the columns of `schema`, and with `overwrite`."""
        if overwrite:
            problem = "Kafka's topics cannot be overwritten"
            raise ConfigurationValueError("mode", "'overwrite'", problem, 'Write with .mode("append")')
        return Writer(self._checked(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - Spark's
        """For `df.writeStream`. Raises ConfigurationError for options and the columns of `schema`.

        `overwrite` makes no difference.
        """
        return StreamWriter(self._checked(schema))

    def _checked(self, schema: StructType) -> Options:
        options = Options.parse(self.options)
        callback_of(options)
        if options.exactly_once is not None:
            problem = "Spark may commit a micro-batch without the tasks' account, and tells no task a batch's number"
            raise refused(GUARANTEE, EXACTLY_ONCE, problem, "Pass a SafeProducerSink to foreachBatch")
        tell_once(_told, (*options.notes, *check_schema(schema, options, data_source=True)))
        return options


class _Writing:
    """Both writers, of which that of a batch write has no `batchId`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._run = uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        # The processes that plan and commit know no settings.
        notes = check_session(query_account.setting, self._options, data_source=True)
        return Written(query_account.write(iterator, self._options, self._run), query_account.query_id(), notes)

    def commit(self, messages: _Messages, batchId: int | None = None) -> None:  # noqa: N803 - Spark's name
        written = [message for message in messages if isinstance(message, Written)]
        query_id = next((message.query_id for message in written), None)
        if len(written) < len(messages):
            _refuse_commit(len(messages), len(written), batchId, query_id)
        account = _account(query_id)
        tell_once(account.told, (note for message in written for note in message.notes))
        totals = (message.totals for message in written)
        account.settle(totals, batchId, query_id, self._options, callback_of(self._options))

    def abort(self, messages: _Messages, batchId: int | None = None) -> None:  # noqa: N803
        """Spark gave up. Rows that tasks had written stay in the topics."""
        written = [message for message in messages if isinstance(message, Written)]
        tell(
            "error",
            "spark_batch_aborted",
            batch_id=batchId,
            query_id=next((message.query_id for message in written), None),
            tasks=len(messages),
            tasks_written=len(written),
            delivered_by_them=sum(message.totals.delivered for message in written),
        )


class Writer(_Writing, DataSourceArrowWriter):
    """The writer of one batch write."""


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    """The writer of one micro-batch."""


def _refuse_commit(tasks: int, written: int, batch_id: int | None, query_id: str | None) -> None:
    """With trigger(continuous=...) Spark calls no writer in Python, drops the rows, and commits.

    The error keeps their offsets out of the checkpoint. Spark's own thread logs it and goes on, so that the query
    stands still and nobody else hears of it.
    """
    problem = (
        f"{tasks - written} of {tasks} tasks have not written their rows, so nothing is committed, and the query "
        "stands still: with a continuous trigger Spark calls no data source in Python. Stop the query, and start it "
        "with trigger(processingTime=...) or trigger(availableNow=True)"
    )
    told = {"batch_id": batch_id, "query_id": query_id, "tasks": tasks, "tasks_written": written}
    tell("error", "spark_commit_refused", **told, problem=problem)
    raise RuntimeError(problem)


def _account(query_id: str | None) -> QueryAccount:
    account = _accounts[query_id] = _accounts.pop(query_id) if query_id in _accounts else QueryAccount()
    if len(_accounts) > MOST_QUERIES:
        _accounts.popitem(last=False)
    return account
