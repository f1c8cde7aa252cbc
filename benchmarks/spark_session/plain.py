"""confluent_kafka's own producer through both doors: as fast a loop as can be written, that learns of errors alone.

Or, with a callback that does nothing, as fast as a client can be that looks at the report of each record.

In an importable module, so that the producer stays for as long as the worker process, as SafeProducer's does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from confluent_kafka.cimpl import KafkaError, Producer
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from benchmarks.spark_variants import HEADERS
from safeproducer.spark.columns import Columns
from safeproducer.spark.options import Options

PATIENCE = 120.0
ROOM_TURN = 0.05
DONE = pa.schema([("rows", pa.int64())])
SCHEMA = "rows long"


def nothing(error: KafkaError | None, message: object) -> None:
    """The empty callback."""


class Plain:
    """The producer of this worker, with the settings of librdkafka that the sink gives its own.

    `looks`: it has a callback for each record, which does nothing. Then nothing is told of a row that failed.
    """

    def __init__(self, settings: dict[str, str], looks: bool) -> None:
        self.errors: list[str] = []
        config = {name: text for name, text in settings.items() if not name.startswith("safeproducer.")}
        callback = {"on_delivery": nothing if looks else self.failed, "delivery.report.only.error": not looks}
        self.kafka = Producer({**config, "enable.idempotence": True, **callback})

    def failed(self, error: KafkaError, _: Any) -> None:
        """The constructor's callback: nothing is told of a row that was delivered."""
        self.errors.append(error.name())

    def write(self, batches: Iterator[pa.RecordBatch], topic: str) -> int:
        """Produce all rows, which have a key and a value, and may have headers, and wait for them."""
        rows = 0
        kafka, produce = self.kafka, self.kafka.produce
        for batch in batches:
            rows += batch.num_rows
            if HEADERS in batch.schema.names:
                self._with_headers(batch, topic)
                continue
            values, keys = batch.column("value").to_pylist(), batch.column("key").to_pylist()
            for value, key in zip(values, keys, strict=True):
                try:
                    produce(topic, value, key)
                except BufferError:
                    self._later(topic, value, key)
            kafka.poll(0)
        left = kafka.flush(PATIENCE)
        if left or self.errors:
            raise RuntimeError(f"{left} rows are left, errors: {self.errors[:3]}")
        return rows

    def _with_headers(self, batch: pa.RecordBatch, topic: str) -> None:
        """1 000 rows at once, as the sink does: more lists of headers are out of the processor's cache."""
        for some in Columns.of(batch, topic).parts(1_000):
            rows = zip(some.values(), some.keys(), some.all_headers(), strict=True)
            for value, key, headers in rows:
                record = topic, value, key, -1, None, None, 0, headers
                try:
                    self.kafka.produce(*record)
                except BufferError:
                    self._later(*record)
            self.kafka.poll(0)

    def _later(self, *record: Any) -> None:
        while True:
            self.kafka.poll(ROOM_TURN)
            try:
                self.kafka.produce(*record)
            except BufferError:
                continue
            return


_kept: dict[tuple[str, bool], Plain] = {}


def write(batches: Iterator[pa.RecordBatch], given: dict[str, str], looks: bool) -> int:
    """Write the rows of a task; `given` are the options of our sink."""
    options = Options.parse(given)
    key = options.config["bootstrap.servers"], looks
    worker = _kept.get(key)
    if worker is None:
        worker = _kept[key] = Plain(options.config, looks)
    return worker.write(batches, str(options.topic))


def in_arrow(batches: Iterator[pa.RecordBatch], given: dict[str, str], looks: bool) -> Iterator[pa.RecordBatch]:
    """For mapInArrow, the way of `foreachBatch`."""
    yield pa.RecordBatch.from_pydict({"rows": [write(batches, given, looks)]}, schema=DONE)


class Source(DataSource):
    """For `df.write.format("plain_source")`."""

    @classmethod
    def name(cls) -> str:
        return "plain_source"

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return Writer(dict(self.options))


class Writer(DataSourceArrowWriter):
    def __init__(self, given: dict[str, str]) -> None:
        self.given = given

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        write(iterator, self.given, looks=False)
        return WriterCommitMessage()
