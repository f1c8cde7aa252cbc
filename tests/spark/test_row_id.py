"""Each row has an id that its copies have, too: readers tell copies from rows by it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType
from structlog.testing import capture_logs

from safeproducer import ConfigurationError
from safeproducer.spark import SafeProducerSink
from safeproducer.spark.errors import KafkaWriteError
from safeproducer.spark.options import Options
from safeproducer.spark.schema_check import check_schema
from safeproducer.spark.sink import _only_written
from safeproducer.spark.task import Task, write_task
from safeproducer.spark.worker_producers import producers
from safeproducer.testing import FakeCluster
from tests.contract.support import poll_until
from tests.inside import engine_of
from tests.spark.arrow import HEADERS, batch, rows
from tests.spark.conftest import MakeOptions
from tests.spark.test_doors import OPTIONS, Frame, totals

TASK = Task(5, 0, "the-query", 7, "a-run")
POSITION = {"safeproducer_spark_row_id": "position"}
OF_COLUMN = {"safeproducer_spark_row_id": "column:event"}


def ids(cluster: FakeCluster, topic: str = "rows", partitions: int = 3) -> list[tuple[bytes, Any]]:
    """(value, id) of each record; None without one, a list when there are many."""
    found = []
    for partition in range(partitions):
        for record in cluster.log(topic, partition):
            named = [content for name, content in record.headers or () if name == "sp-id"]
            found.append((record.value or b"", named[0] if len(named) == 1 else named or None))
    return found


@pytest.mark.parametrize("more", [{}, {"headers": True}, {"timestamp": True}], ids=str)
def test_the_position_of_a_row_is_its_id(more: dict[str, Any], cluster: FakeCluster, options: MakeOptions) -> None:
    """Counted over all Arrow batches of the Spark partition; other headers stay, in front."""

    def sent(first: int) -> pa.RecordBatch:
        columns: dict[str, Any] = {}
        if "headers" in more:
            columns["headers"] = pa.array([[("h", b"%d" % n)] if n % 2 else None for n in range(1500)], HEADERS)
        if "timestamp" in more:
            columns["timestamp"] = pa.array([1_700_000_000] * 1500, pa.timestamp("s", tz="UTC"))
        return batch([b"%d" % (first + n) for n in range(1500)], **columns)

    write_task([sent(0), sent(1500)], options(**POSITION), TASK)
    assert sorted(ids(cluster)) == sorted((b"%d" % n, b"1:the-query:7:5:%d" % n) for n in range(3000))
    if "headers" in more:
        for partition in range(3):
            for record in cluster.log("rows", partition):
                number = int(record.value or b"") % 1500
                assert [name for name, _ in record.headers or ()] == (["h", "sp-id"] if number % 2 else ["sp-id"])


def test_an_id_counts_as_a_header(cluster: FakeCluster, options: MakeOptions) -> None:
    """A record that a quota rejects is not sent again without it: a report brings no headers back."""
    made = options(**POSITION)
    write_task([rows(0, 10)], made, TASK)
    (worker,) = producers._idle.values()
    poll_until(worker.kafka, lambda: engine_of(worker.kafka).route.goes_direct)
    rejections = engine_of(worker.kafka).counters.report_queue.rejections
    assert rejections is not None
    rejections.with_headers.clear()
    write_task([rows(10, 10)], made, TASK)
    assert rejections.with_headers == {"rows"}


def test_each_attempt_gives_a_row_the_same_id(cluster: FakeCluster, options: MakeOptions) -> None:
    """Also a replay, and where a bad row was taken out: copies are dropped by it, and each row is there once."""
    old = pa.array([10**6 * int(n != 3) for n in range(10)], pa.timestamp("us", tz="UTC"))
    cluster.create_topic("dead", 1)
    made = options(**POSITION, safeproducer_spark_bad_rows="topic", safeproducer_spark_bad_rows_topic="dead")

    def batches(*, fails: bool) -> Iterator[pa.RecordBatch]:
        yield batch([b"%d" % n for n in range(10)], timestamp=old)
        if fails:
            raise LookupError("upstream")
        yield batch([b"%d" % n for n in range(10, 20)], timestamp=pa.array([10**6] * 10, old.type))

    for attempt in range(2):
        with pytest.raises(LookupError):
            write_task(batches(fails=True), made, replace(TASK, attempt=attempt))
    write_task(batches(fails=False), made, replace(TASK, attempt=2))
    write_task(batches(fails=False), made, replace(TASK, run="another"))
    found = ids(cluster)
    assert len(found) > len(set(found)) == 19
    assert {name for _, name in found} == {b"1:the-query:7:5:%d" % n for n in range(20) if n != 3}
    assert set(ids(cluster, "dead", 1)) == {(b"3", b"1:the-query:7:5:3")}


def test_a_consumer_drops_copies_as_the_document_says(cluster: FakeCluster, options: MakeOptions) -> None:
    """Its code, on a topic that has each row twice; and what it remembers is bounded."""
    code = (Path(__file__).parents[2] / "docs/use/spark-copies.md").read_text(encoding="utf-8")
    (recipe,) = [block for block in re.findall(r"```python\n(.*?)```", code, re.DOTALL) if "class Once" in block]
    found: dict[str, Any] = {}
    exec(recipe, found)  # noqa: S102
    for _ in range(2):
        write_task([rows(0, 500)], options(**POSITION), TASK)
    write_task([rows(500, 5)], options(), TASK)
    once, kept = found["Once"](), []
    for name, value in ((name, value) for value, name in ids(cluster)):
        message = SimpleNamespace(headers=lambda name=name: None if name is None else [("sp-id", name)])
        if not once.is_copy(message):
            kept.append(value)
    assert sorted(int(value.split(b"-")[0]) for value in kept) == list(range(505))
    few = found["Once"](most=2)
    told = [
        few.is_copy(SimpleNamespace(headers=lambda name=name: [("sp-id", name)])) for name in (b"1", b"2", b"3", b"1")
    ]
    assert told == [False] * 4


def test_rows_of_other_tasks_have_other_ids(cluster: FakeCluster, options: MakeOptions) -> None:
    """Of another query, micro-batch, Spark partition; a write that is no query's has its run."""
    tasks = [TASK, replace(TASK, batch_id=8), replace(TASK, partition=6), replace(TASK, query_id="other")]
    tasks += [Task(5, 0, None, None, run) for run in ("first", "second")]
    for task in tasks:
        write_task([rows(0, 3)], options(**POSITION), task)
    found = [name for _, name in ids(cluster)]
    assert len(set(found)) == len(found) == 3 * len(tasks)
    assert b"1:first::5:0" in found


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string()], ids=str)
def test_a_column_may_have_the_ids(kind: pa.DataType, cluster: FakeCluster, options: MakeOptions) -> None:
    """Of text or bytes. A row without one has no such header."""
    names = [None if n % 3 == 0 else f"event-{n}" for n in range(2000)]
    column = pa.array([name and name.encode() for name in names], pa.binary()).cast(kind)
    write_task([batch([b"%d" % n for n in range(2000)], event=column)], options(**OF_COLUMN), TASK)
    assert sorted(ids(cluster), key=lambda one: int(one[0])) == [
        (b"%d" % n, None if name is None else name.encode()) for n, name in enumerate(names)
    ]


def test_an_id_counts_in_the_size_of_a_row(cluster: FakeCluster, options: MakeOptions) -> None:
    """A row that its id makes too large is named before it is sent."""
    cluster.set_topic_config("rows", "max.message.bytes", "5000")
    value = b"x" * 4915
    assert write_task([batch([value])], options(), TASK).delivered == 1
    with pytest.raises(KafkaWriteError, match="row_too_large"):
        write_task([batch([value])], options(**POSITION), TASK)


@pytest.mark.parametrize(
    ("row_id", "batch", "query", "told"),
    [
        ("position", 3, None, True),
        ("position", 3, "a-query", False),
        ("position", None, None, False),
        ("column:event", 3, None, False),
    ],
)
def test_the_driver_tells_of_ids_that_another_run_will_not_give_again(
    row_id: str, batch: int | None, query: str | None, told: bool
) -> None:
    """Under Spark Connect, which tells no query's ID to foreachBatch."""
    schema = StructType([StructField(name, StringType()) for name in ("value", "event")])
    frame: Any = Frame(totals(), schema=schema)
    frame.properties["sql.streaming.queryId"] = query
    write = SafeProducerSink({**OPTIONS, "safeproducer.spark.row.id": row_id})
    with capture_logs() as logs:
        write._write(frame, batch)
    notes = [log["note"] for log in logs if log["event"] == "spark_note"]
    assert [note for note in notes if "have other ids" in note] == notes[: int(told)]


def checked(fields: Sequence[tuple[str, Any]], row_id: str) -> object:
    made = Options.parse({"kafka.bootstrap.servers": "b:1", "topic": "t", "safeproducer.spark.row.id": row_id})
    schema = StructType([StructField(name, kind) for name, kind in fields])
    return check_schema(schema, made, data_source=True)


@pytest.mark.parametrize(
    ("name", "kind", "sentence"),
    [
        ("other", StringType(), "there is no column 'Event', which safeproducer.spark.row.id names"),
        ("Event", LongType(), "column 'Event' is of type bigint, and must be binary or string"),
    ],
)
def test_a_column_that_is_not_there_or_no_text_is_refused(name: str, kind: Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        checked([("value", StringType()), (name, kind)], "column:Event")


def test_the_column_of_the_ids_goes_to_the_tasks() -> None:
    """The data source does not tell to drop it, and the sink leaves it in."""

    class Frame:
        schema = StructType([StructField(name, BinaryType()) for name in ("value", "event", "more")])

        def toDF(self, *names: str) -> Frame:  # noqa: N802 - Spark's name
            return self

        def select(self, *names: str) -> tuple[str, ...]:
            return names

    assert checked([("value", StringType()), ("event", StringType())], "column:event") == ()
    given = {"kafka.bootstrap.servers": "b:1", "topic": "t", "safeproducer.spark.row.id": "column:event"}
    assert _only_written(Frame(), Options.parse(given)) == ("value", "event")  # type: ignore[arg-type,comparison-overlap]


@pytest.mark.parametrize("text", ["", "row", "column:", "columns:event", "position:x"])
def test_other_values_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="it must be position, or column:NAME"):
        checked([("value", StringType())], text)
