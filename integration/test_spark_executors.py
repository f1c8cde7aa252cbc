"""A query on executors of their own: one is killed in the middle of a micro-batch, and a slow task is speculated.

The long form.
"""

from __future__ import annotations

import itertools
import re
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from integration.kafka.cluster import KafkaCluster
from integration.spark_cluster import spark_cluster
from integration.spark_faults import ROWS
from integration.spark_running import RunningQuery
from safeproducer.spark.jaas import MODULES

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
}
TASK_ROWS = ROWS // 2
HALF_OF_SECOND_TASK = TASK_ROWS + TASK_ROWS // 2
"""No attempt passes more rows on before it waits for the test."""

EXECUTORS = 2
USER, PASSWORD = "of-executors", "marker-of-a-password"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Spark's master, with two workers."""
    with spark_cluster(tmp_path_factory.mktemp("spark-cluster")) as found:
        yield found


def running(request: pytest.FixtureRequest, master: str, kafka: KafkaCluster, folder: Path) -> Iterator[RunningQuery]:
    """By the sink; for each test with topics of its own."""
    name = re.sub(r"\W+", "-", request.node.name.removeprefix("test_"))
    conf = {"spark.executor.memory": "512m"}
    made = RunningQuery(kafka, folder, "sink", (f"{name}-a", f"{name}-b"), master=master, conf=conf)
    made.prepare()
    yield made
    made.kill()


@pytest.fixture
def query(request: pytest.FixtureRequest, cluster: str, kafka: KafkaCluster, tmp_path: Path) -> Iterator[RunningQuery]:
    """Without a login."""
    yield from running(request, cluster, kafka, tmp_path)


@pytest.fixture
def logged_in(
    request: pytest.FixtureRequest, cluster: str, kafka_secure: KafkaCluster, tmp_path: Path
) -> Iterator[RunningQuery]:
    """With the login itself among the options."""
    kafka_secure.admin.add_scram_user(USER, PASSWORD)
    for made in running(request, cluster, kafka_secure, tmp_path):
        for topic in made.topics:
            kafka_secure.admin.add_acl(f"User:{USER}", topic, AclOperation.WRITE, AclOperation.DESCRIBE)
        mechanism = "SCRAM-SHA-512"
        made.options = {
            "kafka.bootstrap.servers": kafka_secure.secure_bootstrap,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(kafka_secure.ca_pem),
            "kafka.sasl.mechanism": mechanism,
            "kafka.sasl.jaas.config": f'{MODULES[mechanism]} required username="{USER}" password="{PASSWORD}";',
        }
        yield made


def times(query: RunningQuery) -> Counter[tuple[int, int]]:
    """File and row -> how often it is in the topics, where each row must be."""
    found = Counter((file, row) for _, file, row, _ in query.records())
    assert set(found) == set(itertools.product(range(query.files), range(ROWS)))
    return found


def showing(query: RunningQuery, executors: Path) -> list[str]:
    """The files of the query and its executors that show its password, but for those that the test wrote."""
    logs = [path for path in executors.rglob("*") if path.is_file()]
    assert sum(path.name == "stderr" and path.stat().st_size > 0 for path in logs) >= EXECUTORS, logs
    files = [path for path in query.folder.rglob("*") if path.is_file() and path.name != "settings.json"]
    return [str(path) for path in logs + files if PASSWORD.encode() in content(path)]


def content(path: Path) -> bytes:
    """Nothing of a file that Spark has deleted since."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


@pytest.mark.parametrize("door", ["sink", "source"])
@pytest.mark.parametrize("master", ["workers of two hosts", "local-cluster[2,1,1024]"])
def test_an_executor_is_lost(logged_in: RunningQuery, master: str, door: str) -> None:
    """Its task is repeated by another one; every row is there, and the report does not say how often. Nothing shows
    the login, of the lost one neither."""
    query = logged_in
    query.door = door
    query.prepare_settings()
    if master.startswith("local-cluster"):
        query.master = master
    query.start()
    (query.folder / "wait-0").touch()
    query.add_file()
    by = query.folder / "wait-0-by"
    query.until(lambda: by.exists() and query.written() > TASK_ROWS + query.arrow_rows, "some of its rows are written")
    worker = psutil.Process(int(by.read_text()))
    (lost,) = (parent for parent in worker.parents() if EXECUTOR in parent.cmdline())
    executors = Path(lost.cwd()).parent
    lost.send_signal(signal.SIGKILL)
    (query.folder / "wait-0").unlink()
    query.add_file()
    query.until(lambda: query.reported(1), "the query goes on")
    query.end()
    shown = showing(query, executors)
    shutil.rmtree(executors, ignore_errors=True)  # local-cluster has it where PySpark is installed
    first, second = query.reports()
    assert (first["rows"], first["delivered"], first["repeated_tasks"]) == (ROWS, ROWS, 1)
    found = times(query)
    beyond = {file: sum(found[file, row] - 1 for row in range(ROWS)) for file in range(2)}
    assert 0 < beyond[0] <= TASK_ROWS + 1
    assert first["maybe_twice"] is None  # its note of the rows is gone with it
    assert (beyond[1], second["maybe_twice"], second["repeated_tasks"]) == (0, 0, 0)
    assert second["topics"] == query.sums()[1]
    assert shown == []


def test_a_copy_of_a_slow_task_comes_first(query: RunningQuery) -> None:
    """Spark kills the slow one. Then the copy is a repeated task, and no number is known: see the next test."""
    query.conf = {**query.conf, **SPECULATION}
    query.start()
    (query.folder / "wait-0").touch()
    query.add_file()
    query.until(lambda: query.reported(0), "the copy has written all")
    query.end()
    (report,) = query.reports()
    assert (report["rows"], report["delivered"], report["repeated_tasks"]) == (ROWS, ROWS, 1)
    assert 0 < times(query).total() - ROWS <= TASK_ROWS + 1
    assert report["maybe_twice"] is None


def test_a_copy_of_a_slow_task_comes_too_late(query: RunningQuery) -> None:
    """Spark kills the copy, of which nothing comes to the driver. So any row may be there twice, and the report
    gives no number."""
    query.conf = {**query.conf, **SPECULATION}
    query.start()
    for attempt in range(2):
        (query.folder / f"wait-{attempt}").touch()
    query.add_file()
    query.until(lambda: query.written() > HALF_OF_SECOND_TASK, "the copy has written some rows")
    (query.folder / "wait-0").unlink()
    query.until(lambda: query.reported(0), "the first one has written all")
    query.end()
    (report,) = query.reports()
    assert (report["rows"], report["delivered"]) == (ROWS, ROWS)
    assert (report["repeated_tasks"], report["maybe_twice"]) == (0, None)
    assert times(query).total() - ROWS > 0


def test_the_data_source_refuses_speculation(query: RunningQuery) -> None:
    """With the first task, in one sentence; Spark would fail later, with another one."""
    query.conf = {**query.conf, **SPECULATION}
    query.door = "source"
    query.prepare_settings()
    query.start()
    query.add_file()
    assert query.driver is not None
    assert query.driver.wait(100) == 1
    assert "spark.speculation" in query.output()
    assert query.reports() == []
    assert query.written() == 0
