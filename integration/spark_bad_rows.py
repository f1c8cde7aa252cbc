"""What test_spark_bad_rows.py runs on Spark: each cause for which a row cannot be written, alone and among many.

One query has a micro-batch for each cause. It fails with it, is started again when the cause is cured, and fails with
the next. `python integration/spark_bad_rows.py SETTINGS`, a file in JSON; one line of JSON for each failure and report.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from pyspark.sql import DataFrame, SparkSession

from integration.kafka.poll import until
from safeproducer.spark import BatchReport, SafeProducerSink

FILES = 4
"""In a micro-batch, each a Spark partition. With one core they are written in their order, the last one with the bad
row."""
ROWS = 2_500
"""In a file: three Arrow batches."""
ARROW_ROWS = 1_000
BAD_ROW = 2_345
IS_BAD = f"(file = {FILES - 1} and n = {BAD_ROW})"
PARTITIONS = 3


@dataclass(frozen=True)
class Cause:
    """Why a row cannot be written, and the cure.

    - `column`: SQL for the column that makes it so, with {bad} for whether this is the row, and {topic}.
    - `options`: of the sink; `cured`: those that it has after the cure; `secure`: with a login that may read no limit.
    - `configs`: of the topic; `larger`: those that it has after the cure. `more_partitions` and rows that are
      `corrected` are cures as well.
    - `by_broker`: only a broker can tell, when it refuses a batch.
    """

    code: str
    column: str
    options: Mapping[str, str] = field(default_factory=lambda: {"topic": "{topic}"})
    cured: Mapping[str, str] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)
    larger: Mapping[str, str] = field(default_factory=dict)
    more_partitions: bool = False
    secure: bool = False
    corrected: bool = False
    by_broker: bool = False

    def columns(self, topic: str, bad: str) -> list[str]:
        """All columns of the rows, the one with the cause among them."""
        made = self.column.format(bad=bad, topic=topic)
        others = {"key": "string(n % 97) key", "value": "concat(file, '-', n) value"}
        others.pop(made.rpartition(" ")[2], None)
        return [*others.values(), made]


def _large(size: int) -> str:
    return f"if({{bad}}, concat(file, '-', n, '-', repeat('x', {size})), concat(file, '-', n)) value"


CAUSES = {
    "bad-topic": Cause("null_topic", "if({bad}, null, '{topic}') topic", options={}, cured={"topic": "{topic}"}),
    "bad-partition": Cause(
        "no_such_partition", f"if({{bad}}, {PARTITIONS}, cast(null as int)) partition", more_partitions=True
    ),
    "bad-header": Cause(
        "header_without_name",
        "if({bad}, array(named_struct('key', cast(null as string), 'value', binary('x'))), null) headers",
        corrected=True,
    ),
    "bad-timestamp": Cause(
        "timestamp_too_old",
        "timestamp_millis(if({bad}, 0, 1700000000000)) timestamp",
        configs={"retention.ms": "-1"},
        corrected=True,
    ),
    "bad-request": Cause(
        "row_too_large",
        _large(1_500_000),
        cured={"kafka.max.request.size": "3000000"},
        configs={"max.message.bytes": "4000000"},
    ),
    "bad-batch": Cause(
        "row_too_large",
        _large(150_000),
        configs={"max.message.bytes": "100000"},
        larger={"max.message.bytes": "400000"},
    ),
    "bad-unreadable": Cause(
        "MSG_SIZE_TOO_LARGE",
        _large(150_000),
        options={"topic": "{topic}", "kafka.batch.size": "50000"},
        configs={"max.message.bytes": "100000"},
        larger={"max.message.bytes": "400000"},
        secure=True,
        by_broker=True,
    ),
    "bad-compacted": Cause(
        "INVALID_RECORD",
        "if({bad}, null, string(n % 97)) key",
        configs={"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"},
        corrected=True,
        by_broker=True,
    ),
}
"""By topic, in the order of their micro-batches."""
OLD = (
    "0001-01-01 00:00:00Z",
    "1900-01-01 00:00:00+05:45",
    "1969-12-31 23:59:59.999Z",
    "1969-12-31 23:59:59.999999Z",
    "1970-01-01 00:00:00.000999Z",
)
"""Each is before 1970, or so soon in it that librdkafka would take it for "now"."""
DELETED = "deleted"
FEW = 50
"""Rows of a micro-batch of the query whose topic is deleted."""


class BadRows:
    """The cases; each prints."""

    def __init__(self, spark: SparkSession, settings: dict[str, Any]) -> None:
        self._spark = spark
        self._settings = settings
        self._scratch = Path(settings["scratch"])
        self._cured: set[str] = set()
        self._admin: Any = AdminClient({"bootstrap.servers": settings["bootstrap"], "log_level": 0})

    def all(self) -> None:
        """Alone, then among good rows."""
        for topic in CAUSES:
            self._print("alone", topic, error=self._failure(self._writing_one(topic)))
        self._print("old", "bad-timestamp", error=self._failure(self._of_long_ago))
        self._print("counted", "bad-partition", error=self._failure(self._by_source))
        for topic in CAUSES:
            self._print("among", topic, error=self._run())
            self._cure(topic)
        self._print("cured", "all", error=self._run())

    def _print(self, case: str, topic: str, **found: object) -> None:
        print(json.dumps({"case": case, "topic": topic, **found}), flush=True)

    def _failure(self, write: Callable[[], object]) -> str:
        try:
            write()
        except Exception as error:
            return str(error)
        return ""

    # --- writing -----------------------------------------------------------------------------------------------

    def _options(self, topic: str) -> dict[str, str]:
        cause = CAUSES[topic]
        more = {**cause.options, **(cause.cured if topic in self._cured else {})}
        if cause.by_broker:  # on a busy machine, too, an answer that comes before this is to the first attempt
            more["kafka.retry.backoff.ms"] = "1000"
        return {
            "kafka.bootstrap.servers": self._settings["bootstrap"],
            **(self._settings["secure"] if cause.secure else {}),
            **{name: value.format(topic=topic) for name, value in more.items()},
        }

    def _writing_one(self, topic: str) -> Callable[[], object]:
        one = self._spark.range(1).selectExpr("int(0) file", "int(id) n")
        return partial(
            SafeProducerSink(self._options(topic)).write, one.selectExpr(*CAUSES[topic].columns(topic, "true"))
        )

    def _of_long_ago(self) -> None:
        times = ", ".join(f"timestamp '{text}'" for text in OLD)
        rows = self._spark.range(len(OLD) + 1).coalesce(1)  # the last one is good
        df = rows.selectExpr("string(id) value", f"coalesce(get(array({times}), int(id)), now()) timestamp")
        SafeProducerSink(self._options("bad-timestamp")).write(df)

    def _by_source(self) -> None:
        topic = "bad-partition"
        rows = self._spark.range(0, FILES * ROWS, 1, FILES).selectExpr(
            f"int(id div {ROWS}) file", f"int(id % {ROWS}) n"
        )
        df = rows.selectExpr(*CAUSES[topic].columns(topic, IS_BAD))
        df.write.format("safeproducer").options(**self._options(topic)).mode("append").save()

    def write_batch(self, df: DataFrame, batch_id: int) -> None:
        """A micro-batch of the query."""
        topic, cause = list(CAUSES.items())[batch_id]
        corrected = cause.corrected and topic in self._cured
        rows = df.selectExpr(*cause.columns(topic, "false" if corrected else "bad"))

        def note(report: BatchReport) -> None:
            self._print("report", topic, report=report.as_dict())

        SafeProducerSink(self._options(topic), on_batch=note)(rows, batch_id)

    # --- the query ---------------------------------------------------------------------------------------------

    def files(self) -> None:
        """A line in a file becomes its rows; Spark takes files of a micro-batch in the order of their size."""
        folder = self._scratch / "input"
        folder.mkdir()
        for number, file in ((number, file) for number in range(len(CAUSES)) for file in range(FILES)):
            path = folder / f"{number}-{file}.txt"
            path.write_text(f"{file} {'x' * (FILES - file)}\n")
            os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))

    def _run(self) -> str:
        """The query until it fails or has written everything; why it failed."""
        lines = self._spark.readStream.option("maxFilesPerTrigger", FILES).text(str(self._scratch / "input"))
        rows = lines.selectExpr("int(substr(value, 1, 1)) file", f"explode(sequence(0, {ROWS - 1})) n")
        rows = rows.selectExpr("*", f"{IS_BAD} bad")
        writer = rows.writeStream.option("checkpointLocation", str(self._scratch / "checkpoint"))
        query = writer.foreachBatch(self.write_batch).trigger(availableNow=True).start()
        return self._failure(lambda: query.awaitTermination(120))

    def delete_a_topic(self) -> None:
        """Between two micro-batches of a query."""
        rows = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", FEW).load()
        reports: list[BatchReport] = []

        def on_batch(report: BatchReport) -> None:
            reports.append(report)
            if len(reports) == 2:
                self._admin.delete_topics([DELETED])[DELETED].result()
                until(lambda: DELETED not in self._admin.list_topics(timeout=10).topics, "the topic is gone")

        options = {"kafka.bootstrap.servers": self._settings["bootstrap"], "topic": DELETED}
        writer = rows.selectExpr("string(value) value").writeStream
        writer = writer.option("checkpointLocation", str(self._scratch / "checkpoint-of-deleted"))
        query = writer.foreachBatch(SafeProducerSink(options, on_batch=on_batch)).start()
        error = self._failure(lambda: query.awaitTermination(120))
        self._print("deleted", DELETED, error=error, delivered=[report.delivered for report in reports])

    # --- cures -------------------------------------------------------------------------------------------------

    def _cure(self, topic: str) -> None:
        cause = CAUSES[topic]
        self._cured.add(topic)
        if cause.more_partitions:
            self._admin.create_partitions([NewPartitions(topic, PARTITIONS + 1)])[topic].result()
            until(lambda: len(self._admin.list_topics(topic).topics[topic].partitions) > PARTITIONS, "more partitions")
        if cause.larger:
            entries = [
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                for name, value in cause.larger.items()
            ]
            changed = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
            self._admin.incremental_alter_configs([changed])[changed].result()
            until(lambda: self._configs(topic).items() >= dict(cause.larger).items(), "the topic takes larger rows")

    def _configs(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = self._admin.describe_configs([resource])[resource].result()
        return {name: entry.value for name, entry in found.items()}


def main() -> int:
    """All cases, in one session."""
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    spark = SparkSession.builder.appName("bad rows").getOrCreate()
    cases = BadRows(spark, settings)
    cases.files()
    cases.all()
    cases.delete_a_topic()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
