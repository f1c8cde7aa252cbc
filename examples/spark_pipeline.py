"""A Structured Streaming job from one Kafka topic through a transformation into another, with its account in JSON.

It reads orders as JSON (`{"customer": "ada", "amount": 12.5}`), leaves out what is no order, and writes each with its
tax to the target, keyed by customer. For each micro-batch it prints one line of JSON: what became of its rows.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 examples/spark_pipeline.py \
        --bootstrap-servers localhost:9092 --source orders --target taxed --checkpoint FOLDER --available-now

Reading from Kafka is Spark's own, from the package above (there is no 4.2.1 of it). Started again with the same
checkpoint it goes on where it was; the micro-batch that was under way is then written again. To write by the data
source: `.writeStream.format("safeproducer").options(**options)`. Then reports go to the log of the driver.
"""

from __future__ import annotations

import argparse
import json
import sys

import structlog

try:
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.functions import col, from_json, round, struct, to_json

    from safeproducer.spark import BatchReport, SafeProducerSink
except ModuleNotFoundError as error:
    sys.exit(f"{error.name} is not installed: pip install '.[spark]'")


TAX = 0.25


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Add the tax to orders.")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--source", required=True, help="topic to read")
    parser.add_argument("--target", required=True, help="topic to write")
    parser.add_argument("--checkpoint", required=True, help="folder in which the query remembers where it was")
    parser.add_argument("--records-per-batch", type=int, default=100_000, help="how many a micro-batch may read")
    parser.add_argument("--trigger", default="5 seconds", help="time between micro-batches; keep it below a minute")
    parser.add_argument("--available-now", action="store_true", help="write what is there, then stop")
    return parser.parse_args()


def taxed(records: DataFrame) -> DataFrame:
    """The columns that the sink takes: key, value, and the time of the order."""
    order = from_json(col("value").cast("string"), "customer string, amount double")
    orders = records.select(order.alias("order"), "timestamp").where("order.customer is not null")
    tax: Column = round(col("order.amount") * TAX, 2)
    return orders.select(
        col("order.customer").alias("key"),
        to_json(struct("order.customer", "order.amount", tax.alias("tax"))).alias("value"),
        "timestamp",
    )


def show(report: BatchReport) -> None:
    print(json.dumps(report.as_dict()), flush=True)


def main() -> int:
    args = arguments()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # the events of the sink
    options = {"kafka.bootstrap.servers": args.bootstrap_servers, "topic": args.target}
    sink = SafeProducerSink(options, on_batch=show)

    spark = SparkSession.builder.appName("taxes").getOrCreate()
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", args.bootstrap_servers)
        .option("subscribe", args.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", args.records_per_batch)
        .load()
    )
    trigger = {"availableNow": True} if args.available_now else {"processingTime": args.trigger}
    query = (
        taxed(records)
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", args.checkpoint)
        .trigger(**trigger)
        .start()
    )
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        print(f"the query failed: {error}", file=sys.stderr)
        return 1
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
