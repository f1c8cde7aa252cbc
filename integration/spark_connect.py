"""What test_spark_connect.py runs: each door once as a batch and once as a stream, under Spark Connect.

`python integration/spark_connect.py BOOTSTRAP SCRATCH`; one line of JSON for each case.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from safeproducer.spark import SafeProducerSink

ROWS = 500


def main() -> int:
    """Run all cases."""
    bootstrap, scratch = sys.argv[1], Path(sys.argv[2])
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "safeproducer.spark.on.batch": "integration.spark_doors:note_report",
    }

    def case(name: str, **found: object) -> None:
        print(json.dumps({"case": name, "session": type(spark).__module__, **found}), flush=True)

    df = spark.range(0, ROWS, 1, 2).selectExpr("string(id) key", "string(id) value", "id `with.dot`")
    folder = scratch / "input"
    folder.mkdir()
    (folder / "lines.txt").write_text("".join(f"{line}\n" for line in range(ROWS)))
    lines = spark.readStream.text(str(folder)).selectExpr("value", "length(value) `with.dot`")

    def by_sink() -> Any:
        case("sink", report=SafeProducerSink({**options, "topic": "connect-sink"}).write(df).as_dict())
        return stream("sink").foreachBatch(SafeProducerSink({**options, "topic": "connect-stream-sink"})).start()

    def by_source() -> Any:
        df.write.format("safeproducer").options(**options, topic="connect-source").mode("append").save()
        case("source")
        return stream("source").format("safeproducer").options(**options, topic="connect-stream-source").start()

    def stream(door: str) -> Any:
        checkpoint = str(scratch / f"checkpoint-{door}")
        return lines.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)

    for door, start in (("sink", by_sink), ("source", by_source)):
        try:
            query = start()
            ended = query.awaitTermination(60)
            case(f"stream {door}", ended=ended, error=str(query.exception()))
        except Exception as error:  # the other door goes on
            case(f"stream {door}", ended=False, error=str(error))
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
