"""Rows as blocks: each row is in one, behind those of its partition that came before; partitions are librdkafka's."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.pipeline.bulk import Block, Placing
from safeproducer.policy.partitioner import ANY, NAMES, murmur2, partitioner
from safeproducer.spark.columns import Columns
from safeproducer.spark.rows import MOST_ROWS, blocks, halves, hashes

KEYS = st.lists(st.none() | st.binary(max_size=40) | st.binary(min_size=250, max_size=300), max_size=40)
STICKY = 2


def placing(name: str, partitions: int) -> Placing:
    """A key that decides nothing goes to one partition."""
    choose = partitioner(name)

    def chosen(key: bytes | None) -> int:
        found = choose(key, partitions)
        return STICKY % partitions if found == ANY else found

    return Placing("t", partitions, name, chosen)


def columns_of(keys: list[bytes | None] | None, rows: int) -> Columns:
    columns: dict[str, Any] = {"value": pa.array([b"%d" % row for row in range(rows)], pa.binary())}
    if keys is not None:
        columns["key"] = pa.array(keys, pa.binary())
    return Columns.of(pa.RecordBatch.from_pydict(columns), "t")


@given(KEYS, st.integers(0, 5), st.sampled_from([pa.binary(), pa.large_binary()]))
def test_hashes_are_murmur2(keys: list[bytes | None], first: int, kind: Any) -> None:
    """Of a whole column as of each key, also where the column is a part of another one."""
    column = pa.array(keys, kind).slice(first)
    assert hashes(column).tolist() == [murmur2(key or b"") for key in keys[first:]]


@pytest.mark.parametrize("name", NAMES)
@given(KEYS, st.integers(1, 7))
def test_each_row_is_in_one_block(name: str, keys: list[bytes | None], partitions: int) -> None:
    """With its key and the bytes of both, in the block of the partition that produce() would choose, in order."""
    placed = placing(name, partitions)
    expected: dict[int, list[tuple[bytes, bytes | None, int]]] = {}
    for row, key in enumerate(keys):
        value = b"%d" % row
        size = len(value) + len(key or b"")
        expected.setdefault(placed.choose(key), []).append((value, key, size))
    found: dict[int, list[Any]] = {}
    for block in blocks(columns_of(keys, len(keys)), [placed]):
        found.setdefault(block.partition, []).extend(zip(block.values, block.keys, block.sizes, strict=True))
    assert found == expected


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.binary(max_size=4), st.none() | st.integers(0, 4))),
    st.sampled_from(["murmur2_random", "consistent_random"]),
    st.integers(1, 5),
)
def test_each_row_is_with_those_of_its_topic_and_partition(
    rows: list[tuple[str, bytes | None, int | None]], name: str, partitions: int
) -> None:
    """A row goes to the partition that it asks for, else to that of its key in its topic; in order."""
    counts = {"a": partitions, "b": 5}
    topics = list(dict.fromkeys(topic for topic, _, _ in rows))
    placings = [placing(name, counts[topic])._replace(topic=topic) for topic in topics]
    columns = {
        "value": pa.array([b"%d" % row for row in range(len(rows))], pa.binary()),
        "key": pa.array([key for _, key, _ in rows], pa.binary()),
        "topic": pa.array([topic for topic, _, _ in rows], pa.string()),
        "partition": pa.array([asked for _, _, asked in rows], pa.int32()),
    }
    expected: dict[tuple[str, int], list[Any]] = {}
    for number, (topic, key, asked) in enumerate(rows):
        partition = placings[topics.index(topic)].choose(key) if asked is None else asked
        expected.setdefault((topic, partition), []).append((b"%d" % number, key))
    found: dict[tuple[str, int], list[Any]] = {}
    for block in blocks(Columns.of(pa.RecordBatch.from_pydict(columns), None), placings):
        pairs = zip(block.values, block.keys, strict=True)
        found.setdefault((block.topic, block.partition), []).extend(pairs)
    assert found == expected


def test_blocks_are_bounded() -> None:
    """A block is accepted as a whole, so it is no larger than there is room for usually."""
    rows = 2 * MOST_ROWS + 1
    found = list(blocks(columns_of(None, rows), [placing("murmur2_random", 6)]))
    assert [len(block.sizes) for block in found] == [MOST_ROWS, MOST_ROWS, 1]
    assert {block.partition for block in found} == {STICKY}


def test_halves_have_all_rows() -> None:
    block = Block("t", 3, [b"a", b"b", b"c"], [None, b"k", None], [1, 2, 1])
    first, second = halves(block)
    assert first == Block("t", 3, [b"a"], [None], [1])
    assert second == Block("t", 3, [b"b", b"c"], [b"k", None], [2, 1])
