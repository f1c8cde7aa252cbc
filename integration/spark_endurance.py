"""What test_spark_endurance.py runs: a query of small micro-batches, until it has written so many.

`python integration/spark_endurance.py BOOTSTRAP TOPIC SCRATCH BATCHES TRIGGER`; a line of JSON for each micro-batch:
its report, and the memory of the Python workers.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress

import psutil  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from safeproducer.spark import BatchReport, SafeProducerSink

ROWS = 10


def memory() -> dict[str, int]:
    """Process ID of each Python worker of this driver, and of what starts them -> bytes that it has resident."""
    found = {}
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "pyspark.daemon" in " ".join(child.cmdline()):
                found[str(child.pid)] = child.memory_info().rss
    return found


def main() -> int:
    """Until there are enough reports."""
    bootstrap, topic, scratch, batches, trigger = sys.argv[1:]
    spark = SparkSession.builder.appName("endurance").getOrCreate()
    reports: list[int | None] = []

    def on_batch(report: BatchReport) -> None:
        reports.append(report.batch_id)
        print(json.dumps({"report": report.as_dict(), "memory": memory()}), flush=True)

    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=ROWS, numPartitions=2).load()
    rows = source.selectExpr("string(value) key", "string(value) value")
    writer = rows.writeStream.foreachBatch(SafeProducerSink(options, on_batch=on_batch))
    query = writer.option("checkpointLocation", f"{scratch}/checkpoint").trigger(processingTime=trigger).start()
    while len(reports) < int(batches) and not query.awaitTermination(1):
        pass
    query.stop()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
