"""Members of one group at once on FakeCluster: librdkafka, kafka-python, aiokafka, Java and franz-go."""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from integration.kafka.jars import classpath, java, under_test
from safeproducer.testing import FakeCluster
from tests.testing.test_fake_groups import (
    PARTITIONS,
    RECORDS,
    read_up,
    shared,
    with_aiokafka,
    with_confluent,
    with_kafka_python,
    write,
)

FRANZ = Path(__file__).with_name("franz")
PATIENCE = 60


class ProcessReader:
    """As a Reader of tests/testing: a member that is a process, whose lines tell what it has read."""

    def __init__(self, command: Sequence[str], values: Callable[[str], list[int]]) -> None:
        environment = {**os.environ, "CLASSPATH": os.pathsep.join(map(str, classpath(of=under_test())))}
        self.found: list[int] = []
        self._values = values
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.found += self._values(line)

    def stop(self) -> None:
        """It commits and leaves."""
        with self._process:
            self._process.terminate()
            self._process.wait(PATIENCE)
            self._thread.join(PATIENCE)

    def kill(self) -> None:
        self._process.kill()


def with_java(cluster: FakeCluster) -> ProcessReader:
    def values(line: str) -> list[int]:
        event = json.loads(line) if line.startswith("{") else {}
        return [int(event["value"])] if event.get("name") == "record_data" else []

    strategy = "org.apache.kafka.clients.consumer.RoundRobinAssignor"
    tool = [java(), "-Xmx128m", "-XX:+UseSerialGC", "org.apache.kafka.tools.VerifiableConsumer", "--verbose"]
    place = ["--bootstrap-server", cluster.bootstrap, "--topic", "t", "--group-id", "g", "--reset-policy", "earliest"]
    kind = ["--assignment-strategy", strategy, "--session-timeout", "10000", "--group-protocol", "classic"]
    return ProcessReader([*tool, *place, *kind], values)


def with_franz_go(cluster: FakeCluster, folder: Path) -> ProcessReader:
    member = folder / "member"
    subprocess.run(["go", "build", "-mod=readonly", "-o", member, "."], cwd=FRANZ, check=True, timeout=300)
    return ProcessReader([str(member), cluster.bootstrap, "t", "g"], lambda line: [int(line)])


def rebalanced(cluster: FakeCluster) -> None:
    before = cluster.groups()["g"].generation
    cluster.rebalance("g")
    cluster.wait(lambda c: shared(c, 5) and c.groups()["g"].generation > before, PATIENCE)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as made:
        made.create_topic("t", PARTITIONS)
        yield made


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:read_text is deprecated")
def test_members_of_five_libraries_at_once(cluster: FakeCluster, tmp_path: Path) -> None:
    """Three rebalances in between. Without one nothing is read twice, and offsets survive the members."""
    if shutil.which("go") is None:
        pytest.skip("franz-go needs go")
    write(cluster, range(RECORDS))
    readers: list[Any] = [with_franz_go(cluster, tmp_path), with_java(cluster)]
    try:
        readers += [make(cluster) for make in (with_confluent, with_kafka_python, with_aiokafka)]
        cluster.wait(lambda c: shared(c, 5), PATIENCE)
        read_up(cluster, readers, range(RECORDS))
        for _ in range(3):
            rebalanced(cluster)
        before = sum(len(reader.found) for reader in readers)
        write(cluster, range(RECORDS, 2 * RECORDS))
        read_up(cluster, readers, range(2 * RECORDS))
        assert sum(len(reader.found) for reader in readers) == before + RECORDS
        for reader in readers:
            reader.stop()
    finally:
        for reader in readers[:2]:
            reader.kill()
    left = cluster.groups()["g"]
    assert left.offsets == {("t", partition): 2 * RECORDS // PARTITIONS for partition in range(PARTITIONS)}
    assert set(left.lag.values()) == {0}
