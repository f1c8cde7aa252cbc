"""Writes a DataFrame and a stream through each way in that this PySpark has, and prints what the topics have."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession

from safeproducer.spark import SafeProducerSink
from safeproducer.testing import FakeCluster

ROWS = 1000
COLUMNS = (
    "CAST(value AS STRING) AS value",
    "CAST(value AS BINARY) AS key",
    "array(named_struct('key', 'h', 'value', CAST('1' AS BINARY))) AS headers",
    "timestamp_seconds(1700000000) AS timestamp",
)


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    source = folder / "source"
    if not source.exists():
        spark.range(ROWS).selectExpr("CAST(id AS STRING) AS value").write.text(str(source))
    return spark.readStream.text(str(source)).selectExpr(*COLUMNS)


def main() -> None:
    spark = SparkSession.builder.getOrCreate()
    rows = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS value").selectExpr(*COLUMNS)
    written: dict[str, Any] = {}
    with FakeCluster() as cluster, tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)

        def options(topic: str) -> dict[str, str]:
            cluster.create_topic(topic)
            return {"kafka.bootstrap.servers": cluster.bootstrap, "topic": topic}

        def streamed(topic: str, writer: Any) -> None:
            writer = writer.option("checkpointLocation", str(folder / topic)).trigger(availableNow=True)
            writer.start().awaitTermination(120)

        def batch_of_sink(topic: str) -> None:
            SafeProducerSink(options(topic)).write(rows)

        def stream_of_sink(topic: str) -> None:
            streamed(topic, stream(spark, folder).writeStream.foreachBatch(SafeProducerSink(options(topic))))

        def batch_of_data_source(topic: str) -> None:
            rows.write.format("safeproducer").options(**options(topic)).mode("append").save()

        def stream_of_data_source(topic: str) -> None:
            streamed(topic, stream(spark, folder).writeStream.format("safeproducer").options(**options(topic)))

        ways = [batch_of_sink, stream_of_sink]
        if not pyspark.__version__.startswith("3."):
            ways += [batch_of_data_source, stream_of_data_source]
        for way in ways:
            way(way.__name__)
            log = cluster.log(way.__name__)
            whole = sum(bool(one.headers) and one.timestamp == 1_700_000_000_000 for one in log)
            written[way.__name__] = [len({one.value for one in log}), len(log), whole]
    print(json.dumps({"version": pyspark.__version__, "written": written}))


if __name__ == "__main__":
    main()
