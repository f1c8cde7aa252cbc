"""Sinks that read the rows and write nothing, by both doors: what Spark asks of any sink in Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

DONE = pa.schema([("rows", pa.int64())])
SCHEMA = "rows long"


def write(df: DataFrame, _: int) -> None:
    """For foreachBatch."""
    df.mapInArrow(in_arrow, SCHEMA).collect()


def in_arrow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"rows": [rows]}, schema=DONE)


class Source(DataSource):
    """For `df.writeStream.format("no_op_source")`."""

    @classmethod
    def name(cls) -> str:
        return "no_op_source"

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - Spark names it
        return Writer()


class Writer(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()
