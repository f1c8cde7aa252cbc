"""What test_spark_exactly_once.py runs for replays and costs: `python integration/spark_once.py SETTINGS`, a file in
JSON. Each step is a query over the same files; a line of JSON says how it ended."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from integration.spark import task_workers
from safeproducer.spark import BatchReport, SafeProducerSink


def forget_last(checkpoint: Path) -> None:
    """As if the driver had died behind the last micro-batch, before the checkpoint knew."""
    last = max(
        (path for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()), key=lambda p: int(p.name)
    )
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


def run(spark: SparkSession, settings: dict[str, Any], step: dict[str, Any]) -> dict[str, Any]:
    """All that is there; how it ended."""
    reports: list[BatchReport] = []
    checkpoint = Path(settings["folder"], step.get("checkpoint", "checkpoint"))
    if step.get("forget"):
        forget_last(checkpoint)
    for name, value in step.get("conf", {}).items():
        spark.conf.set(name, value)
    options = {**settings["options"], **step.get("options", {})}
    options = {name: value for name, value in options.items() if value is not None}
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(settings["input"])
    rows = lines.selectExpr("substring(value, 1, 3) key", step.get("value", "value"))

    def note(report: BatchReport) -> None:
        reports.append(report)
        if step.get("kill"):
            for worker in task_workers(psutil.Process()):
                worker.kill()

    sink = SafeProducerSink(options, on_batch=note)
    began = time.monotonic()
    writer = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    query, error = writer.trigger(availableNow=True).start(), ""
    try:
        query.awaitTermination()
    except Exception as raised:
        error = str(raised)
    progress = [one["durationMs"]["addBatch"] for one in query.recentProgress if one["numInputRows"]]
    return {
        "name": step["name"],
        "master": spark.sparkContext.master,
        "slots": [report.slots for report in reports],
        "rows": sum(report.rows for report in reports),
        "error": error,
        "seconds": time.monotonic() - began,
        "milliseconds": progress,
    }


def main() -> None:
    """Each step in its turn."""
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    spark = SparkSession.builder.appName("once").getOrCreate()
    for step in settings["steps"]:
        if "master" in step:
            spark.stop()
            spark = SparkSession.builder.master(step["master"]).getOrCreate()
        print(json.dumps(run(spark, settings, step)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
