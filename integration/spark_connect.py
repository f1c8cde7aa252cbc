"""What test_spark_connect.py runs: each door once as a batch and once as a stream, under Spark Connect.

`python integration/spark_connect.py BOOTSTRAP SCRATCH`; one line of JSON for each case.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

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

    df = spark.range(0, ROWS, 1, 2).selectExpr("string(id) key", "string(id) value")
    case("sink", report=SafeProducerSink({**options, "topic": "connect-sink"}).write(df).as_dict())
    df.write.format("safeproducer").options(**options, topic="connect-source").mode("append").save()
    case("source")

    folder = scratch / "input"
    folder.mkdir()
    (folder / "lines.txt").write_text("".join(f"{line}\n" for line in range(ROWS)))
    lines = spark.readStream.text(str(folder))
    for door in ("sink", "source"):
        topic = f"connect-stream-{door}"
        writer = lines.writeStream.option("checkpointLocation", str(scratch / f"checkpoint-{door}"))
        if door == "sink":
            writer = writer.foreachBatch(SafeProducerSink({**options, "topic": topic}))
        else:
            writer = writer.format("safeproducer").options(**options, topic=topic)
        query = writer.trigger(availableNow=True).start()
        ended = query.awaitTermination(60)
        case(f"stream {door}", ended=ended, error=str(query.exception()))
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
