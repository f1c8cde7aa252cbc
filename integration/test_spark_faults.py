"""A query on Spark and three brokers, by either door, with a fault in the middle of every other micro-batch: each row,
how often, and whether the reports know.

A file is a micro-batch: two tasks, whose rows are of one file. The short form has fewer rows, the sink alone, and no
micro-batch between two faults.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from integration.kafka.cluster import KafkaCluster
from integration.kafka.poll import until
from integration.spark_faults import ROWS
from integration.spark_running import RunningQuery

SHORT_ROWS = 8_000
KEY_ROWS = 50
BAD_EACH = 500
"""In the long form, of so many rows one is bad, and goes to a dead-letter topic."""
THROTTLES = "throttles this client"
"""Of what the library logs in a worker."""

pytestmark = pytest.mark.timeout(900)


@dataclass
class Story(RunningQuery):
    """The query while it runs, and what it left."""

    faults: dict[str, int] = field(default_factory=dict)
    """Name -> the number of the file in whose middle it came."""

    def met_by(self, fault: Any) -> None:
        """A micro-batch in the middle of which this happens, and in the long form one after it."""
        self.faults[fault.__name__] = self.files
        if fault == self.worker_killed:
            (self.folder / "wait-0").touch()
        self.add_file_and_meet_it()
        undo = fault()
        if self.rows == ROWS:
            self.add_file()
        self.goes_on(fault.__name__)
        if undo is not None:
            undo()

    def goes_on(self, after: str) -> None:
        """Wait for the report of the last file."""
        self.until(lambda: self.reported(self.files - 1), f"the query goes on after {after}")

    # --- faults ----------------------------------------------------------------------------------------------------

    def broker_killed(self) -> Any:
        node = self.kafka.nodes[self.kafka.admin.leader(self.topics[0], 0)]
        node.kill()
        return node.start

    def leader_moved(self) -> None:
        admin = self.kafka.admin
        for topic, number in itertools.product(self.topics, range(2)):
            partition = admin.partitions(topic)[number]
            admin.move_leader(topic, number, next(one for one in partition.replicas if one != partition.leader))

    def quota(self) -> None:
        self.kafka.admin.set_quota(client_id="", producer_byte_rate=self.rows)  # 80 s for a file, spread over brokers
        self.add_file()  # the rest of the one before may have been quicker than the quota
        self.until(lambda: THROTTLES in self.output(), "a broker throttles")
        self.kafka.admin.set_quota(client_id="", producer_byte_rate=None)

    def task_raises(self) -> None:
        (self.folder / "raise").touch()

    def worker_killed(self) -> None:
        """The one of a task that waits with half of its rows passed, see met_by()."""
        by = self.folder / "wait-0-by"
        self.until(lambda: by.exists() and by.read_text(), "a task waits")
        psutil.Process(int(by.read_text())).kill()
        (self.folder / "wait-0").unlink()

    def query_started_again(self) -> None:
        (self.folder / "again").touch()
        self.until(lambda: not (self.folder / "again").exists(), "the query has started again")

    def driver_killed(self) -> None:
        assert self.driver is not None
        tree = psutil.Process(self.driver.pid).children(recursive=True)
        self.driver.kill()
        self.driver.wait()
        until(lambda: not any(map(_runs_still, tree)), "what the driver had started is gone")
        self.start()

    # --- what is left ----------------------------------------------------------------------------------------------

    def is_bad(self, row: int) -> bool:
        """Whether it is without a topic."""
        return bool(self.bad_each) and row % self.bad_each == self.bad_each - 1

    @property
    def begun_again(self) -> set[int]:
        """Files whose micro-batch a new query began anew: once by itself, once with its driver."""
        return {self.faults["query_started_again"], self.faults["driver_killed"]}

    def calm(self) -> set[int]:
        """Files whose micro-batch was written once, without a repeated task."""
        told = self.reports()
        times = Counter(report["batch_id"] for report in told)
        return {
            report["batch_id"] for report in told if not report["repeated_tasks"] and times[report["batch_id"]] == 1
        } - self.begun_again


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("sink", SHORT_ROWS, 0), id="short"),
        pytest.param(("sink", ROWS, BAD_EACH), id="sink", marks=pytest.mark.full),
        pytest.param(("source", ROWS, BAD_EACH), id="source", marks=pytest.mark.full),
    ],
)
def story(
    request: pytest.FixtureRequest, kafka3: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Story]:
    """All faults, one after the other, by each door."""
    door, rows, bad_each = request.param
    topics = f"faults-{door}-{rows}-a", f"faults-{door}-{rows}-b"
    story = Story(kafka3, tmp_path_factory.mktemp("spark-faults"), door, topics, rows=rows, bad_each=bad_each)
    story.prepare(replicas=3)
    try:
        story.start()
        for fault in (
            story.broker_killed,
            story.leader_moved,
            story.quota,
            story.task_raises,
            story.worker_killed,
            story.query_started_again,
            story.driver_killed,
        ):
            story.met_by(fault)
        story.add_file()
        story.goes_on("all faults")
        story.end()
        yield story
    finally:
        story.kill()


def test_every_row_is_there_and_as_often_as_told(story: Story) -> None:
    """At least once; beyond the input at most `maybe_twice`, and one micro-batch for each start. By file:
    what one fault leaves room for would hide what another one repeats."""
    found = Counter((file, row) for _, file, row, _ in story.records())
    assert set(found) == set(itertools.product(range(story.files), range(story.rows)))
    dead = {row for topic, _, row, _ in story.records() if topic == story.dead}
    assert dead == set(filter(story.is_bad, range(story.rows)))
    told = story.reports()
    assert {report["batch_id"] for report in told} == set(range(story.files))
    allowed = Counter(dict.fromkeys(story.begun_again, story.rows))
    for report in told:
        allowed[report["batch_id"]] += report["maybe_twice"]
    beyond: Counter[int] = Counter()
    for (file, _), count in found.items():
        beyond[file] += count - 1
    assert {file: count for file, count in beyond.items() if count > allowed[file]} == {}, (story.faults, allowed)
    assert beyond.total() > 0
    for fault in ("task_raises", "worker_killed"):
        (report,) = (one for one in told if one["batch_id"] == story.faults[fault])
        assert report["repeated_tasks"] >= 1, fault


def test_rows_are_there_once_and_reports_equal_the_log_without_a_repetition(story: Story) -> None:
    """By topic, rows and bytes; so it is with a broker that is killed, a leader that moves and a quota."""
    each = Counter((file, row) for _, file, row, _ in story.records())
    calm = story.calm()
    assert {story.faults[fault] for fault in ("broker_killed", "leader_moved", "quota")} <= calm
    assert {count for (file, _), count in each.items() if file in calm} == {1}
    told, sums = {report["batch_id"]: report["topics"] for report in story.reports()}, story.sums()
    assert {file: told[file] for file in calm} == {file: sums[file] for file in calm}
    assert sum(map(sum, (one["throttled"].values() for one in story.reports()))) > 0


def test_each_attempt_keeps_the_order_of_a_key(story: Story) -> None:
    """The rows of a key stand in the log as often as there were attempts: from the first one on, without a gap, and at
    least once to the last."""
    stands: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for topic, file, row, _ in story.records():
        stands[topic, file, row // KEY_ROWS].append(row)
    middle = story.rows // 2 // KEY_ROWS  # Spark may end the first task's rows one row later
    for (topic, file, key), seen in stands.items():
        if key == middle or topic == story.dead:
            continue
        rows = [row for row in range(key * KEY_ROWS, (key + 1) * KEY_ROWS) if not story.is_bad(row)]
        expected = [row for row in rows if row % 2 == story.topics.index(topic)]
        runs = [list(run) for run in _runs(seen, expected[0])]
        assert all(run == expected[: len(run)] for run in runs), (topic, file, key, seen)
        assert expected in runs, (topic, file, key, seen)


def _runs_still(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _runs(rows: list[int], first: int) -> Iterator[list[int]]:
    run: list[int] = []
    for row in rows:
        if row == first and run:
            yield run
            run = []
        run.append(row)
    yield run
