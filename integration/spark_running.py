"""A query of spark_faults.py in a driver of its own, while it runs: its files, its reports, what it has written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from integration import spark_faults
from integration.kafka.cluster import KafkaCluster
from integration.kafka.log import Record, read_records
from integration.kafka.poll import until
from integration.spark import DAEMON, spark_environment
from integration.spark_faults import ARROW_BATCHES, REPORTS, ROWS

LINE = "{}-{:05d}-" + "x" * 60


@dataclass
class RunningQuery:
    """`master` and `conf`: of Spark; `options`: more of the sink. A file is a micro-batch of so many `rows`: two tasks,
    whose rows are of one file. Of so many rows each, one is bad, and goes to the topic `dead`."""

    kafka: KafkaCluster
    folder: Path
    door: str
    topics: tuple[str, str]
    master: str = "local[2,4]"
    conf: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    rows: int = ROWS
    bad_each: int = 0
    files: int = 0
    driver: subprocess.Popen[bytes] | None = None

    @property
    def arrow_rows(self) -> int:
        """Of an Arrow batch."""
        return self.rows // 2 // ARROW_BATCHES

    @property
    def dead(self) -> str:
        """The topic for bad rows."""
        return f"{self.topics[0]}-bad"

    def prepare(self, replicas: int = 1) -> None:
        """Folders, settings and topics."""
        (self.folder / "input").mkdir()
        self.prepare_settings()
        for topic in (*self.topics, self.dead):
            self.kafka.admin.create_topic(topic, 4, replicas, {"min.insync.replicas": str(min(replicas, 2))})

    def prepare_settings(self) -> None:
        """What the driver reads."""
        settings = {
            "bootstrap": self.kafka.bootstrap,
            "topics": self.topics,
            "door": self.door,
            "folder": str(self.folder),
            "options": dict(self.options),
            "bad_each": self.bad_each,
            "dead": self.dead,
        }
        (self.folder / "settings.json").write_text(json.dumps(settings))

    def start(self) -> None:
        """The driver; returns when its query has started."""
        (self.folder / "started").unlink(missing_ok=True)
        conf = {
            "spark.sql.execution.arrow.maxRecordsPerBatch": str(self.arrow_rows),
            "spark.sql.files.openCostInBytes": "0",
            "spark.python.daemon.module": DAEMON,
            "spark.sql.files.maxPartitionBytes": str(self.rows // 2 * len(LINE.format("00", 0) + "\n")),
            **self.conf,
        }
        environment = {REPORTS: str(self.folder / "reports")}
        with (self.folder / "output").open("ab") as output:
            self.driver = subprocess.Popen(
                [sys.executable, spark_faults.__file__, str(self.folder / "settings.json")],
                cwd=self.folder,
                env=spark_environment(self.folder, master=self.master, conf=conf, environment=environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self.until((self.folder / "started").exists, "the query has started")

    def output(self) -> str:
        """What the driver wrote to its console."""
        return (self.folder / "output").read_text(encoding="utf-8")

    def until(self, probe: Any, what: str, patience: float = 120) -> None:
        """Wait, but not for a driver that has failed."""
        driver = self.driver

        def found() -> bool:
            if driver is not None and driver.poll() is not None:
                raise AssertionError(self.output()[-5000:])
            return bool(probe())

        until(found, what, patience, 0.1)  # a probe may ask brokers for all partitions

    def end(self) -> None:
        """Stop the query, and its driver."""
        assert self.driver is not None
        (self.folder / "end").touch()
        assert self.driver.wait(60) == 0, self.output()[-5000:]

    def kill(self) -> None:
        """The driver, if it is still there."""
        if self.driver is not None and self.driver.poll() is None:
            self.driver.kill()
            self.driver.wait()

    def add_file(self) -> None:
        """More to write, newer than all before."""
        path = self.folder / "input" / f"{self.files:02d}.txt"
        hidden = path.with_name(f".{path.name}")
        hidden.write_text("".join(LINE.format(f"{self.files:02d}", row) + "\n" for row in range(self.rows)))
        os.utime(hidden, (1_000_000_000 + self.files, 1_000_000_000 + self.files))
        hidden.rename(path)
        self.files += 1

    def add_file_and_meet_it(self, patience: float = 120) -> None:
        """Another file; returns in the middle of its micro-batch."""
        before = self.written()
        self.add_file()
        self.until(lambda: self.written() > before + self.rows // 5, "the micro-batch is in the middle", patience)

    def written(self) -> int:
        """Records in both topics."""
        return sum(sum(self.kafka.admin.end_offsets(topic)) for topic in self.topics)

    def reported(self, batch: int) -> bool:
        """Whether the query has told of this micro-batch."""
        return any(report["batch_id"] == batch for report in self.reports())

    def reports(self) -> list[dict[str, Any]]:
        """All so far."""
        path = self.folder / "reports"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    @cached_property
    def log(self) -> dict[str, list[list[Record]]]:
        """Topic -> partition -> records, as they are when it is read first."""
        return {topic: read_records(self.kafka.direct_bootstrap, topic) for topic in (*self.topics, self.dead)}

    def records(self) -> Iterator[tuple[str, int, int, Record]]:
        """Topic, file, row, record."""
        for topic, partitions in self.log.items():
            for record in chain.from_iterable(partitions):
                file, row, _ = (record.value or b"").decode().split("-")
                yield topic, int(file), int(row), record

    def sums(self) -> dict[int, dict[str, dict[str, int]]]:
        """File -> what a report says of its topics, as it is in the log."""
        found: dict[int, dict[str, dict[str, int]]] = defaultdict(
            lambda: {topic: dict.fromkeys(("rows", "delivered", "bytes"), 0) for topic in self.topics}
        )
        for topic, file, _, record in self.records():
            if topic == self.dead:
                continue
            sums = found[file][topic]
            sums["rows"] += 1
            sums["delivered"] += 1
            sums["bytes"] += len(record.key or b"") + len(record.value or b"")
        return found
