"""What test_spark_endurance.py, test_spark_far.py and test_spark_tokens.py run: a query of equal micro-batches by each
door that has options, until so many are written, or the file `end` is in the folder.

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
    folder, queries = Path(settings["folder"]), []
    spark = SparkSession.builder.appName("endurance").getOrCreate()
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=settings["rows"], numPartitions=2).load()
    rows = source.selectExpr("string(value) key", "string(value) value")
    for door, options in settings["doors"].items():
        port = int(options["kafka.bootstrap.servers"].rpartition(":")[2])
        options["safeproducer.spark.on.batch"] = "integration.spark_endurance:note_report"
        writer = rows.writeStream.option("checkpointLocation", str(folder / f"checkpoint-{door}"))
        writer = writer.trigger(processingTime=settings["trigger"])
        if door == "sink":
            writer = writer.foreachBatch(SafeProducerSink(options))
        else:
            writer = writer.format("safeproducer").options(**options)
        queries.append(writer.start())
    told = 0
    with Path(os.environ[REPORTS]).open(encoding="utf-8") as reports:
        while told < settings["batches"] and not (folder / "end").exists() and all(one.isActive for one in queries):
            time.sleep(0.05)
            for line in reports:
                told += 1
                print(json.dumps({"report": json.loads(line), "memory": memory(port)}), flush=True)
    for query in queries:
        query.stop()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
