"""What test_spark_dead_letters.py runs on Spark: bad rows of each cause, by both doors, to a dead-letter topic.

`python integration/spark_dead_letters.py SETTINGS`, a file in JSON; one line of JSON for each case.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from integration.spark_doors import until_written
from safeproducer.spark import BatchReport, SafeProducerSink

REPORTS = "SPARK_DEAD_LETTERS_REPORTS"
"""The environment variable that names the file for reports."""
DOORS = ("sink", "source")
FILES = 2
"""In a micro-batch, each a Spark partition."""
BATCHES = 2
PARTITIONS = 3
LIMIT = 20_000
"""max.message.bytes of the topic of the rows."""
COLUMNS = ("value", "key", "topic", "partition", "headers", "timestamp")
GOOD = {
    "value": "concat(name, '-', n, '-')",
    "key": "string(n % 97)",
    "topic": "'{topic}'",
    "partition": "cast(null as int)",
    "headers": "array(named_struct('key', 'file', 'value', binary(name)))",
    "timestamp": "now()",
}
CAUSES: dict[str, dict[str, str]] = {
    "null_topic": {"topic": "cast(null as string)"},
    "no_such_partition": {"partition": str(PARTITIONS)},
    "header_without_name": {"headers": "array(named_struct('key', cast(null as string), 'value', binary('x')))"},
    "header_name_with_nul": {"headers": "array(named_struct('key', concat('a', char(0)), 'value', binary('x')))"},
    "timestamp_too_old": {"timestamp": "timestamp_millis(0)"},
    "row_too_large": {"value": f"concat(name, '-', n, '-', repeat('x', {2 * LIMIT}))"},
    "INVALID_TIMESTAMP": {"timestamp": "timestamp'2100-01-01 00:00:00'"},
    "INVALID_RECORD": {"topic": "'{topic}-compacted'", "key": "cast(null as string)"},
}
"""Cause -> the columns that make a row bad. Of the last two only a broker can tell."""
OF_FAKE_CLUSTER = tuple(CAUSES)[:-1]


def bad_rows(rows: int, each: int, causes: int) -> dict[int, int]:
    """Row -> the number of its cause. They are in the last file of a micro-batch."""
    return {place * (rows // (each * causes)) + 7: place % causes for place in range(each * causes)}


def note_report(report: BatchReport) -> None:
    """By whichever door, wherever it commits."""
    with Path(os.environ[REPORTS]).open("a", encoding="utf-8") as file:
        print(json.dumps(report.as_dict()), file=file)


class DeadLetters:
    """The cases; each prints."""

    def __init__(self, spark: SparkSession, settings: dict[str, Any]) -> None:
        self._spark = spark
        self._scratch = Path(settings["scratch"])
        self._bootstrap = settings["bootstrap"]
        self._rows = settings["rows"]
        """Of a file."""
        self._each = settings["each"]
        """Bad rows of each cause in a micro-batch."""
        self._causes = {name: CAUSES[name] for name in settings["causes"]}

    def all(self) -> None:
        """By each door: a query, a worker that is killed, and more bad rows than allowed."""
        for door in DOORS:
            for case in ("goes-on", "killed", "too-many"):
                topic = f"{case}-{door}"
                most = str(self._each * len(self._causes) - 1) if case == "too-many" else "1%"
                began = time.monotonic()
                try:
                    query = self._query(door, topic, most, case == "killed")
                    error = "" if query.awaitTermination(240) else "it did not end"
                    query.stop()
                except Exception as failed:
                    error = str(failed)
                took = round(time.monotonic() - began, 1)
                print(json.dumps({"case": case, "door": door, "took": took, "error": error}), flush=True)

    def _query(self, door: str, topic: str, most: str, killed: bool) -> Any:
        """A file is a name; of it come numbered rows."""
        folder = self._scratch / f"input-{topic}"
        folder.mkdir()
        for number in range(BATCHES * FILES):
            path = folder / f"{number}.txt"
            path.write_text(f"{number // FILES}:{number % FILES}\n")
            os.utime(path, (1_000_000_000 + number // FILES, 1_000_000_000 + number // FILES))
        lines = self._spark.readStream.option("maxFilesPerTrigger", FILES).text(str(folder))
        is_last = f"endswith(value, '{FILES - 1}') is_last"
        numbered = lines.selectExpr("value name", is_last, f"explode(sequence(0, {self._rows - 1})) n")
        rows = self._with_bad(numbered, topic)
        rows = self._killing(rows, topic) if killed else rows
        options = {
            "kafka.bootstrap.servers": self._bootstrap,
            "safeproducer.spark.bad.rows": "topic",
            "safeproducer.spark.bad.rows.topic": f"{topic}-bad",
            "safeproducer.spark.bad.rows.max": most,
            "safeproducer.spark.on.batch": "integration.spark_dead_letters:note_report",
        }
        writer = rows.writeStream.option("checkpointLocation", str(self._scratch / f"checkpoint-{topic}"))
        writer = writer.trigger(availableNow=True)
        if door == "sink":
            return writer.foreachBatch(SafeProducerSink(options)).start()
        return writer.format("safeproducer").options(**options).start()

    def _with_bad(self, rows: DataFrame, topic: str) -> DataFrame:
        count = len(self._causes)
        place = f"(n div {self._rows // (self._each * count)})"
        is_bad = f"(n % {self._rows // (self._each * count)} = 7 and {place} < {self._each * count} and is_last)"
        rows = rows.selectExpr("*", f"if({is_bad}, int({place} % {count}), -1) bad")

        def column(name: str) -> str:
            cases = [(at, made[name]) for at, made in enumerate(self._causes.values()) if name in made]
            whens = " ".join(f"when bad = {at} then {made}" for at, made in cases)
            return f"case when bad = -1 then {GOOD[name]} {whens} else {GOOD[name]} end {name}".format(topic=topic)

        return rows.selectExpr(*map(column, COLUMNS))

    def _killing(self, rows: DataFrame, topic: str) -> DataFrame:
        """The first attempt of the second task kills all workers but its own, when some of its rows are written."""
        bootstrap, half, mark = self._bootstrap, self._rows // 2, self._scratch / f"killed-{topic}"
        where = str(mark)

        def passing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context, seen = TaskContext.get(), 0
            assert context is not None
            for batch in batches:
                seen += batch.num_rows
                if seen > half and context.partitionId() == 1 and not Path(where).exists():
                    until_written(bootstrap, topic, half // 4)
                    Path(where).touch()
                    me = psutil.Process()
                    for daemon in me.parent().parent().children():
                        for worker in daemon.children():
                            if worker.pid != me.pid:
                                worker.send_signal(signal.SIGKILL)
                yield batch

        return rows.mapInArrow(passing, rows.schema)


def settings_of(scratch: Path, bootstrap: str, causes: Mapping[str, object], rows: int, each: int) -> str:
    """Written to a file, whose path this returns."""
    path = scratch / "settings.json"
    path.write_text(
        json.dumps(
            {"scratch": str(scratch), "bootstrap": bootstrap, "causes": list(causes), "rows": rows, "each": each}
        )
    )
    return str(path)


def main() -> int:
    """All cases, in one session."""
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    spark = SparkSession.builder.appName("dead letters").getOrCreate()
    DeadLetters(spark, settings).all()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
