"""Arrow batches as Spark gives them, and what came of them in a FakeCluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from safeproducer.testing import FakeCluster

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def batch(values: Sequence[Any], kind: pa.DataType | None = None, **columns: Any) -> pa.RecordBatch:
    """A batch with a column `value` and others, each a list or an Arrow array."""
    arrays = {"value": pa.array(values, kind or pa.binary())}
    for name, column in columns.items():
        arrays[name] = column if isinstance(column, pa.Array) else pa.array(column)
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def rows(start: int, count: int, size: int = 20) -> pa.RecordBatch:
    """`count` rows with keys, whose values begin with their number, counted from `start`."""
    numbers = range(start, start + count)
    return batch([b"%d-" % n + b"x" * size for n in numbers], key=[b"key-%d" % (n % 97) for n in numbers])


def numbers(cluster: FakeCluster, topic: str = "rows", partitions: int = 3) -> list[int]:
    """The numbers of all rows() in the log, ascending."""
    records = [record for partition in range(partitions) for record in cluster.log(topic, partition)]
    return sorted(int((record.value or b"").split(b"-")[0]) for record in records)
