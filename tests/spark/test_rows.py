"""The inner loops: what produce() refuses is sent again, and what a signal handler raises is not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from safeproducer import SafeProducer
from safeproducer.pipeline.bulk import placing
from safeproducer.pipeline.cluster.id_expirations import OldTimestamps
from safeproducer.pipeline.route import Route
from safeproducer.policy.partitioner import murmur2
from safeproducer.spark import rows
from safeproducer.spark.columns import Columns
from safeproducer.spark.options import Options
from safeproducer.spark.report import TaskTotals
from safeproducer.spark.rows import produce_rows
from safeproducer.spark.task import Task, write_task
from safeproducer.spark.worker_producers import producers
from safeproducer.testing import FakeCluster
from tests.contract.support import poll_until
from tests.inside import engine_of
from tests.spark.arrow import HEADERS, batch
from tests.spark.conftest import MakeOptions

COUNT = 2_500
VALUES = [b"%d-" % row for row in range(COUNT)]
ONE_BY_ONE: dict[str, dict[str, Any]] = {
    "topics": {"topic": ["rows", "other"] * (COUNT // 2)},
    "partition": {"partition": pa.array([1] * COUNT, pa.int32())},
    "headers": {"headers": pa.array([[("h", b"x")]] * COUNT, HEADERS)},
}


@pytest.fixture
def held(cluster: FakeCluster) -> Iterator[SafeProducer]:
    """A producer whose records wait before they go, as on long links."""
    config = {"bootstrap.servers": cluster.bootstrap, "safeproducer.mode": "held", "log_level": 0}
    with SafeProducer({**config, "delivery.report.only.error": True}) as made:
        made.list_topics("rows", timeout=10)
        assert placing(engine_of(made), "rows") is not None
        yield made
        made.purge()


def interrupted(*_: Any) -> None:
    """As a signal handler of the application may do anywhere."""
    raise TimeoutError("out of a signal handler")


def ignored(part: Columns, row: int) -> Any:
    return lambda *_: None


def never(*record: Any, **_: Any) -> None:
    raise AssertionError(f"sent again: {record}")


@pytest.mark.parametrize("loop", ONE_BY_ONE)
def test_an_exception_of_a_signal_handler_is_no_refusal_of_a_row(
    loop: str, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether that row was accepted is not known then: sent again, it might be in the topic twice."""
    columns = Columns.of(batch(VALUES, **ONE_BY_ONE[loop]), None)
    monkeypatch.setattr(SafeProducer, "produce", interrupted)
    with (
        SafeProducer({"bootstrap.servers": cluster.bootstrap}) as near,
        pytest.raises(TimeoutError, match="out of a signal handler"),
    ):
        produce_rows(columns, "rows", near, ignored, never)


def test_an_exception_of_a_signal_handler_is_no_refusal_of_a_block(held: SafeProducer) -> None:
    """Its rows wait by then, and go once."""
    engine_of(held).dispatcher.intake._extended = interrupted
    with pytest.raises(TimeoutError, match="out of a signal handler"):
        produce_rows(Columns.of(batch(VALUES[:100]), "rows"), "rows", held, ignored, never)
    assert held.snapshot().accepted == 100


@pytest.mark.parametrize(("answers", "parts"), [(None, [0, 1000, 2000]), (placing, [0])], ids=["near", "far"])
def test_a_batch_is_looked_at_once(answers: Any, parts: list[int], held: SafeProducer) -> None:
    """How its rows go stays as it was when it began; whole where they wait, else with a poll after each 1 000 rows.
    There is one before it looks, too."""
    seen: list[int] = []
    looks = mock.Mock(side_effect=[answers and answers(engine_of(held), "rows")])

    def reports(part: Columns, row: int) -> Any:
        seen.append(row)
        return lambda *_: None

    with mock.patch.object(rows, "placing", looks), mock.patch.object(SafeProducer, "poll") as polls:
        produce_rows(Columns.of(batch(VALUES), "rows"), "rows", held, reports, never)
    assert (seen, polls.call_count) == (parts, 1 + len(parts))
    assert held.flush(10) == 0


def test_rows_go_in_blocks_where_each_of_their_topics_takes_some(held: SafeProducer) -> None:
    """Else one by one: a block has a partition, which is not known for one of the topics."""
    placed = placing(engine_of(held), "rows")
    columns = Columns.of(batch(VALUES, **ONE_BY_ONE["topics"]), None)
    for known, at_once in (([placed, placed], COUNT), ([placed, None], rows._POLL_EVERY)):
        with mock.patch.object(rows, "placing", side_effect=known):
            assert rows._loop(columns, None, held)[1] == at_once


IN_BLOCKS: dict[str, dict[str, Any]] = {
    "value": {},
    "topics": ONE_BY_ONE["topics"],
    "partition": {"partition": pa.array([None, 2, 0, None, 1] * (COUNT // 5), pa.int32())},
}
IN_BLOCKS["both"] = IN_BLOCKS["topics"] | IN_BLOCKS["partition"]


def written(names: str, cluster: FakeCluster, made: Options) -> TaskTotals:
    """Write 2 500 rows with these columns; each is in its topic and partition, behind those that came before."""
    keys = [b"%d" % (row % 7) for row in range(COUNT)]
    totals = write_task([batch(VALUES, key=keys, **IN_BLOCKS[names])], made, Task(0, 0))
    assert totals.delivered == COUNT
    topics = IN_BLOCKS[names].get("topic", ["rows"] * COUNT)
    asked = IN_BLOCKS[names]["partition"].to_pylist() if "partition" in IN_BLOCKS[names] else [None] * COUNT
    expected: dict[tuple[str, int], list[bytes]] = {}
    for value, key, topic, partition in zip(VALUES, keys, topics, asked, strict=True):
        expected.setdefault((topic, murmur2(key) % 3 if partition is None else partition), []).append(value)
    for (topic, partition), values in expected.items():
        assert [record.value for record in cluster.log(topic, partition)] == values
    return totals


@pytest.mark.parametrize("names", IN_BLOCKS)
def test_rows_that_wait_go_in_blocks(
    names: str, cluster: FakeCluster, options: MakeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each topic and partition, without a call for each row."""
    cluster.create_topic("other", 3)
    monkeypatch.setattr(SafeProducer, "produce", never)
    monkeypatch.setattr(rows, "produce_records", never)
    written(names, cluster, options(None if "topic" in IN_BLOCKS[names] else "rows", safeproducer_mode="held"))


HEADERS_OF = [None if row % 5 == 0 else [("n", b"%d" % row), ("n", None)] for row in range(COUNT)]
TIMES_OF = [None if row % 7 == 0 else 1_700_000_000_000 + row for row in range(COUNT)]
EXTRAS: dict[str, dict[str, Any]] = {
    "headers": {"headers": pa.array(HEADERS_OF, HEADERS)},
    "timestamp": {"timestamp": pa.array(TIMES_OF, pa.timestamp("ms", tz="UTC"))},
}
EXTRAS["both"] = EXTRAS["headers"] | EXTRAS["timestamp"]


def check_extras(names: str, cluster: FakeCluster, began: float) -> None:
    """Each row is there once, with what is its own, and the time of its writing where it has no other."""
    log = [record for partition in range(3) for record in cluster.log("rows", partition) if record.value != b"first-"]
    found = {record.value: record for record in log}
    assert len(log) == len(found) == COUNT
    for row, value in enumerate(VALUES):
        assert found[value].headers == (tuple(HEADERS_OF[row] or ()) if "headers" in EXTRAS[names] else ())
        if "timestamp" in EXTRAS[names] and TIMES_OF[row] is not None:
            assert found[value].timestamp == TIMES_OF[row]
        else:
            assert began * 1000 - 1 <= found[value].timestamp <= time.time() * 1000


@pytest.mark.parametrize("names", EXTRAS)
def test_rows_with_headers_or_a_timestamp_wait_one_by_one(
    names: str, cluster: FakeCluster, options: MakeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where others wait in blocks: a call for each row, which keeps what is its own, in its partition and order."""
    produce, calls = SafeProducer.produce, []

    def counted(self: SafeProducer, *record: Any) -> None:
        calls.append(record[1])
        produce(self, *record)

    monkeypatch.setattr(SafeProducer, "produce", counted)
    monkeypatch.setattr(rows, "produce_block", never)
    keys = [b"%d" % (row % 7) for row in range(COUNT)]
    made, began = options(safeproducer_mode="held"), time.time()
    assert write_task([batch(VALUES, key=keys, **EXTRAS[names])], made, Task(0, 0)).delivered == COUNT
    assert calls == VALUES
    for partition in range(3):
        expected = [VALUES[row] for row in range(COUNT) if murmur2(keys[row]) % 3 == partition]
        assert [record.value for record in cluster.log("rows", partition)] == expected
    check_extras(names, cluster, began)


def write_first_rows(made: Options) -> None:
    """One to each partition, by a producer that is kept; what follows goes directly."""
    write_task([batch([b"first-"], partition=pa.array([number], pa.int32())) for number in range(3)], made, Task(0, 0))
    (worker,) = producers._idle.values()
    poll_until(worker.kafka, lambda: engine_of(worker.kafka).route.goes_direct)


@pytest.mark.parametrize("names", EXTRAS)
def test_rows_with_headers_or_a_timestamp_share_a_callback_where_they_can_be_told_apart(
    names: str, cluster: FakeCluster, options: MakeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Near the brokers: no callback and no note is made for a row, and each row has what is its own."""
    made, began = options(), time.time()
    write_first_rows(made)
    noted: list[int] = []
    monkeypatch.setattr(OldTimestamps, "note", lambda self, topic, at: noted.append(at))
    assert write_task([batch(VALUES, **EXTRAS[names])], made, Task(0, 0)).delivered == COUNT
    oldest = [min(filter(None, TIMES_OF[first : first + 1000])) for first in (0, 1000, 2000)]
    assert noted == (oldest if "timestamp" in EXTRAS[names] else [0, 0, 0])
    check_extras(names, cluster, began)


@pytest.mark.parametrize("names", EXTRAS)
def test_rows_wait_where_the_way_changes_in_the_middle_of_a_batch(
    names: str, cluster: FakeCluster, options: MakeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of them goes another way: each row once, with what is its own."""
    made, began = options(), time.time()
    write_first_rows(made)
    produced, records, choose = SafeProducer.produce, rows.produce_records, Route.choose
    left: list[Any] = []

    def once(engine: Any, *args: Any) -> None:
        records(engine, *args)
        monkeypatch.setattr(Route, "choose", lambda route, direct: choose(route, False))
        engine.route.hold()

    def counted(self: SafeProducer, *record: Any) -> None:
        left.append(record[1])
        produced(self, *record)

    monkeypatch.setattr(rows, "produce_records", once)
    monkeypatch.setattr(SafeProducer, "produce", counted)
    assert write_task([batch(VALUES, **EXTRAS[names])], made, Task(0, 0)).delivered == COUNT
    assert left == VALUES[1_000:]
    check_extras(names, cluster, began)


def test_rows_that_a_report_does_not_tell_apart_have_a_callback_of_their_own(cluster: FakeCluster) -> None:
    """Equal but for their headers: each is named by its row; others share one."""
    told: list[int | None] = []

    def reports(part: Columns, first: int) -> Any:
        return lambda error, message, row=None: told.append(row)

    config = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
    for values, expected in (([b"a", b"a", b"b"], [0, 1, 2]), ([b"a", b"b", b"c"], [None] * 3)):
        sent = batch(values, key=[b"k"] * 3, headers=pa.array([[("h", b"%d" % row)] for row in range(3)], HEADERS))
        with SafeProducer(config) as near:
            produce_rows(Columns.of(sent, "rows"), "rows", near, reports, never)
        assert sorted(told, key=str) == expected
        told.clear()


@pytest.mark.parametrize(
    "headers",
    [
        [[("h", b"1"), ("i", None)]] * 4,
        [[("h", b"%d" % row), ("i", b"same")] for row in range(COUNT)],
        [[(f"n{row}", b"x")] for row in range(4)],
        [[("h", one)] for one in (b"same", b"other", None, b"same")],
        [[("h", one)] for one in (None, None, b"other", None)],
        [[(one, b"x")] for one in ("same", "other", "same", "same")],
        [[("h", b"1")], None, [], [("h", b"1"), ("h", b"2")]],
        [[("h", b"1")], [("h", b"1"), ("h", b"2")], [], [("h", b"3")]],
        [[], [], [], []],
    ],
)
def test_headers_by_columns_are_those_of_the_rows(headers: list[Any]) -> None:
    """Whether all rows have as many or not, and also of a part of a batch."""
    columns = Columns.of(batch([b"x"] * len(headers), headers=pa.array(headers, HEADERS)), "t")
    assert [one or None for one in columns.all_headers()] == [one or None for one in headers]
    assert [one or None for one in columns.slice(1, 2).all_headers()] == [one or None for one in headers[1:3]]


def test_a_block_has_one_timestamp(cluster: FakeCluster, options: MakeOptions) -> None:
    """That of the moment at which it was accepted, though its records leave in many batches."""
    cluster.delay(0.02, api="Produce", side="request")
    made = options(safeproducer_mode="held")
    made.config["batch.num.messages"] = "10"
    assert write_task([batch(VALUES[:200], key=[b"one"] * 200)], made, Task(0, 0)).delivered == 200
    times = {record.timestamp for partition in range(3) for record in cluster.log("rows", partition)}
    assert len(times) == 1


@pytest.mark.parametrize("names", IN_BLOCKS)
def test_rows_find_room_in_their_order(names: str, cluster: FakeCluster, options: MakeOptions) -> None:
    """Of a block for which there is no room, as much is taken as there is room for."""
    cluster.create_topic("other", 3)
    cluster.delay(0.02, api="Produce", side="request")
    made = options(None if "topic" in IN_BLOCKS[names] else "rows", safeproducer_mode="held")
    made.config["queue.buffering.max.messages"] = "300"
    assert written(names, cluster, made).seconds_without_room > 0
