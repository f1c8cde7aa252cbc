"""An exactly-once query on Spark and three brokers while everything around it dies: readers of committed records see
each input row once, by content. And replays: the same rows are found there, others stop the query.

The short form has one seed and twelve micro-batches; the long one (`--full`) ten seeds of 200.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import psutil  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from confluent_kafka import Producer

from integration import spark_once
from integration.kafka.cluster import KafkaCluster
from integration.kafka.log import read_records
from integration.kafka.poll import until
from integration.spark import run_script, task_workers
from integration.spark_running import RunningQuery
from integration.spark_storm import DEATHS, STOP, STOPPED
from integration.tap.tap import Tap
from safeproducer.spark import slot
from safeproducer.spark.options import Options
from safeproducer.spark.task import Task, write_task

SLOTS = 2
FILE_ROWS = 2_000
MARKERS = "once-markers"
FENCED = "another writer took over"
ARMED = {"safeproducer.spark.on.worker": "integration.spark_storm:arm"}
pytestmark = pytest.mark.timeout(7_200)


def once(sink_id: str) -> dict[str, str]:
    """Options of the sink."""
    return {
        "safeproducer.spark.guarantee": "exactly_once",
        "safeproducer.spark.sink.id": sink_id,
        "safeproducer.spark.slots": str(SLOTS),
        "safeproducer.spark.marker.topic": MARKERS,
        "safeproducer.spark.deadline": "20",
    }


@pytest.fixture(scope="module")
def kafka_once() -> Iterator[KafkaCluster]:
    """Three nodes behind a tap, and the topic for markers."""
    with KafkaCluster(3, tapped=True) as cluster:
        cluster.admin.create_topic(MARKERS, SLOTS, 3)
        yield cluster


@pytest.fixture
def tap(kafka_once: KafkaCluster) -> Iterator[Tap]:
    """Between clients and brokers."""
    with Tap(kafka_once) as found:
        yield found


@dataclass
class Storm(RunningQuery):
    """The query in a storm of faults. `drivers`: how often one is killed."""

    dice: Random = field(default_factory=Random)
    tap: Any = None
    drivers: int = 2
    met: Counter[str] = field(default_factory=Counter)

    def weather(self) -> None:
        """Faults until each file is reported, two at most in a micro-batch: Spark gives up after four attempts."""
        due = [self.files * (number + 1) // (self.drivers + 1) for number in range(self.drivers)]
        rare = [self.task_raises, self.broker_killed, self.leaders_moved]
        faults, seen, left = [*[self.worker_killed] * 6, *rare, *[self.answer_lost] * 3], -1, 0
        while (done := self.done()) < self.files:
            if done > seen:
                seen, left, until_ = done, self.dice.choice([0, 1, 2, 2]), time.monotonic() + 240
            assert time.monotonic() < until_, (done, dict(self.met), self.output()[-5000:])
            if self.driver is not None and self.driver.poll() is not None:
                self.met["driver ended by itself"] += 1
                self.start_again()
            elif due and done >= due[0]:
                due.pop(0)
                self.driver_killed()
            elif left:
                left -= 1
                time.sleep(self.dice.uniform(0, 2))
                self.dice.choice(faults)()
            time.sleep(0.1)
        self.tap.heal()

    def done(self) -> int:
        """How many files are written. A micro-batch may have two: see start_again()."""
        rows: dict[int, int] = {report["batch_id"]: report["rows"] for report in self.reports()}
        return sum(rows.values()) // self.rows

    def start_again(self) -> None:
        """With one more file: Spark's source waits for that where its driver died after it had noted the last one."""
        self.add_file()
        self.start()

    def tree(self) -> list[psutil.Process]:
        """Python workers and all else of the driver; it itself comes first."""
        assert self.driver is not None
        try:
            driver = psutil.Process(self.driver.pid)
            return [driver, *driver.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def worker_killed(self) -> None:
        """Any, whatever it does."""
        with suppress(psutil.NoSuchProcess, IndexError):
            self.dice.choice(task_workers(self.tree()[0])).kill()
            self.met["worker killed"] += 1

    def task_raises(self) -> None:
        (self.folder / "raise").touch()
        self.met["task raises"] += 1

    def broker_killed(self) -> None:
        node = self.kafka.nodes[self.dice.choice(list(self.kafka.nodes))]
        node.kill()
        time.sleep(self.dice.uniform(0, 1))
        node.start()
        self.met["broker killed"] += 1

    def leaders_moved(self) -> None:
        admin = self.kafka.admin
        for topic in self.topics:
            partition = admin.partitions(topic)[0]
            admin.move_leader(topic, 0, next(one for one in partition.replicas if one != partition.leader))
        self.met["leaders moved"] += 1

    def answer_lost(self) -> None:
        api = self.dice.choice(["EndTxn", "Produce", "TxnOffsetCommit", "InitProducerId", "AddPartitionsToTxn"])
        self.tap.drop_answers(api, 1, keep_open=self.dice.random() < 0.15)
        self.met[f"answer to {api} lost"] += 1

    def driver_killed(self) -> None:
        tree = self.tree()
        self.kill()
        until(lambda: not any(map(_runs, tree)), "what the driver had started is gone")
        self.met["driver killed"] += 1
        self.start_again()

    def driver_stopped(self) -> None:
        """With a worker that stands still between flush and commit, until another driver has finished the micro-batch;
        then both go on. It is the last one: what two drivers make of new files is Spark's own affair."""
        (self.folder / STOP).touch()
        self.add_file()
        former = self.driver
        assert former is not None
        self.until((self.folder / STOPPED).exists, "a worker stands still")
        tree = self.tree()
        for process in tree:
            _signal(process, signal.SIGSTOP)
        self.start()
        self.until(lambda: self.done() == self.files, "another driver goes on")
        before = self.folder.joinpath("output").stat().st_size
        for process in tree:
            _signal(process, signal.SIGCONT)
        until(lambda: FENCED in self.output()[before:] or former.poll() is not None, "the former one is fenced", 60)
        self.met["driver stopped"] += 1
        for process in tree:
            _signal(process, signal.SIGKILL)
        former.wait(30)


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _signal(process: psutil.Process, number: int) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def committed_rows(kafka: KafkaCluster, topics: Sequence[str]) -> Counter[tuple[int, int]]:
    """How often readers of committed records see each row: its file, and its number."""
    seen: Counter[tuple[int, int]] = Counter()
    for topic in topics:
        committed = read_records(kafka.direct_bootstrap, topic, isolation="read_committed")
        for record in itertools.chain.from_iterable(committed):
            file, row, _ = (record.value or b"").decode().split("-")
            seen[int(file), int(row)] += 1
    return seen


def producer_ids(kafka: KafkaCluster, topics: Sequence[str]) -> set[int]:
    """Those that leaders remember."""
    states = (kafka.admin.describe_producers(topic, partition) for topic in topics for partition in range(4))
    return {state.producer_id for state in itertools.chain.from_iterable(states)}


STORMS = [
    pytest.param(1, 12, 1, id="short"),
    *(pytest.param(seed, 200, 10, id=f"seed-{seed}", marks=pytest.mark.full) for seed in range(1, 11)),
]


@pytest.mark.parametrize(("seed", "files", "drivers"), STORMS)
def test_each_row_is_there_once_for_readers_of_committed_records(
    kafka_once: KafkaCluster, tap: Tap, tmp_path: Path, seed: int, files: int, drivers: int
) -> None:
    """And all of them have `slots` producer IDs, however many workers died."""
    name = f"storm-{seed}-{files}"
    topics = f"{name}-a", f"{name}-b"
    storm = Storm(kafka_once, tmp_path, "sink", topics, rows=FILE_ROWS, options=once(name) | ARMED, drivers=drivers)
    storm.dice, storm.tap = Random(seed), tap
    storm.prepare(replicas=3)
    try:
        for _ in range(files - 1):
            storm.add_file()
        storm.start()
        storm.weather()
        storm.driver_stopped()
        storm.end()
    finally:
        storm.kill()
    seen = committed_rows(kafka_once, topics)
    uncommitted = sum(len(log) for topic in topics for log in read_records(kafka_once.direct_bootstrap, topic))
    slots = sum((Counter(report["slots"]) for report in storm.reports()), Counter[str]())
    storm.met.update((tmp_path / DEATHS).read_text().splitlines())
    print(json.dumps({"rows": seen.total(), "uncommitted": uncommitted, "slots": slots, **storm.met}))
    assert set(seen) == set(itertools.product(range(storm.files), range(FILE_ROWS)))
    assert {place: count for place, count in seen.items() if count > 1} == {}
    assert len(producer_ids(kafka_once, topics)) == SLOTS
    assert storm.met["driver stopped"]
    assert uncommitted > storm.files * FILE_ROWS, "no fault met anything"


# --- replays ---------------------------------------------------------------------------------------------------------

REPLAYED: dict[str, Any] = {"conf": {"spark.sql.adaptive.enabled": "false"}, "forget": True}
REPLAYS: list[dict[str, Any]] = [
    {"name": "written"},
    {"name": "again", "forget": True},
    {"name": "without adaptive execution", **REPLAYED},
    {"name": "rand", "value": "concat(value, rand()) value", "forget": True},
    {"name": "constant", "value": "replace(value, '77', '78') value"},
    {"name": "other slots", "options": {"safeproducer.spark.slots": "1"}},
    {"name": "second query", "checkpoint": "another"},
    {"name": "repaired"},
    {"name": "more cores", "master": "local[8,1]", "forget": True},
    {"name": "more cores, not adaptive", **REPLAYED},
]
"""A query that stops leaves its micro-batch to the next one. Another master is another session, in the same JVM."""


def write_files(folder: Path, files: int, count: int) -> list[str]:
    """In `input`, so many rows each, one micro-batch after the other; all rows."""
    (folder / "input").mkdir(parents=True)
    width = len(str(files * count - 1))
    rows = [f"{number:0{width}d}-{'x' * 90}" for number in range(files * count)]
    for file in range(files):
        path = folder / "input" / f"{file}.txt"
        path.write_text("".join(f"{row}\n" for row in rows[file * count : (file + 1) * count]))
        os.utime(path, (1_000_000_000 + file, 1_000_000_000 + file))
    return rows


def steps(folder: Path, kafka: KafkaCluster, topic: str, cores: str, each: list[dict[str, Any]]) -> dict[str, Any]:
    """By their names, how they ended."""
    settings = {
        "folder": str(folder),
        "input": str(folder / "input"),
        "options": {"kafka.bootstrap.servers": kafka.direct_bootstrap, "topic": topic, **once(topic)},
        "steps": each,
    }
    (folder / "steps.json").write_text(json.dumps(settings))
    done = run_script(Path(spark_once.__file__), [str(folder / "steps.json")], folder, cores=cores, timeout=3_000)
    assert done.returncode == 0, done.stderr[-5000:]
    return {line["name"]: line for line in done.tasks}


def test_replays_are_found_there_and_others_stop_the_query(kafka_once: KafkaCluster, tmp_path: Path) -> None:
    """On two and on eight cores, with and without adaptive execution; with slot, batch and both counts."""
    topic = "replays"
    kafka_once.admin.create_topic(topic, 4, 3)
    rows = write_files(tmp_path, 3, 1_000)
    found = steps(tmp_path, kafka_once, topic, "2,1", REPLAYS)
    print(json.dumps({name: one["error"][-300:] or one["slots"] for name, one in found.items()}))
    assert (found["written"]["master"], found["more cores"]["master"]) == ("local[2,1]", "local[8,1]")
    assert found["written"]["slots"] == [{"written": SLOTS}] * 3
    for name in ("again", "without adaptive execution", "repaired", "more cores", "more cores, not adaptive"):
        assert (found[name]["slots"], found[name]["error"]) == ([{"already_there": SLOTS}], ""), name
    for name in ("rand", "constant"):
        pattern = r"slot \d has committed (\d+) rows of micro-batch 2, and the query gives (\d+) rows"
        told = re.search(pattern, found[name]["error"])
        assert told is not None, found[name]["error"]
        assert told[1] == told[2]
    assert f"{topic} has {SLOTS} slots, whose rows would be written twice" in found["other slots"]["error"]
    assert "a second query writes with this name" in found["second query"]["error"]
    committed = itertools.chain.from_iterable(
        read_records(kafka_once.direct_bootstrap, topic, isolation="read_committed")
    )
    assert Counter((record.value or b"").decode() for record in committed) == Counter(rows)


@pytest.mark.usefixtures("_no_idle_producer_left")
def test_no_reader_waits_longer_than_the_time_out_of_a_transaction(
    kafka_once: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And ten seconds, after which brokers look: a worker died with its rows sent, and no other attempt comes. Another
    producer's record stands behind them."""
    kafka_once.admin.create_topic("held-up", 1, 3)
    settings = {"kafka.bootstrap.servers": kafka_once.direct_bootstrap, "topic": "held-up", **once("held-up")}
    options = Options.parse({**settings, "safeproducer.spark.deadline": "5"})
    left: list[slot._Session] = []

    def dead(session: slot._Session, *_: Any) -> None:
        left.append(session)
        raise KeyboardInterrupt

    rows = pa.RecordBatch.from_pydict({"value": [b"never committed"] * 100})
    with monkeypatch.context() as patch:
        patch.setattr(slot._Session, "_commit", dead)
        patch.setattr(slot._Session, "close", lambda _: None)
        with pytest.raises(KeyboardInterrupt):
            write_task(iter([rows]), options, Task(0, 0, "query", 0, "run"))
    other, began = Producer({"bootstrap.servers": kafka_once.direct_bootstrap}), time.monotonic()
    other.produce("held-up", b"behind")
    assert other.flush(20) == 0

    def seen() -> bool:
        (records,) = read_records(kafka_once.direct_bootstrap, "held-up", isolation="read_committed")
        return [record.value for record in records] == [b"behind"]

    assert not seen()
    until(seen, "the transaction is aborted", 30)
    print(json.dumps({"held up": time.monotonic() - began}))
    assert time.monotonic() - began < 5 + 10 + 5  # the last five: of the machine
    left[0].close()
    assert seen()


@pytest.mark.full
def test_workers_that_die_behind_each_micro_batch_have_an_id_for_each_slot(
    kafka_once: KafkaCluster, tmp_path: Path
) -> None:
    """A hundred times; at least once each new process would take another ID."""
    topic, files = "ids", 100
    kafka_once.admin.create_topic(topic, 4, 3)
    write_files(tmp_path, files, 20)
    found = steps(tmp_path, kafka_once, topic, "2,4", [{"name": "killed", "kill": True}])["killed"]
    assert (found["error"], len(found["slots"])) == ("", files)
    assert all(sum(slots.values()) == SLOTS for slots in found["slots"])
    ids = producer_ids(kafka_once, [topic])
    print(json.dumps({"micro-batches": files, "producer IDs": len(ids)}))
    assert len(ids) == SLOTS


# --- two drivers -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("tap")
def test_another_driver_with_other_slots_is_refused_or_takes_over(kafka_once: KafkaCluster, tmp_path: Path) -> None:
    """The first one, all of it, stands still between flush and commit of its slot. With other slots on the same
    checkpoint another one is refused; told to take over it writes the micro-batch, and the first one goes on."""
    topics, still = ("two-a", "two-b"), {"safeproducer.spark.on.worker": "integration.spark_storm:stand_still"}
    own = {**once("two"), **still, "safeproducer.spark.slots": "1"}
    first = Storm(kafka_once, tmp_path, "sink", topics, rows=FILE_ROWS, options=own)
    second = Storm(kafka_once, tmp_path, "sink", topics, rows=FILE_ROWS, options=once("two"))
    first.prepare(replicas=3)
    stopped: list[psutil.Process] = []
    try:
        for _ in range(2):
            first.add_file()
        first.start()
        first.until(lambda: first.reported(1), "two micro-batches are written")
        (tmp_path / STOP).touch()
        first.add_file()
        first.until((tmp_path / STOPPED).exists, "its worker stands still")
        stopped = first.tree()
        for process in stopped:
            _signal(process, signal.SIGSTOP)
        second.prepare_settings()
        second.start()
        assert second.driver is not None
        assert second.driver.wait(120) == 1
        assert "two has 1 slots, whose rows would be written twice" in second.output()
        second.options = {**second.options, "safeproducer.spark.adopt.from": "2"}
        second.prepare_settings()
        second.start()
        second.until(lambda: second.reported(2), "it takes over")
        for process in stopped:
            _signal(process, signal.SIGCONT)
        assert first.driver is not None
        assert first.driver.wait(120) == 1
        second.files = first.files
        second.add_file()
        second.until(lambda: second.reported(3), "it goes on")
        second.end()
    finally:
        for process in stopped:
            _signal(process, signal.SIGKILL)
        first.kill()
        second.kill()
    assert "slots=2" in second.output()
    assert committed_rows(kafka_once, topics) == Counter(itertools.product(range(4), range(FILE_ROWS)))


# --- what it costs ---------------------------------------------------------------------------------------------------

AT_LEAST_ONCE = {f"safeproducer.spark.{name}": None for name in ("guarantee", "sink.id", "slots", "marker.topic")}


@pytest.mark.full
def test_what_it_costs(kafka_once: KafkaCluster, tmp_path: Path) -> None:
    """Beside at least once, in one session, in turn: of small micro-batches, and of a large one."""
    told: dict[str, Any] = {}
    for name, files, count in (("small", 20, 100), ("large", 1, 1_000_000)):
        topic, folder = f"cost-{name}", tmp_path / name
        kafka_once.admin.create_topic(topic, 6, 3)
        write_files(folder, files, count)
        each: list[dict[str, Any]] = []
        for turn in range(4):
            own = {"safeproducer.spark.sink.id": f"{topic}-{turn}"}
            each.append({"name": f"once {turn}", "checkpoint": f"once-{turn}", "options": own})
            few = {**AT_LEAST_ONCE, "safeproducer.spark.max.writers": str(SLOTS)}
            each.append({"name": f"at least once {turn}", "checkpoint": f"least-{turn}", "options": few})
        found = steps(folder, kafka_once, topic, "2", each)
        told[name] = {
            kind: sorted(median(found[f"{kind} {turn}"]["milliseconds"][-max(1, files - 5) :]) for turn in range(1, 4))
            for kind in ("once", "at least once")
        }
    print(json.dumps(told))
    assert median(told["small"]["once"]) - median(told["small"]["at least once"]) <= 300
    assert median(told["large"]["at least once"]) / median(told["large"]["once"]) >= 0.6
