"""What test_spark_faults.py runs: a query from text files to Kafka, that faults meet and that is started again.

`python integration/spark_faults.py SETTINGS`, a file in JSON. It ends when the file `end` is in its folder, and starts
the query again when `again` is. One line of JSON for each report goes to a file.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from safeproducer.spark import BatchReport, SafeProducerSink

REPORTS = "SPARK_FAULTS_REPORTS"
"""The environment variable that names the file for reports."""
ROWS = 40_000
"""Of a file, unless the query has another number."""
ARROW_BATCHES = 20
"""Of a task. A file has two tasks."""
PAUSE = 0.05
"""Seconds between two Arrow batches: a task takes long enough for a fault to meet it."""


def note_report(report: BatchReport) -> None:
    """By whichever door, wherever it commits."""
    with Path(os.environ[REPORTS]).open("a", encoding="utf-8") as file:
        print(json.dumps(report.as_dict()), file=file)


def slowly(batches: Iterator[pa.RecordBatch], folder: Path) -> Iterator[pa.RecordBatch]:
    """Pass the rows on; a task that finds the file `raise` takes it and fails with half of its rows passed.

    The first and the second attempt of the second task wait there while there is a file `wait-0` and `wait-1`; the
    file `wait-0-by` names the process.
    """
    context = TaskContext.get()
    assert context is not None
    wait = folder / f"wait-{context.attemptNumber()}" if context.partitionId() == 1 else None
    for number, batch in enumerate(batches):
        time.sleep(PAUSE)
        if number >= ARROW_BATCHES // 2:
            if (folder / "raise").exists():
                (folder / "raise").unlink()
                raise ValueError("as planned")
            if wait is not None and wait.exists():
                (folder / f"{wait.name}-by").write_text(str(os.getpid()))
                while wait.exists():
                    time.sleep(PAUSE)
        yield batch


def started(spark: SparkSession, settings: dict[str, Any], folder: Path) -> StreamingQuery:
    """The query, one file for each micro-batch; a key has rows of its file next to each other, on two topics."""
    topics, bad = settings["topics"], settings["bad_each"]
    row = "int(split(value, '-')[1])"
    no_topic = f"if({row} % {bad} = {bad - 1}, null, " if bad else "("
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "input"))
    rows = lines.selectExpr(
        "string(int(split(value, '-')[1]) div 50) key",
        "value",
        f"{no_topic}if({row} % 2 = 0, '{topics[0]}', '{topics[1]}')) topic",
    )
    path = str(folder)  # what tasks run is pickled

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return slowly(batches, Path(path))

    options = {
        "kafka.bootstrap.servers": settings["bootstrap"],
        "safeproducer.spark.on.batch": "integration.spark_faults:note_report",
        **settings["options"],
        **(
            {"safeproducer.spark.bad.rows": "topic", "safeproducer.spark.bad.rows.topic": settings["dead"]}
            if bad
            else {}
        ),
    }
    writer = rows.mapInArrow(slow, rows.schema).writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    if settings["door"] == "source":
        return writer.format("safeproducer").options(**options).start()
    return writer.foreachBatch(SafeProducerSink(options)).start()


def main() -> int:
    """Until the file `end` is there, or the query fails."""
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    folder = Path(settings["folder"])
    spark = SparkSession.builder.appName("faults").getOrCreate()
    query = started(spark, settings, folder)
    (folder / "started").touch()
    while not (folder / "end").exists() and query.isActive:
        if (folder / "again").exists():
            query.stop()
            query = started(spark, settings, folder)
            (folder / "again").unlink()
        time.sleep(0.02)
    failed = query.exception()
    query.stop()
    spark.stop()
    if failed is not None:
        print(failed, file=sys.stderr)
    return 0 if failed is None else 1


if __name__ == "__main__":
    sys.exit(main())
