"""What test_spark_endurance.py and test_spark_far.py run: a query of equal micro-batches, by either door, until it has
written so many, or the file `end` is in its folder.

`python integration/spark_endurance.py SETTINGS`, a file in JSON; a line of JSON for each micro-batch: its report, and
the memory of the Python workers that have a connection to the broker.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from integration.spark import task_workers
from safeproducer.spark import BatchReport, SafeProducerSink

REPORTS = "SPARK_ENDURANCE_REPORTS"
"""The environment variable that names the file for reports."""


def note_report(report: BatchReport) -> None:
    """By whichever door, wherever it commits."""
    with Path(os.environ[REPORTS]).open("a", encoding="utf-8") as file:
        print(json.dumps(report.as_dict()), file=file)


def memory(port: int) -> dict[str, int]:
    """Process ID of each Python worker of this driver that writes -> bytes that it has resident."""
    found = {}
    for worker in task_workers(psutil.Process()):
        with suppress(psutil.NoSuchProcess):
            if any(one.raddr and one.raddr.port == port for one in worker.net_connections()):
                found[str(worker.pid)] = worker.memory_info().rss
    return found


def main() -> int:
    """Until there are enough reports."""
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    folder, options = Path(settings["folder"]), settings["options"]
    port = int(options["kafka.bootstrap.servers"].rpartition(":")[2])
    spark = SparkSession.builder.appName("endurance").getOrCreate()
    options["safeproducer.spark.on.batch"] = "integration.spark_endurance:note_report"
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=settings["rows"], numPartitions=2).load()
    rows = source.selectExpr("string(value) key", "string(value) value")
    writer = rows.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    writer = writer.trigger(processingTime=settings["trigger"])
    if settings["door"] == "sink":
        query = writer.foreachBatch(SafeProducerSink(options)).start()
    else:
        query = writer.format("safeproducer").options(**options).start()
    told = 0
    with Path(os.environ[REPORTS]).open(encoding="utf-8") as reports:
        while told < settings["batches"] and not (folder / "end").exists() and query.isActive:
            time.sleep(0.05)
            for line in reports:
                told += 1
                print(json.dumps({"report": json.loads(line), "memory": memory(port)}), flush=True)
    query.stop()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
