"""A Structured Streaming job from text files to a Kafka topic, with a line of JSON for each micro-batch.

What stands before the first tab of a line is the record's key, the rest its value; a line without a tab has no key.

    python examples/spark_job.py --bootstrap-servers localhost:9092 --topic lines --input FOLDER --checkpoint FOLDER

Needs PySpark 4.2, Java 17 or newer, and safeproducer[spark] on the driver and all executors. Delivery is at least once:
docs/operate/spark.md says what is in the topic after a failure, and how secrets reach the executors:

    --option kafka.security.protocol=SASL_SSL --option kafka.sasl.mechanism=PLAIN ... \
    --option kafka.sasl.jaas.config=file:/run/secrets/kafka-login
"""

from __future__ import annotations

import argparse
import json
import sys

import structlog

try:
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import element_at, size, split, when

    from safeproducer.spark import BatchReport, SafeProducerSink
except ModuleNotFoundError as error:
    sys.exit(f"{error.name} is not installed: pip install '.[spark]'")


def option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=value")
    return name, value


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Stream text files into Kafka.")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--input", required=True, help="folder of text files")
    parser.add_argument("--checkpoint", required=True, help="folder in which the query remembers what it has written")
    parser.add_argument("--files-per-batch", type=int, default=100, help="how many files a micro-batch may read")
    parser.add_argument("--trigger", default="10 seconds", help="time between micro-batches; keep it below a minute")
    parser.add_argument("--available-now", action="store_true", help="write what is there, then stop")
    parser.add_argument("--option", type=option, action="append", default=[], metavar="NAME=VALUE")
    return parser.parse_args()


def show(report: BatchReport) -> None:
    print(json.dumps(report.as_dict()), flush=True)


def main() -> int:
    args = arguments()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # the events of the sink
    options = {"kafka.bootstrap.servers": args.bootstrap_servers, "topic": args.topic, **dict(args.option)}
    sink = SafeProducerSink(options, on_batch=show)  # wrong options end the job here

    spark = SparkSession.builder.appName("lines-to-kafka").getOrCreate()
    lines = spark.readStream.option("maxFilesPerTrigger", args.files_per_batch).text(args.input)
    fields = split("value", "\t", 2)
    records = lines.select(
        when(size(fields) == 2, fields[0]).alias("key"),
        element_at(fields, -1).alias("value"),
    )
    trigger = {"availableNow": True} if args.available_now else {"processingTime": args.trigger}
    query = records.writeStream.foreachBatch(sink).option("checkpointLocation", args.checkpoint).trigger(**trigger)
    try:
        query.start().awaitTermination()
    except StreamingQueryException as error:
        print(f"the query failed: {error}", file=sys.stderr)
        return 1
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
