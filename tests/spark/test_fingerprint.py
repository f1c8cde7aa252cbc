"""The fingerprint of rows tells contents apart, and neither their order nor how they come in batches."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.spark import fingerprint as module
from safeproducer.spark.columns import Columns
from safeproducer.spark.fingerprint import fingerprint
from safeproducer.spark.markers import Print
from tests.spark.arrow import HEADERS, batch

Row = dict[str, Any]
KINDS: dict[str, pa.DataType] = {
    "value": pa.binary(),
    "key": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "headers": HEADERS,
    "timestamp": pa.timestamp("us", tz="UTC"),
}
BYTES = st.none() | st.binary(max_size=40)
ROWS = st.fixed_dictionaries(
    {
        "value": BYTES,
        "key": BYTES,
        "topic": st.none() | st.sampled_from(["a", "b"]),
        "partition": st.none() | st.integers(-1, 5),
        "headers": st.none()
        | st.lists(st.fixed_dictionaries({"key": st.text("ab", min_size=1), "value": BYTES}), max_size=3),
        "timestamp": st.none() | st.datetimes(datetime(2000, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),
    }
)


def arrow(rows: list[Row]) -> pa.RecordBatch:
    columns = {name: pa.array([row.get(name) for row in rows], kind) for name, kind in KINDS.items()}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def of(rows: list[Row]) -> Print:
    return fingerprint(Columns.of(arrow(rows), None))


def canonical(row: Row) -> str:
    """What is written of it: no headers are no headers, and a time has milliseconds."""
    when = row["timestamp"]
    seen = {**row, "headers": row["headers"] or None, "timestamp": when and int(when.timestamp() * 1000)}
    return repr([seen[name] for name in KINDS])  # Hypothesis may change the order of a row's columns


@given(st.lists(ROWS, max_size=12), st.lists(ROWS, max_size=12), st.randoms())
def test_same_rows_have_one_fingerprint_and_others_another(
    rows: list[Row], others: list[Row], dice: random.Random
) -> None:
    """In any order, and in two batches of any size."""
    shuffled = dice.sample(rows, len(rows))
    at = dice.randint(0, len(rows))
    assert of(rows) == of(shuffled[:at]).plus(of(shuffled[at:]))
    alike = sorted(map(canonical, rows)) == sorted(map(canonical, others))
    assert (of(rows) == of(others)) == alike


BASE: Row = {
    "value": b"some value",
    "key": b"k",
    "topic": "a",
    "partition": 1,
    "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
    "timestamp": datetime(2020, 1, 1, tzinfo=UTC),
}
CHANGED: list[Row] = [
    {"value": b"some valuf"},
    {"value": b"some value\0"},
    {"value": None},
    {"value": b""},
    {"value": b"k", "key": b"some value"},
    {"key": None},
    {"topic": "b"},
    {"partition": None},
    {"partition": 0},
    {"headers": []},
    {"headers": [{"key": "b", "value": None}, {"key": "a", "value": b"1"}]},
    {"headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": b""}]},
    {"timestamp": None},
    {"timestamp": datetime(2020, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)},
]


@pytest.mark.parametrize("change", CHANGED)
def test_each_column_counts(change: Row) -> None:
    assert of([BASE]) != of([{**BASE, **change}])


def test_the_topic_of_the_options_counts_as_a_column_would() -> None:
    """Two sinks of a query with one name write the same rows to two topics: the second one would find them there."""
    plain = {name: value for name, value in BASE.items() if name != "topic"}
    columns = Columns.of(arrow([plain, plain]), "a")
    assert fingerprint(columns, "a") == of([{**plain, "topic": "a"}] * 2) != fingerprint(columns, "b")


def test_halves_of_long_rows_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are taken apart so that they need little memory; one row is never."""
    rows = [{**BASE, "value": bytes([number]) * 5_000} for number in range(9)]
    whole = of(rows)
    monkeypatch.setattr(module, "_AT_ONCE", 6_000)
    assert of(rows) == whole


def test_the_kind_of_a_text_makes_no_difference() -> None:
    """Bytes, text, large or dictionary-encoded; nor where the column begins in its buffer."""
    found = set()
    for kind in (
        pa.binary(),
        pa.string(),
        pa.large_string(),
        pa.large_binary(),
        pa.dictionary(pa.int32(), pa.string()),
    ):
        values = pa.array(["x", "value", None, "another"], pa.string()).cast(kind)
        found.add(fingerprint(Columns.of(batch(values.to_pylist(), kind), "t")))
        cut = pa.RecordBatch.from_arrays([values], names=["value"]).slice(1)
        found.add(fingerprint(Columns.of(cut, "t")).plus(fingerprint(Columns.of(batch([b"x"]), "t"))))
    assert len(found) == 1


def test_it_costs_little_of_what_a_row_costs() -> None:
    """3 us is what a row takes to be written: a Python object for each would cost that again. The best of several."""
    rows = Columns.of(batch([b"x" * 100] * 10_000, key=[b"k" * 16] * 10_000), "t")
    times = []
    for _ in range(9):
        began = time.process_time()
        fingerprint(rows)
        times.append(time.process_time() - began)
    assert min(times) / 10_000 < 1.5e-6
