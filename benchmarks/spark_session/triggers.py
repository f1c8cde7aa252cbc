"""The driver's script for micro-batches: in each round a query by each door, in random order; a line of JSON for each.

A query has workers of its own: Spark ends those of a query that is stopped.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from benchmarks.brokers import written
from benchmarks.spark_session import cpu, no_op
from benchmarks.spark_variants import NO_OP_SINK, NO_OP_SOURCE, SINK, SOURCE, SPARK
from safeproducer.spark import SafeProducerSink

CORES = 2
LOOK_EVERY = 0.2


def rows(spark: SparkSession, count: int) -> DataFrame:
    """As soon as a micro-batch is written there are rows for the next one."""
    source = spark.readStream.format("rate-micro-batch")
    stream = source.option("rowsPerBatch", count).option("numPartitions", CORES).load()
    key = "substr(unhex(sha2(string(value), 256)), 1, 16) key"
    return stream.selectExpr(key, "encode(rpad(string(value), 200, sha2(string(value), 256)), 'UTF-8') value")


def writer(name: str, stream: DataFrame, options: dict[str, str]) -> DataStreamWriter:
    to = stream.writeStream
    if name == NO_OP_SINK:
        return to.foreachBatch(no_op.write)
    if name == SINK.name:
        return to.foreachBatch(SafeProducerSink(options))
    formats = {NO_OP_SOURCE: "no_op_source", SOURCE.name: "safeproducer", SPARK.name: "kafka"}
    return to.format(formats[name]).options(**({} if name == NO_OP_SOURCE else options))


def durations(query: StreamingQuery, batches: int) -> list[float]:
    """Milliseconds of the first triggers, in their order."""
    while (told := query.lastProgress) is None or told["batchId"] < batches - 1:
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
        time.sleep(LOOK_EVERY)
    found = {one["batchId"]: one["durationMs"]["triggerExecution"] for one in query.recentProgress}
    return [found[number] for number in range(batches)]


def measured(name: str, stream: DataFrame, settings: dict[str, Any]) -> dict[str, Any]:
    topic = settings["topics"][name]
    options = {"kafka.bootstrap.servers": settings["bootstrap"], "topic": topic}
    place = settings["direct_bootstrap"], topic, settings["partitions"]
    before = written(*place)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as checkpoint:
        query = writer(name, stream, options).option("checkpointLocation", checkpoint).start()
        try:
            took = durations(query, settings["batches"])
        finally:
            query.stop()
    idle = name in (NO_OP_SINK, NO_OP_SOURCE)
    return {"name": name, "milliseconds": took, "found": None if idle else written(*place) - before}


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    spark = SparkSession.builder.appName("benchmark").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(no_op.Source)
    stream = rows(spark, settings["rows"])
    names = sorted(settings["topics"])
    strangers = cpu.Strangers()
    for number in range(-1, settings["rounds"]):
        for name in random.Random(number).sample(names, len(names)):
            line = measured(name, stream, settings)
            if number >= 0:
                print(json.dumps({"round": number, **line}), flush=True)
            strangers.look()
    print(json.dumps({"strangers": strangers.share()}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
