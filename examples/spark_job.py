"""A Structured Streaming job that writes every micro-batch to Kafka through one SafeProducer per Python worker process.

It reads lines from text files in a folder: what stands before the first tab is the record's key, the rest its value; a
line without a tab has no key. For each micro-batch every task prints one line of JSON: where it ran, whether its
producer was new, how many rows and bytes it wrote.

    python examples/spark_job.py --bootstrap-servers localhost:9092 --topic lines --input FOLDER --checkpoint FOLDER
    spark-submit --py-files examples/kafka_writer.py examples/spark_job.py ... the same arguments

Needs PySpark 4.2 and Java 17 or newer; executors need the packages safeproducer, confluent-kafka and pyarrow.

- At least once: a failed task, and a micro-batch whose query was started again from its checkpoint, is written again
  from its first row, the rows that had arrived already included. See kafka_writer.py.
- Secrets never travel through Spark, whose configuration shows up in its web pages and event logs: `--secret
  sasl.password=env:NAME` or `=file:PATH` names a place that every executor reads by itself. Have the cluster manager
  put the value there (a mounted secret), not spark.executorEnv, which is Spark configuration too.
- Producer IDs: Spark ends a Python worker a minute after its last task. With a trigger interval above that, every
  micro-batch starts new workers, and each takes a new producer ID from the brokers.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path

import kafka_writer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import element_at, size, split, when


def setting(text: str) -> tuple[str, str]:
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
    parser.add_argument("--trigger", default="10 seconds", help="time between micro-batches")
    parser.add_argument("--available-now", action="store_true", help="write what is there, then stop")
    parser.add_argument("--deadline", type=float, default=60, help="seconds a record may take until its task fails")
    parser.add_argument("--set", type=setting, action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--secret", type=setting, action="append", default=[], metavar="NAME=env:VARIABLE|file:PATH")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    spark = SparkSession.builder.appName("lines-to-kafka").getOrCreate()
    spark.sparkContext.addPyFile(str(Path(kafka_writer.__file__)))

    write = partial(
        kafka_writer.write,
        topic=args.topic,
        # Java's partitioner, so that a key stays on the partition to which Spark's own Kafka sink would send it.
        config={"bootstrap.servers": args.bootstrap_servers, "partitioner": "murmur2_random", **dict(args.set)},
        secrets=dict(args.secret),
        deadline=args.deadline,
    )

    def write_batch(batch: DataFrame, batch_id: int) -> None:
        # collect() runs the tasks; a task that raises makes it raise, and with it the query.
        for task in batch.mapInArrow(write, kafka_writer.METRICS).collect():
            print(json.dumps({"batch": batch_id, **task.asDict()}), flush=True)

    lines = spark.readStream.option("maxFilesPerTrigger", args.files_per_batch).text(args.input)
    fields = split("value", "\t", 2)
    records = lines.select(
        when(size(fields) == 2, fields[0]).cast("binary").alias("key"),
        element_at(fields, -1).cast("binary").alias("value"),
    )
    trigger = {"availableNow": True} if args.available_now else {"processingTime": args.trigger}
    query = (
        records.writeStream.foreachBatch(write_batch)
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
