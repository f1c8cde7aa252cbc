"""`SafeProducerSink`: for `foreachBatch`, and for a DataFrame that is no stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql.functions import col, when, xxhash64

from safeproducer.errors import ConfigurationError
from safeproducer.spark import query_account
from safeproducer.spark.guarantee import EXACTLY_ONCE, GUARANTEE, ExactlyOnce
from safeproducer.spark.java_settings import refused
from safeproducer.spark.options import COLUMN, POSITION, ROW_ID, TOPIC, Options
from safeproducer.spark.query_account import QueryAccount, callback_of, tell_once
from safeproducer.spark.report import SCHEMA, BatchReport, TaskTotals
from safeproducer.spark.run_start import begin
from safeproducer.spark.schema_check import KEY, TYPES, VALUE, check_schema, check_session, speculates

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_AWAY = "Connect by foreachBatch"
_OTHER_IDS = (
    f"{ROW_ID}={POSITION}: Spark Connect does not tell the query's ID, so rows of a micro-batch that is written again "
    f"have other ids. Take {COLUMN}NAME, or the data source"
)


class SafeProducerSink:
    """Writes DataFrames to Kafka, through one SafeProducer in each Python worker.

    `options`: topic, `kafka.*` in Java's names, `safeproducer.*`; the same as those of `format("safeproducer")`, see
    docs/use/spark.md. `on_batch` gets the report of each micro-batch, in place of the function that the option
    `safeproducer.spark.on.batch` names; what it raises fails the query.

        query = df.writeStream.foreachBatch(SafeProducerSink(options)).option("checkpointLocation", ...).start()
        report = SafeProducerSink(options).write(df)

    At least once: it returns when each row is acknowledged. When a task cannot achieve that in all its attempts Spark
    raises; the text of its error ends with that of KafkaWriteError.

    Raises ConfigurationError here for options, and before any task for columns that contradict them; also when it is
    called in a task, which has no DataFrame. The driver asks brokers, with the secrets, for exactly once alone. Make
    one sink for each query, and use it by one thread at a time. It can be pickled, as Spark Connect does.
    """

    def __init__(self, options: Mapping[str, Any], *, on_batch: Callable[[BatchReport], object] | None = None) -> None:
        try:
            self._options = Options.parse(options)
        finally:
            del options  # see Options.parse()
        if on_batch is not None and not callable(on_batch):
            raise TypeError(f"on_batch={on_batch!r} cannot be called: give a function that takes a BatchReport")
        self._on_batch = on_batch or callback_of(self._options)
        self._account = QueryAccount()
        self._next: tuple[str | None, int] | None = None
        """The micro-batch that comes behind the last one, of exactly once."""

    def __call__(self, df: DataFrame, batch_id: int) -> BatchReport:
        """Write the micro-batch `df`, for `foreachBatch`. Returns its report when each row is acknowledged.

        `batch_id`: Spark's number of the micro-batch.
        """
        return self._write(df, batch_id)

    def write(self, df: DataFrame) -> BatchReport:
        """Write all rows of `df`, which is no stream. Returns the report when each row is acknowledged."""
        return self._write(df, None)

    def _write(self, df: DataFrame, batch_id: int | None) -> BatchReport:
        if (context := TaskContext.get()) is not None:
            where = f"a SafeProducerSink was called inside a task (of Spark partition {context.partitionId()})"
            way_out = "Call it on the driver: pass it to foreachBatch, or call write(df)"
            raise ConfigurationError("", "", f"{where}, where there is no DataFrame to write", way_out)
        query_id, options = None if batch_id is None else _query_id(df), self._options
        conf = partial(_setting, df)
        about_session = check_session(conf, options, data_source=False)
        about_columns = check_schema(df.schema, options, data_source=False)
        about_ids = (_OTHER_IDS,) if batch_id is not None and query_id is None and options.row_id == POSITION else ()
        tell_once(self._account.told, (*options.notes, *about_columns, *about_session, *about_ids))
        df = _only_written(df, options)
        if (sink := options.exactly_once) is not None:
            self._begin(sink, batch_id, query_id)
            df = _by_content(df, sink.slots)
        if options.max_writers is not None:
            df = df.coalesce(options.max_writers)
        task = partial(_task, options=options, batch_id=batch_id, run=uuid4().hex)
        batch = "" if batch_id is None else f", batch {batch_id}"
        with _described(df, f"safeproducer: topic {options.topic or 'of each row'}{batch}"):
            rows = df.mapInArrow(task, SCHEMA).collect()
            if sink is not None and not rows:  # Spark runs no task for a DataFrame that it knows to be empty
                each = df.sparkSession.range(0, sink.slots, 1, sink.slots)
                rows = each.mapInArrow(partial(task, empty=True), SCHEMA).collect()
        totals = list(map(TaskTotals.from_row, rows))
        if sink is not None:
            if (found := sorted(one.partition for one in totals)) != list(range(sink.slots)):
                problem = f"Spark ran tasks for the slots {found} of {sink.slots}"
                raise RuntimeError(f"{problem}: the plan was changed behind repartition()")
            self._next = query_id, (batch_id or 0) + 1
        return self._account.settle(totals, batch_id, query_id, options, self._on_batch, copies=speculates(conf))

    def _begin(self, sink: ExactlyOnce, batch_id: int | None, query_id: str | None) -> None:
        """Ask brokers, unless this sink wrote the micro-batch before this one. Raises ConfigurationError."""
        if batch_id is None or query_id is None:
            why = "a DataFrame that is no stream has none" if batch_id is None else "Spark Connect does not tell it"
            problem = f"its markers name the query, and {why}"
            raise refused(GUARANTEE, EXACTLY_ONCE, problem, f"Leave it out, or write a stream of Spark without {_AWAY}")
        if self._next != (query_id, batch_id):
            tell_once(self._account.told, begin(self._options, sink, batch_id, query_id))
        self._next = None


def _task(
    batches: Iterator[pa.RecordBatch], options: Options, batch_id: int | None, run: str, empty: bool = False
) -> Iterator[pa.RecordBatch]:
    yield query_account.write(iter(()) if empty else batches, options, run, batch_id).to_arrow()


def _by_content(df: DataFrame, slots: int) -> DataFrame:
    """As many partitions; what a row holds decides on its own, so that a row stays in its slot when it comes again."""
    columns = {name: col(f"`{name.replace('`', '``')}`") for name in df.schema.names}
    if (key := columns.pop(KEY, None)) is None:
        return df.repartition(slots, *columns.values())
    return df.repartition(slots, key, when(key.isNull(), xxhash64(*columns.values())))


def _only_written(df: DataFrame, options: Options) -> DataFrame:
    """Without the columns that are not written. By their places: other names may be there twice, or have dots in them,
    and Spark does not find such columns by their names."""
    written = {name for name in TYPES if options.topic is None or name != TOPIC} | {options.id_column or VALUE}
    names = [name if name in written else str(place) for place, name in enumerate(df.schema.names)]
    if written.issuperset(names):
        return df
    return df.toDF(*names).select(*(name for name in names if name in written))


@contextmanager
def _described(df: DataFrame, text: str) -> Iterator[None]:
    """The text of Spark's page for the jobs in the `with` block. Spark Connect has no way to tell it."""
    name, context = "spark.job.description", cast(Any, None)
    with suppress(PySparkException):
        context = df.sparkSession.sparkContext
        before = context.getLocalProperty(name)
        context.setLocalProperty(name, text)
    try:
        yield
    finally:
        if context is not None:
            context.setLocalProperty(name, before)


def _query_id(df: DataFrame) -> str | None:
    """Spark Connect has no way to ask for it."""
    try:
        found: str | None = df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    except PySparkException:
        return None
    return found


def _setting(df: DataFrame, name: str, default: str) -> str:
    return df.sparkSession.conf.get(name, default) or default
