"""The two doors without Spark: what they refuse, tell, and make of the totals of tasks."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pkgutil import iter_modules
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import LongType, StringType, StructField, StructType
from structlog.testing import capture_logs

import pyspark_safeproducer
from safeproducer import ConfigurationError
from safeproducer.spark import BatchReport, SafeProducerDataSource, SafeProducerSink, data_source, query_account
from safeproducer.spark.data_source import MOST_QUERIES, Written
from safeproducer.spark.options import Options
from safeproducer.spark.report import TaskTotals, TopicTotals

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "orders"}
DESCRIPTION = "spark.job.description"
VALUES = StructType([StructField("value", StringType())])
REPORTS: list[BatchReport] = []


def keep(report: BatchReport) -> None:
    """What `safeproducer.spark.on.batch` names below."""
    REPORTS.append(report)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the data source keeps for a process, anew."""
    REPORTS.clear()
    data_source._accounts.clear()
    monkeypatch.setattr(data_source, "_told", set())


def totals(partition: int = 0, rows: int = 5, **fields: Any) -> TaskTotals:
    """Of a task that wrote rows of 3 bytes to the topic."""
    topics = {"orders": TopicTotals(rows, rows, 3 * rows)}
    return TaskTotals(
        partition, rows=rows, delivered=rows, topics=topics, **{"attempt": 0, "producer": "new", **fields}
    )


class Frame:
    """As much of a DataFrame as the sink uses; its tasks return these totals."""

    def __init__(self, *found: TaskTotals, schema: StructType = VALUES, **settings: str) -> None:
        self.found = found
        self.schema = schema
        self.coalesced: list[int] = []
        self.renamed: tuple[str, ...] = ()
        self.selected: tuple[str, ...] = ()
        self.properties: dict[str, Any] = {"sql.streaming.queryId": "query", DESCRIPTION: "as before"}
        self.described: list[str] = []
        self.sparkSession = SimpleNamespace(
            conf=SimpleNamespace(get=settings.get),
            sparkContext=SimpleNamespace(getLocalProperty=self.properties.get, setLocalProperty=self.set_property),
        )

    def set_property(self, name: str, value: str) -> None:
        self.properties[name] = value

    def toDF(self, *names: str) -> Frame:  # noqa: N802 - Spark's name
        self.renamed = names
        return self

    def select(self, *names: str) -> Frame:
        self.selected = names
        return self

    def coalesce(self, tasks: int) -> Frame:
        self.coalesced.append(tasks)
        return self

    def mapInArrow(self, function: Callable[..., Iterator[Any]], schema: str) -> Frame:  # noqa: N802 - Spark's name
        pickle.dumps(function)
        return self

    def collect(self) -> list[dict[str, Any]]:
        self.described.append(self.properties[DESCRIPTION])
        return [row for one in self.found for row in one.to_arrow().to_pylist()]


# --- foreachBatch ----------------------------------------------------------------------------------------------------


def test_the_sink_returns_a_report_tells_it_and_passes_it_on() -> None:
    kept: list[BatchReport] = []
    sink = SafeProducerSink(OPTIONS, on_batch=kept.append)
    with capture_logs() as logs:
        report = sink(Frame(totals(0), totals(1, 7, process=2)), 4)  # type: ignore[arg-type]
    assert kept == [report]
    assert (report.batch_id, report.query_id, report.rows, report.writers) == (4, "query", 12, 2)
    assert [(log["event"], log["rows"]) for log in logs] == [("spark_batch_written", 12)]


def test_a_data_frame_at_hand_has_neither_batch_nor_query() -> None:
    report = SafeProducerSink(OPTIONS).write(Frame(totals()))  # type: ignore[arg-type]
    assert (report.batch_id, report.query_id, report.delivered) == (None, None, 5)


def test_the_sink_takes_the_callback_of_the_options_too() -> None:
    """The same options are for both doors; a callback at hand wins."""
    options = {**OPTIONS, "safeproducer.spark.on.batch": f"{__name__}:keep"}
    SafeProducerSink(options).write(Frame(totals()))  # type: ignore[arg-type]
    SafeProducerSink(options, on_batch=lambda report: None).write(Frame(totals()))  # type: ignore[arg-type]
    assert [report.rows for report in REPORTS] == [5]


def test_an_exception_of_the_callback_fails_the_query() -> None:
    """It is the application's own code, and nobody else would hear of it."""

    def broken(report: BatchReport) -> None:
        raise RuntimeError("not this one")

    with pytest.raises(RuntimeError, match="not this one"):
        SafeProducerSink(OPTIONS, on_batch=broken).write(Frame(totals()))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="on_batch='keep' cannot be called: give a function that takes a BatchReport"):
        SafeProducerSink(OPTIONS, on_batch="keep")  # type: ignore[arg-type]


def test_jobs_say_what_they_write() -> None:
    """On Spark's page; what was there before comes back."""
    one, other = (
        Frame(totals()),
        Frame(totals(), schema=StructType([*VALUES.fields, StructField("topic", StringType())])),
    )
    SafeProducerSink(OPTIONS)(one, 7)  # type: ignore[arg-type]
    SafeProducerSink({**OPTIONS, "topic": None}).write(other)  # type: ignore[arg-type]
    assert one.described + other.described == [
        "safeproducer: topic orders, batch 7",
        "safeproducer: topic of each row",
    ]
    assert one.properties[DESCRIPTION] == other.properties[DESCRIPTION] == "as before"


def test_writers_are_limited_by_coalescing() -> None:
    few, many = Frame(totals()), Frame(totals())
    SafeProducerSink({**OPTIONS, "safeproducer.spark.max.writers": "2"}).write(few)  # type: ignore[arg-type]
    SafeProducerSink(OPTIONS).write(many)  # type: ignore[arg-type]
    assert (few.coalesced, many.coalesced) == ([2], [])


@pytest.mark.parametrize(
    ("options", "written"), [(OPTIONS, ("key", "value")), ({**OPTIONS, "topic": None}, ("key", "topic", "value"))]
)
def test_the_sink_leaves_out_what_is_not_written(options: dict[str, Any], written: tuple[str, ...]) -> None:
    """By its place: Spark finds no column by a name that is there twice, in another case, or has a dot."""
    names = ["id", "key", "id", "a.b", "topic", "VALUE", "value"]
    frame = Frame(totals(), schema=StructType([StructField(name, StringType()) for name in names]))
    SafeProducerSink({name: text for name, text in options.items() if text}).write(frame)  # type: ignore[arg-type]
    assert frame.selected == written
    assert len(set(map(str.lower, frame.renamed))) == len(names)
    assert [name for name in frame.renamed if name in written] == list(written)


def test_no_column_is_left_out_where_all_are_written() -> None:
    frame = Frame(totals())
    SafeProducerSink(OPTIONS).write(frame)  # type: ignore[arg-type]
    assert (frame.renamed, frame.selected) == ((), ())


@pytest.mark.parametrize(("speculation", "maybe_twice"), [("true", None), ("false", 0)])
def test_the_sink_cannot_count_a_copy_of_which_nobody_tells(speculation: str, maybe_twice: int | None) -> None:
    """When Spark may have run one, any row may be there once more."""
    frame = Frame(totals(), **{"spark.speculation": speculation})
    assert SafeProducerSink(OPTIONS).write(frame).maybe_twice == maybe_twice  # type: ignore[arg-type]


def test_no_door_counts_what_retries_may_write_twice() -> None:
    options = {**OPTIONS, "kafka.acks": "1", "safeproducer.spark.on.batch": f"{__name__}:keep"}
    SafeProducerSink(options).write(Frame(totals()))  # type: ignore[arg-type]
    SafeProducerDataSource(options).streamWriter(VALUES, overwrite=False).commit(messages(totals()), 9)
    assert [report.maybe_twice for report in REPORTS] == [None, None]


def test_notes_are_told_once_over_all_micro_batches() -> None:
    schema = StructType([*VALUES.fields, StructField("topic", StringType())])
    sink = SafeProducerSink({**OPTIONS, "kafka.send.buffer.bytes": "1"})
    with capture_logs() as logs:
        for batch in range(3):
            sink(Frame(totals(), schema=schema, **{"spark.python.worker.reuse": "false"}), batch)  # type: ignore[arg-type]
    notes = [log["note"] for log in logs if log["event"] == "spark_note"]
    assert len(notes) == len(set(notes)) == 3
    assert ["send.buffer.bytes" in notes[0], "'topic' is not used" in notes[1], "reuse" in notes[2]] == [True] * 3


def test_wrong_columns_are_refused_before_any_task() -> None:
    frame = Frame(totals(), schema=StructType([StructField("value", LongType())]))
    frame.mapInArrow = pytest.fail  # type: ignore[assignment, method-assign]
    with pytest.raises(ConfigurationError, match="'value' is of type bigint"):
        SafeProducerSink(OPTIONS).write(frame)  # type: ignore[arg-type]


def test_a_sink_can_be_pickled_for_spark_connect() -> None:
    copy = pickle.loads(pickle.dumps(SafeProducerSink(OPTIONS, on_batch=keep)))  # noqa: S301 - our own bytes
    copy.write(Frame(totals()))
    assert [report.rows for report in REPORTS] == [5]


@pytest.mark.parametrize("call", [lambda sink, rows: sink(rows, 0), lambda sink, rows: sink.write(rows)])
def test_a_sink_that_a_task_calls_says_where_it_belongs(
    call: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that captured it takes it there: it can be pickled. A task has rows, and no DataFrame."""
    monkeypatch.setattr(query_account.TaskContext, "get", lambda: SimpleNamespace(partitionId=lambda: 7))
    sink = pickle.loads(pickle.dumps(SafeProducerSink(OPTIONS)))  # noqa: S301 - our own bytes
    with pytest.raises(ConfigurationError) as refused:
        call(sink, iter([]))
    assert str(refused.value) == (
        "a SafeProducerSink was called inside a task (of Spark partition 7), where there is no DataFrame to write. "
        "Call it on the driver: pass it to foreachBatch, or call write(df)"
    )


# --- format("safeproducer") ------------------------------------------------------------------------------------------


def messages(*found: TaskTotals | None, query: str | None = "query", note: str = "a note") -> list[Any]:
    """What tasks send; None for one that failed."""
    return [one and Written(one, query, (note,)) for one in found]


def test_a_micro_batch_is_reported_where_it_is_committed() -> None:
    """One event, the callback that the options name, and notes of tasks once."""
    source = SafeProducerDataSource({**OPTIONS, "safeproducer.spark.on.batch": f"{__name__}:keep"})
    with capture_logs() as logs:
        for batch in range(2):
            writer = source.streamWriter(VALUES, overwrite=False)  # as Spark: a new one for each commit
            writer.commit(messages(totals(0), totals(1)), batch)
    assert [(report.batch_id, report.query_id, report.rows) for report in REPORTS] == [
        (0, "query", 10),
        (1, "query", 10),
    ]
    assert [log["event"] for log in logs] == ["spark_note", "spark_batch_written", "spark_batch_written"]


def test_queries_have_accounts_of_their_own_and_few_are_kept() -> None:
    """A process that commits for years does not grow."""
    source = SafeProducerDataSource({**OPTIONS, "safeproducer.spark.on.batch": f"{__name__}:keep"})
    writer = source.streamWriter(VALUES, overwrite=True)  # output mode "complete": plain appends
    for query in range(MOST_QUERIES + 5):
        writer.commit(messages(totals(ids_used=1), query=str(query)), 0)
        writer.commit(messages(totals(ids_used=1, producer="reused"), query=str(query)), 1)
    assert {report.ids_per_hour for report in REPORTS} == {1}
    assert len(data_source._accounts) == MOST_QUERIES


def test_a_batch_write_is_reported_without_a_query() -> None:
    source = SafeProducerDataSource({**OPTIONS, "safeproducer.spark.on.batch": f"{__name__}:keep"})
    source.writer(VALUES, overwrite=False).commit(messages(totals(), query=None))
    assert [(report.batch_id, report.query_id) for report in REPORTS] == [(None, None)]


def test_an_aborted_micro_batch_says_what_was_written_nevertheless() -> None:
    """By the tasks that had succeeded; of what the others wrote there is no count."""
    with capture_logs() as logs:
        SafeProducerDataSource(OPTIONS).streamWriter(VALUES, overwrite=False).abort(messages(totals(), None), 9)
    (event,) = logs
    assert event["event"] == "spark_batch_aborted"
    assert (event["batch_id"], event["tasks"], event["tasks_written"], event["delivered_by_them"]) == (9, 2, 1, 5)


@pytest.mark.parametrize("missing", [(None, None), (None, 5)])
def test_a_commit_of_tasks_that_wrote_nothing_is_refused(missing: tuple[int | None, int | None]) -> None:
    """Spark commits so with a continuous trigger, for which it calls no writer: its offsets would pass the rows."""
    told = messages(*(rows and totals(rows=rows) for rows in missing))
    source = SafeProducerDataSource({**OPTIONS, "safeproducer.spark.on.batch": f"{__name__}:keep"})
    with capture_logs() as logs, pytest.raises(RuntimeError, match="nothing is committed"):
        source.streamWriter(VALUES, overwrite=False).commit(told, 3)
    with capture_logs(), pytest.raises(RuntimeError, match="nothing is committed"):
        source.writer(VALUES, overwrite=False).commit(told)
    (event,) = logs
    assert (event["event"], event["log_level"], event["batch_id"]) == ("spark_commit_refused", "error", 3)
    assert (event["tasks"], event["tasks_written"]) == (2, sum(rows is not None for rows in missing))
    assert REPORTS == []


def test_a_commit_without_tasks_is_none_of_these() -> None:
    """A micro-batch may have no rows, and no tasks."""
    SafeProducerDataSource(OPTIONS).streamWriter(VALUES, overwrite=False).commit([], 3)


def test_overwriting_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r'mode\("append"\)'):
        SafeProducerDataSource(OPTIONS).writer(VALUES, overwrite=True)


@pytest.mark.parametrize(
    "name", ["no.such.module:function", f"{__name__}:nothing", f"{__name__}:OPTIONS", "no function"]
)
@pytest.mark.parametrize(
    "door", [SafeProducerSink, lambda options: SafeProducerDataSource(options).writer(VALUES, False)]
)
def test_a_callback_that_is_not_there_is_refused_at_once(door: Callable[..., object], name: str) -> None:
    """By the name of the option and its value, before any task."""
    with pytest.raises(ConfigurationError, match=r"safeproducer\.spark\.on\.batch") as refused:
        door({**OPTIONS, "safeproducer.spark.on.batch": name})
    assert name in str(refused.value)
    assert "package.module:function" in str(refused.value)


def test_a_task_returns_totals_query_and_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the session are asked for in the task, which alone knows them; the message can be pickled."""
    properties = {"sql.streaming.queryId": "query", "spark.python.worker.reuse": "false"}
    context = SimpleNamespace(getLocalProperty=properties.get)
    monkeypatch.setattr(query_account.TaskContext, "get", lambda: context)
    monkeypatch.setattr(query_account, "write", lambda *_: totals())
    writer = SafeProducerDataSource(OPTIONS).streamWriter(VALUES, overwrite=False)
    message = pickle.loads(pickle.dumps(writer.write(iter([]))))  # noqa: S301 - our own bytes
    assert (message.totals, message.query_id) == (totals(), "query")
    assert ["reuse" in note for note in message.notes] == [True]
    properties["spark.speculation"] = "true"
    with pytest.raises(ConfigurationError, match="foreachBatch"):
        writer.write(iter([]))


def test_a_worker_with_little_address_space_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(getLocalProperty={}.get, partitionId=lambda: 0, attemptNumber=lambda: 0)
    monkeypatch.setattr(query_account, "_context", lambda: context)
    monkeypatch.setattr(query_account, "_told", set())
    for limit in (-1, 512 << 20, 300 << 20, 300 << 20):
        monkeypatch.setattr(query_account.resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        with capture_logs() as logs:
            query_account.write(iter([]), Options.parse(OPTIONS), "run")
        if limit == 300 << 20:
            break
        assert logs == []
    assert "may have 300 MB of address space" in logs[0]["note"]
    assert "512 MB a core at least (spark.executor.pyspark.memory)" in logs[0]["note"]


def test_outside_a_task_there_is_nothing_to_write() -> None:
    with pytest.raises(RuntimeError, match="inside a task of Spark"):
        query_account.write(iter([]), Options.parse(OPTIONS), "run")


# --- how Spark finds it ----------------------------------------------------------------------------------------------


def test_spark_finds_the_data_source_by_itself() -> None:
    """It looks for modules of this name with this class."""
    assert "pyspark_safeproducer" in {module.name for module in iter_modules()}
    assert issubclass(pyspark_safeproducer.DefaultSource, DataSource)
    assert pyspark_safeproducer.DefaultSource.name() == SafeProducerDataSource.name() == "safeproducer"
    source = pyspark_safeproducer.DefaultSource(OPTIONS)
    assert isinstance(source.writer(VALUES, False), data_source.Writer)
    assert isinstance(source.streamWriter(VALUES, False), data_source.StreamWriter)


def test_being_found_costs_nothing() -> None:
    """Spark imports the module in every session that uses any Python data source."""
    code = "import pyspark_safeproducer, sys; print({'safeproducer', 'confluent_kafka', 'pyarrow'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "set()\n", done.stderr
