"""What test_spark_doors.py runs on Spark: many cases in one session, because a session costs 20 s.

Each case prints one line of JSON: {"case": name, ...}. `python integration/spark_doors.py SETTINGS`, a file in JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import confluent_kafka  # by its name: what tasks run is pickled, and its classes cannot be
import psutil  # type: ignore[import-untyped]
import pyarrow as pa
from confluent_kafka import admin as kafka_admin
from pyspark import TaskContext
from pyspark.sql import DataFrame, Observation, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

from integration.kafka.poll import until
from safeproducer.spark import BatchReport, SafeProducerSink

REPORTS = "SPARK_DOORS_REPORTS"
"""The environment variable that names the file for reports of the data source."""
ZONE = "spark.sql.session.timeZone"
ROWS = 400
TASK_ROWS = 10_000
BAD_ROW = 3210
BATCHES = 40
KEYS = 10_000
"""The long form has ten times as many."""
MOST_PARTITIONS = 50
FEWER_PARTITIONS = (1, 2, 3, 5, 7, 8, 16, 31, 32, 33, 49)
ROTATED = 6
"""Micro-batches of the query whose password is changed after half of them."""


def note_report(report: BatchReport) -> None:
    """What the data source calls in the process that commits."""
    with Path(os.environ[REPORTS]).open("a", encoding="utf-8") as file:
        print(json.dumps(report.as_dict()), file=file)


def until_written(bootstrap: str, topic: str, records: int) -> None:
    """Return when the topic's two partitions hold more than so many together."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "until-written"})
    deadline = time.monotonic() + 30
    places = [confluent_kafka.TopicPartition(topic, partition) for partition in range(2)]
    while (found := sum(consumer.get_watermark_offsets(place, 10)[1] for place in places)) <= records:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{found} records in {topic}")
        time.sleep(0.05)
    consumer.close()


class Cases:
    """All that is tried; a method is a case, and returns what it prints."""

    def __init__(self, spark: SparkSession, settings: dict[str, Any]) -> None:
        self.spark = spark
        self.settings = settings
        self.scratch = Path(settings["scratch"])
        self.options = {
            "kafka.bootstrap.servers": settings["bootstrap"],
            "safeproducer.spark.on.batch": "integration.spark_doors:note_report",
        }

    def sink(self, topic: str | None = None, **more: str) -> SafeProducerSink:
        """A sink for a topic, or for those of the column."""
        return SafeProducerSink({**self.options, **({"topic": topic} if topic else {}), **more})

    # --- triggers ----------------------------------------------------------------------------------------------

    def other_triggers(self) -> dict[str, Any]:
        """Continuous and real-time triggers at both doors: what Spark says, and what is in the checkpoint then."""
        rows = self.spark.readStream.format("rate").option("rowsPerSecond", 50).option("numPartitions", 2).load()
        values, folder = rows.selectExpr("string(value) value"), self.scratch / "continuous"
        options = {**self.options, "topic": "continuous", "checkpointLocation": str(folder)}
        refused = {}
        for trigger in ("continuous", "realTime"):
            for name in ("foreachBatch",) if trigger == "continuous" else ("foreachBatch", "safeproducer"):
                place = {"checkpointLocation": str(self.scratch / f"{name}-{trigger}")}
                writer = values.writeStream.options(**{**options, **place})
                sink = self.sink("continuous")
                writer = writer.foreachBatch(sink) if name == "foreachBatch" else writer.format(name)
                try:
                    writer.trigger(**{trigger: "5 seconds"}).start()
                except Exception as error:
                    refused[f"{name} {trigger}"] = str(error)
        writer = values.writeStream.format("safeproducer").options(**options)
        query = writer.trigger(continuous="1 second").start()
        query.awaitTermination(20)
        query.stop()
        return {"refused": refused, "committed": len(list((folder / "commits").glob("[0-9]*")))}

    # --- columns -----------------------------------------------------------------------------------------------

    def _all_columns(self, topic: str) -> DataFrame:
        return self.spark.range(0, ROWS, 1, 3).selectExpr(
            "if(id % 10 = 0, null, encode(concat('k', id % 7), 'UTF-8')) key",
            "if(id % 11 = 0, '', concat('v', id)) value",
            f"if(id % 2 = 0, '{topic}', '{topic}-b') topic",
            "if(id % 5 = 0, null, cast(id % 3 as int)) partition",
            "if(id % 4 = 0, null, array(named_struct('key', 'n', 'value', encode(string(id), 'UTF-8')), "
            "named_struct('key', 'n', 'value', cast(null as binary)))) headers",
            "timestamp_millis(1700000000000 + id) timestamp",
            "id extra",
            "id `with.dot`",
        )

    def columns_by_sink(self) -> dict[str, Any]:
        return {"report": self.sink().write(self._all_columns("columns-sink")).as_dict()}

    def columns_by_source(self) -> dict[str, Any]:
        seen = Observation()
        df = self._all_columns("columns-source").observe(seen, functions.count(functions.lit(1)).alias("rows"))
        self.spark.conf.set(ZONE, "America/New_York")
        df.write.format("safeproducer").options(**self.options).mode("append").save()
        self.spark.conf.unset(ZONE)
        return {"observed": seen.get["rows"]}

    def large_types(self) -> dict[str, Any]:
        """By both doors, with text and bytes whose lengths Arrow counts in 64 bits."""
        name = "spark.sql.execution.arrow.useLargeVarTypes"

        def kinds(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield pa.RecordBatch.from_pydict({"kind": pa.array(map(str, batch.schema.types), pa.large_string())})

        self.spark.conf.set(name, "true")
        self.spark.conf.set(ZONE, "Asia/Kathmandu")
        self.sink().write(self._all_columns("large-sink"))
        source = self._all_columns("large-source").write.format("safeproducer")
        source.options(**self.options).mode("append").save()
        columns = self._all_columns("large-sink").select("key", "topic", "timestamp")
        found = columns.mapInArrow(kinds, "kind string").collect()
        self.spark.conf.unset(name)
        self.spark.conf.unset(ZONE)
        return {"kinds": [row.kind for row in found]}

    def empty_partitions(self) -> dict[str, Any]:
        """Two rows in six tasks, and none in two, by both doors."""
        found = {}
        for rows, tasks in ((2, 6), (0, 2)):
            df = self.spark.range(0, rows, 1, tasks).selectExpr("string(id) value")
            found[str(rows)] = self.sink("empty").write(df).as_dict()
            df.write.format("safeproducer").options(**self.options, topic="empty").mode("append").save()
        return found

    # --- before any task ---------------------------------------------------------------------------------------

    def _refused(self, write: Callable[[], object]) -> str:
        try:
            write()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "nothing"

    def refused(self) -> dict[str, Any]:
        df = self.spark.range(3).selectExpr("id value")
        good = self.spark.range(3).selectExpr("string(id) value")
        to_topic = {**self.options, "topic": "refused"}
        source = df.write.format("safeproducer").options(**to_topic)
        into = good.write.format("safeproducer").options(**to_topic)
        rate = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
        update = rate.selectExpr("string(value) value").writeStream.format("safeproducer").options(**to_topic)
        update = update.option("checkpointLocation", str(self.scratch / "checkpoint-update")).outputMode("update")
        update = update.option("kafka.lingerms", "5")  # nobody looks at it before Spark refuses
        sink = self.sink("refused")

        def captured(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                sink.write(batch)
                yield batch

        return {
            "sink": self._refused(lambda: sink.write(df)),
            "source": self._refused(lambda: source.mode("append").save()),
            "option": self._refused(lambda: self.sink("refused", **{"kafka.lingerms": "5"})),
            "overwrite": self._refused(lambda: into.mode("overwrite").save()),
            "default mode": self._refused(lambda: good.write.format("safeproducer").options(**to_topic).save()),
            "update": self._refused(lambda: self._ended(update.start())),
            "captured": self._refused(good.coalesce(1).mapInArrow(captured, good.schema).collect),
        }

    # --- tasks that fail ---------------------------------------------------------------------------------------

    def _through(self, fault: Callable[[], None], topic: str) -> dict[str, Any]:
        """Rows of two tasks, each to a partition; when some of the second one are written, its first attempt fails."""
        bootstrap = self.settings["bootstrap"]

        def passing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            assert context is not None
            for number, batch in enumerate(batches):
                if number == 15 and context.partitionId() == 1 and context.attemptNumber() == 0:
                    until_written(bootstrap, topic, TASK_ROWS)  # more than the other task has
                    fault()
                yield batch

        df = self.spark.range(0, 2 * TASK_ROWS, 1, 2).selectExpr(
            "string(id % 97) key", "concat(id, repeat('-', 100)) value"
        )
        return {"report": self.sink(topic).write(df.mapInArrow(passing, df.schema)).as_dict()}

    def task_that_raises(self) -> dict[str, Any]:
        def fault() -> None:
            raise ValueError("as planned")

        return self._through(fault, "raises")

    def worker_killed(self) -> dict[str, Any]:
        def fault() -> None:
            me = psutil.Process()
            for worker in me.parent().children():
                if worker.pid != me.pid:
                    worker.send_signal(signal.SIGKILL)

        return self._through(fault, "killed")

    def bad_row(self) -> dict[str, Any]:
        """One row is larger than the topic takes, and the last task of all is good."""
        df = self.spark.range(0, 10_000, 1, 2).selectExpr(
            "string(id) key",
            f"if(id = {5000 + BAD_ROW}, repeat(concat(id, 'payload-marker'), 20000), string(id)) value",
        )
        sink = self.sink("bad-row")
        return {"error": self._refused(lambda: sink.write(df))}

    # --- streams -----------------------------------------------------------------------------------------------

    def _lines(self, name: str, files: range, lines: int) -> Path:
        folder = self.scratch / f"input-{name}"
        folder.mkdir(exist_ok=True)
        for number in files:
            path = folder / f"{number}.txt"
            path.write_text("".join(f"{name}-{number}-{line}\n" for line in range(lines)))
            os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
        return folder

    def _stream(self, name: str, folder: Path) -> Any:
        lines = self.spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
        return self._to_checkpoint(name, lines.observe("seen", functions.count(functions.lit(1)).alias("rows")))

    def _to_checkpoint(self, name: str, df: DataFrame) -> Any:
        return df.writeStream.option("checkpointLocation", str(self.scratch / f"checkpoint-{name}")).trigger(
            availableNow=True
        )

    def _ended(self, query: StreamingQuery) -> StreamingQuery:
        if not query.awaitTermination(200):
            query.stop()
            raise TimeoutError("the query did not end")
        return query

    def many_micro_batches(self) -> dict[str, Any]:
        folder = self._lines("many", range(BATCHES), 20)
        reports: list[BatchReport] = []
        sink = SafeProducerSink({**self.options, "topic": "many"}, on_batch=reports.append)
        started = time.monotonic()
        query = self._ended(self._stream("many", folder).foreachBatch(sink).start())
        return {
            "seconds": time.monotonic() - started,
            "query": str(query.id),
            "reports": [report.as_dict() for report in reports],
        }

    def three_queries(self) -> dict[str, Any]:
        """One after another, each with a topic of its own."""
        found: dict[str, list[BatchReport]] = {"query-0": [], "query-1": [], "query-2": []}
        for topic, reports in found.items():
            sink = SafeProducerSink({**self.options, "topic": topic}, on_batch=reports.append)
            self._ended(self._stream(topic, self._lines(topic, range(4), 10)).foreachBatch(sink).start())
        return {topic: [report.as_dict() for report in reports] for topic, reports in found.items()}

    def restarted_source(self) -> dict[str, Any]:
        """A query of the data source, and again from its checkpoint when there is more."""
        output = []
        for files in (range(4), range(4, 7)):
            folder = self._lines("restarted", files, 50)
            lines = self.spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
            seen = lines.observe("seen", functions.count(functions.lit(1)).alias("rows"))
            writer = self._to_checkpoint("restarted", seen.withColumn("not_written", functions.lit(1)))
            writer = writer.format("safeproducer").options(**self.options)
            query = self._ended(writer.option("topic", "restarted").start())
            told = [
                (progress.sink.numOutputRows, progress.observedMetrics["seen"]["rows"])
                for progress in query.recentProgress
                if "seen" in progress.observedMetrics
            ]
            output.append(told)
        return {"query": str(query.id), "output": output}

    def stopped_and_started(self) -> dict[str, Any]:
        """A query that is stopped in the middle of a micro-batch, and started again from its checkpoint."""
        folder = self._lines("stopped", range(6), 3000)
        reports: list[BatchReport] = []
        sink = SafeProducerSink({**self.options, "topic": "stopped"}, on_batch=reports.append)
        query = self._stream("stopped", folder).foreachBatch(sink).start()
        while len(reports) < 2 and query.isActive:
            time.sleep(0.01)
        query.stop()
        before = len(reports)
        again = self._stream("stopped", folder).foreachBatch(sink).start()
        self._ended(again)
        return {"before": before, "reports": [report.as_dict() for report in reports]}

    # --- the rest ----------------------------------------------------------------------------------------------

    def keys(self) -> dict[str, Any]:
        """Keys of 0 to 40 bytes of all values; null keys nowhere: those go anywhere."""
        key = "substr(concat(unhex(sha2(string(id), 256)), unhex(sha2(concat(id, '-'), 256))), 1, int(id % 41))"
        fewer, keys = ", ".join(map(str, FEWER_PARTITIONS)), self.settings["keys"]
        count = f"if(id < {keys}, {MOST_PARTITIONS}, array({fewer})[int(id % {len(FEWER_PARTITIONS)})])"
        df = self.spark.range(0, 2 * keys, 1, 2)

        def to(door: str) -> DataFrame:
            return df.selectExpr(f"{key} key", "string(id) value", f"concat('keys-{door}-', {count}) topic")

        report = self.sink().write(to("sink"))
        to("spark").write.format("kafka").option("kafka.bootstrap.servers", self.settings["bootstrap"]).save()
        return {"report": report.as_dict()}

    def _secure(self, login: str) -> dict[str, str]:
        return {
            **self.options,
            **self.settings["secure"],
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": login,
        }

    def secured(self) -> dict[str, Any]:
        """Over SASL_SSL with a login that only the workers read; then a task that fails shows its locals."""
        secure = self._secure("env:MARKER_LOGIN")
        df = self.spark.range(0, 100, 1, 2).selectExpr("string(id) value")
        report = SafeProducerSink({**secure, "topic": "secured"}).write(df)
        df.write.format("safeproducer").options(**secure, topic="secured").mode("append").save()
        return {"report": report.as_dict(), "errors": self._not_allowed(secure, df)}

    def _not_allowed(self, secure: dict[str, str], df: DataFrame) -> list[str]:
        """By one task: each of its attempts costs a Python worker."""
        wrong, df = {**secure, "topic": "not-allowed", "safeproducer.spark.deadline": "8"}, df.coalesce(1)
        source = df.write.format("safeproducer").options(**wrong).mode("append")
        return [self._refused(write) for write in (lambda: SafeProducerSink(wrong).write(df), source.save)]

    def secured_as_it_is(self) -> dict[str, Any]:
        """With the password itself among the options, by both doors, as a batch and as a stream; and what fails."""
        secure = self._secure(os.environ["MARKER_LOGIN"])
        to_topic = {**secure, "topic": "secured-as-it-is"}
        df = self.spark.range(0, 100, 1, 2).selectExpr("string(id) value")
        SafeProducerSink(to_topic).write(df)
        df.write.format("safeproducer").options(**to_topic).mode("append").save()
        folder = self._lines("secured", range(2), 50)
        for door in ("sink", "source"):
            lines = self.spark.readStream.text(str(folder))
            writer = self._to_checkpoint(f"secured-{door}", lines)
            if door == "sink":
                query = writer.foreachBatch(SafeProducerSink(to_topic)).start()
            else:
                query = writer.format("safeproducer").options(**to_topic).start()
            self._ended(query).explain(True)
            print(query.lastProgress, file=sys.stderr)
        wrong = self._secure(os.environ["MARKER_LOGIN"].rstrip(";"))  # no valid entry
        refused = (
            lambda: SafeProducerSink({**wrong, "topic": "secured"}),
            df.write.format("safeproducer").options(**wrong, topic="secured").mode("append").save,
        )
        return {"errors": self._not_allowed(secure, df), "refused": [self._refused(write) for write in refused]}

    def password_changed(self) -> dict[str, Any]:
        """While a query runs, and between two writes of the data source; the broker forgets the old one each time.

        Nobody has a connection then, so all that is written after it takes a new login.
        """
        place, user = Path(self.settings["rotation"]["place"]), self.settings["rotation"]["user"]
        admin = kafka_admin.AdminClient({"bootstrap.servers": self.settings["bootstrap"], "log_level": 0})
        kind: Any = kafka_admin
        scram = kind.ScramCredentialInfo(kind.ScramMechanism.SCRAM_SHA_512, 4096)
        port = int(self.settings["secure"]["kafka.bootstrap.servers"].rpartition(":")[2])
        options = {**self._secure(f"file:{place}"), "topic": "rotated", "kafka.connections.max.idle.ms": "500"}
        options["safeproducer.spark.deadline"] = "15"  # with the old password all attempts of a task fail in time
        reports: list[BatchReport] = []

        def connections() -> int:
            found = 0
            for worker in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess):  # those that plan and commit come and go
                    found += sum(bool(one.raddr) and one.raddr.port == port for one in worker.net_connections())
            return found

        def change(password: str) -> int:
            before = connections()
            credential: Any = kind.UserScramCredentialUpsertion(user, scram, password.encode())
            altered: Any = admin.alter_user_scram_credentials([credential])
            altered[user].result()
            module = "org.apache.kafka.common.security.scram.ScramLoginModule"
            place.write_text(f'{module} required username="{user}" password="{password}";')
            until(lambda: not connections(), "no worker has a connection", timeout=120)
            return before

        def on_batch(report: BatchReport) -> None:
            reports.append(report)
            if len(reports) == ROTATED // 2:
                open_ones.append(change("second"))

        open_ones = [change("first")]
        sink = SafeProducerSink(options, on_batch=on_batch)
        folder = self._lines("rotated", range(ROTATED), 50)
        self._ended(self._stream("rotated", folder).foreachBatch(sink).start())
        writer = self.spark.range(0, 100, 1, 2).selectExpr("string(id) value").write.format("safeproducer")
        for password in (None, "third"):
            if password is not None:
                open_ones.append(change(password))
            writer.options(**options).mode("append").save()
        return {"reports": [report.as_dict() for report in reports], "connections": open_ones}


CASES = (
    "refused",
    "columns_by_sink",
    "columns_by_source",
    "large_types",
    "empty_partitions",
    "task_that_raises",
    "worker_killed",
    "bad_row",
    "many_micro_batches",
    "three_queries",
    "restarted_source",
    "stopped_and_started",
    "keys",
    "secured",
    "secured_as_it_is",
    "password_changed",
    "other_triggers",
)


def main() -> int:
    """Run all cases."""
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    spark = SparkSession.builder.appName("doors").getOrCreate()
    cases = Cases(spark, settings)
    for name in CASES:
        started = time.monotonic()
        try:
            found = getattr(cases, name)()
        except Exception as error:
            found = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps({"case": name, "took": time.monotonic() - started, **found}), flush=True)
    print(json.dumps({"case": "driver", "modules": sorted(sys.modules)}), flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
