"""Columns as Spark gives them reach Kafka byte by byte: every form of binary and string, and each set of columns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import chain, combinations
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from safeproducer.spark import columns
from safeproducer.spark.task import Task, write_task
from safeproducer.testing import FakeCluster
from tests.spark.arrow import HEADERS, batch
from tests.spark.conftest import MakeOptions

TASK = Task(0, 0)
BINARY = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int32(), pa.binary())]
STRING = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]


def log(cluster: FakeCluster, topic: str = "rows", partitions: int = 3) -> list[Any]:
    records = chain.from_iterable(cluster.log(topic, partition) for partition in range(partitions))
    return sorted(records, key=lambda record: record.value or b"")


@pytest.mark.parametrize("kind", BINARY, ids=str)
def test_every_form_of_binary(kind: pa.DataType, cluster: FakeCluster, options: MakeOptions) -> None:
    """Null stays null, and empty stays empty, which is not null."""
    contents = [b"a\x00\xff", None, b"", b"longer than what a view keeps in place"]
    write_task([batch(contents, kind, key=pa.array(contents, kind))], options(), TASK)
    found = [(record.key, record.value) for record in log(cluster)]
    assert sorted(found, key=repr) == sorted(((content, content) for content in contents), key=repr)


@pytest.mark.parametrize("kind", STRING, ids=str)
def test_every_form_of_string(kind: pa.DataType, cluster: FakeCluster, options: MakeOptions) -> None:
    """The bytes of a string are its UTF-8; a topic may be any of them."""
    contents = ["ä€😀", None, "", "longer than what a view keeps in place"]
    topics = pa.array(["rows"] * 4, kind)
    write_task([batch(contents, kind, key=pa.array(contents, kind), topic=topics)], options(topic=None), TASK)
    expected = [None if content is None else content.encode() for content in contents]
    found = [(record.key, record.value) for record in log(cluster)]
    assert sorted(found, key=repr) == sorted(((content, content) for content in expected), key=repr)


def test_fixed_size_binary(cluster: FakeCluster, options: MakeOptions) -> None:
    """Spark has no such type, but Arrow has: its bytes as they are."""
    write_task([batch([b"ab", None], pa.binary(2))], options(), TASK)
    assert [record.value for record in log(cluster)] == [None, b"ab"]


@pytest.mark.parametrize(("name", "content"), [*zip(STRING, BINARY, strict=True)], ids=str)
def test_every_form_of_headers(
    name: pa.DataType, content: pa.DataType, cluster: FakeCluster, options: MakeOptions
) -> None:
    """A mask may say that a list is null, and anything may be behind it."""
    fields = [pa.array(["h", "not this", "ä"], name), pa.array([b"\xff", b"", None], content)]
    pairs, masked = pa.StructArray.from_arrays(fields, ["key", "value"]), pa.array([False, True, False])
    headers = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), pairs, mask=masked)
    write_task([batch([b"1", b"2", b"3"], headers=headers)], options(), TASK)
    assert [record.headers for record in log(cluster)] == [(("h", b"\xff"),), (), (("ä", None),)]


@pytest.mark.parametrize("second", [None, [{"key": "a", "value": b"2"}]], ids=["unequally many", "equally many"])
def test_headers_of_an_arrow_batch_are_flattened_once(
    second: list[dict[str, Any]] | None, cluster: FakeCluster, options: MakeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of names, that of sizes and the rows themselves need them."""
    flattened: list[int] = []

    def flatten(lists: Any) -> Any:
        flattened.append(len(lists))
        return pc.list_flatten(lists)

    counting = SimpleNamespace(**{**vars(pc), "list_flatten": flatten})
    monkeypatch.setattr(columns, "pc", counting)
    headers = pa.array([[{"key": "a", "value": b"1"}], second], HEADERS)
    write_task([batch([b"1", b"2"], headers=headers)], options(), TASK)
    assert flattened == [2]
    assert [len(record.headers) for record in log(cluster)] == [1, 0 if second is None else 1]


COLUMNS = ("key", "partition", "headers", "timestamp")
SETS = [names for count in range(5) for names in combinations(COLUMNS, count)]
TIME = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
GIVEN: dict[str, Any] = {
    "key": [b"k1", None, b""],
    "partition": pa.array([2, None, 0], pa.int32()),
    "headers": pa.array(
        [[{"key": "a", "value": b"x"}, {"key": "a", "value": None}, {"key": "ä", "value": b""}], None, []], HEADERS
    ),
    "timestamp": pa.array([TIME, None, TIME + timedelta(microseconds=1999)], pa.timestamp("us", tz="UTC")),
}


@pytest.mark.parametrize("by_column", [False, True], ids=["topic option", "topic column"])
@pytest.mark.parametrize("names", SETS, ids=lambda names: "+".join(names) or "value")
def test_each_set_of_columns(
    names: tuple[str, ...], by_column: bool, cluster: FakeCluster, options: MakeOptions
) -> None:
    """Each row has what its columns say, and what librdkafka gives where a column is missing or null."""
    given = {name: GIVEN[name] for name in names}
    if by_column:
        given["topic"] = ["rows"] * 3
    totals = write_task([batch([b"0", b"1", b"2"], **given)], options(None if by_column else "rows"), TASK)
    assert totals.delivered == totals.topics["rows"].delivered == 3
    records = log(cluster)
    assert [record.value for record in records] == [b"0", b"1", b"2"]
    assert [record.key for record in records] == (GIVEN["key"] if "key" in names else [None] * 3)
    if "partition" in names:
        assert b"0" in [record.value for record in cluster.log("rows", 2)]
        assert b"2" in [record.value for record in cluster.log("rows", 0)]
    first = (("a", b"x"), ("a", None), ("ä", b"")) if "headers" in names else ()
    assert [record.headers for record in records] == [first, (), ()]
    base = int(TIME.timestamp() * 1000)
    now = datetime.now(UTC).timestamp() * 1000
    for record, exact in zip(records, (base, None, base + 1), strict=True):
        if "timestamp" in names and exact is not None:
            assert record.timestamp == exact
        else:
            assert abs(record.timestamp - now) < 60_000


def test_the_option_wins_over_the_topic_column(cluster: FakeCluster, options: MakeOptions) -> None:
    """As in Spark's sink; the column may name topics that are not there, or none."""
    totals = write_task([batch([b"0", b"1"], topic=["nowhere", None])], options("rows"), TASK)
    assert totals.topics["rows"].delivered == 2


def test_columns_are_found_by_their_exact_names_and_others_are_left_out(
    cluster: FakeCluster, options: MakeOptions
) -> None:
    """As in Spark's own Kafka sink, and as the driver has checked them: `KEY` is another column than `key`."""
    odd = batch([b"0"], key=[b"k"], KEY=[b"another"], Timestamp=[5], Headers=[1], extra=[1])
    assert write_task([odd], options(), TASK).delivered == 1
    (record,) = log(cluster)
    assert (record.key, record.headers) == (b"k", ())
    assert record.timestamp != 5


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "America/New_York", None])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_timestamp_is_the_same_moment_in_every_zone(
    unit: str, zone: str | None, cluster: FakeCluster, options: MakeOptions
) -> None:
    """Spark tells the session's zone with the type; the number behind it counts in UTC."""
    moment = pa.array([1_774_747_800], pa.int64())
    times = pc_cast(moment, unit, zone)
    write_task([batch([b"0"], timestamp=times)], options(), TASK)
    assert [record.timestamp for record in log(cluster)] == [1_774_747_800_000]


def pc_cast(seconds: pa.Array, unit: str, zone: str | None) -> pa.Array:
    """Seconds since the epoch as a timestamp of that type."""
    return seconds.cast(pa.timestamp("s", tz=zone)).cast(pa.timestamp(unit, tz=zone))


def test_slices_of_a_larger_batch(cluster: FakeCluster, options: MakeOptions) -> None:
    """An Arrow batch may begin in the middle of its buffers."""
    whole = batch(
        [b"%d" % n for n in range(6)],
        topic=["rows"] * 6,
        headers=pa.array([[{"key": f"h{n}", "value": b"%d" % n}] * n for n in range(6)], HEADERS),
        timestamp=pa.array([1000 * (n + 1) for n in range(6)], pa.timestamp("ms", tz="UTC")),
    )
    write_task([whole.slice(3, 2)], options(topic=None), TASK)
    records = log(cluster)
    assert [record.value for record in records] == [b"3", b"4"]
    assert [record.headers for record in records] == [((("h3", b"3"),) * 3), ((("h4", b"4"),) * 4)]
    assert [record.timestamp for record in records] == [4000, 5000]


def test_a_thousand_topics_from_the_column(cluster: FakeCluster, options: MakeOptions) -> None:
    """One metadata request for all of them, and each has its account."""
    names = [f"many-{n}" for n in range(1000)]
    for name in names:
        cluster.create_topic(name, 1)
    totals = write_task([batch([b"%d" % n for n in range(2000)], topic=names * 2)], options(topic=None), TASK)
    assert totals.delivered == 2000
    assert {name: topic.delivered for name, topic in totals.topics.items()} == dict.fromkeys(names, 2)
    assert all(len(cluster.log(name, 0)) == 2 for name in names[::100])


def test_one_large_row(cluster: FakeCluster, options: MakeOptions) -> None:
    """900 kB is below all limits."""
    write_task([batch([b"x" * 900_000])], options(), TASK)
    assert [len(record.value) for record in log(cluster)] == [900_000]
