"""Rows whose values are Avro by the schema of a registry: `spark_registry.py BOOTSTRAP TOPIC REGISTRY`."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from safeproducer.spark import SafeProducerSink, registry_avro
from tests.spark.test_registry import TEXT


def main(bootstrap: str, topic: str, registry: str) -> None:
    """Half of them by a schema that is registered, half by what the registry has by then; a null struct is null."""
    spark = SparkSession.builder.getOrCreate()
    sink = SafeProducerSink({"kafka.bootstrap.servers": bootstrap, "topic": topic})
    rows = spark.range(100).selectExpr(
        "CAST(id AS STRING) AS key",
        "IF(id = 99, NULL, STRUCT(id, IF(id % 2 = 0, NULL, CONCAT('note ', id)) AS note)) AS order",
    )
    first = registry_avro("order", f"{topic}-value", registry, TEXT).alias("value")
    then = registry_avro(rows.order, f"{topic}-value", registry).alias("value")
    sink.write(rows.where("id < 50").select("key", first))
    sink.write(rows.where("id >= 50").select("key", then))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
