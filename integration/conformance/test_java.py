"""Java's own tools write to both clusters: the reference client, with versions and topic IDs that no other one uses."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from integration.conformance.conftest import target
from integration.kafka.cluster import KafkaCluster
from integration.kafka.jars import classpath, java, under_test
from integration.kafka.log import read_records
from safeproducer.testing import FakeCluster

PARTITIONS = 2
PERFORMED, VERIFIED = 5_000, 300
TOOLS = "org.apache.kafka.tools"
PATIENCE = 60


@pytest.fixture(params=["fake", "kafka"])
def either(request: pytest.FixtureRequest) -> Iterator[Any]:
    """One of the clusters; FakeCluster fails the test if something goes wrong inside it."""
    if request.param == "fake":
        with FakeCluster(3) as fake:
            yield target.Target("fake", fake.bootstrap)
            used = {(entry.api, entry.version) for entry in fake.journal()}
            assert ("Produce", 13) in used, used
            assert {entry.outcome for entry in fake.journal()} == {"answered"}
    else:
        kafka: KafkaCluster = request.getfixturevalue("kafka_conforming")
        yield target.Target("kafka", kafka.bootstrap)


def launch(tool: str, *arguments: str) -> subprocess.Popen[str]:
    """Start one of Kafka's tools."""
    options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return subprocess.Popen(
        [java(), *options, f"{TOOLS}.{tool}", *arguments],
        env={**os.environ, "CLASSPATH": os.pathsep.join(map(str, classpath(of=under_test())))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> str:
    """What it has said; fails the test if that is an error."""
    try:
        said, complaints = process.communicate(timeout=PATIENCE)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert process.returncode == 0, complaints + said
    return said


def ends(cluster: Any, topic: str) -> int:
    """How many records the topic holds."""
    total = 0
    for partition in range(PARTITIONS):
        with cluster.connect(cluster.leader(topic, partition)[0]) as client:
            total += target.end_offset(client, topic, partition)
    return total


def test_javas_producers(either: Any) -> None:
    """ProducerPerformance (idempotent, lz4) and VerifiableProducer: each record is there once, in the order sent."""
    performed, verified = (either.topic(PARTITIONS) for _ in range(2))
    settings = [f"bootstrap.servers={either.bootstrap}", "acks=all", "enable.idempotence=true", "compression.type=lz4"]
    numbers = ["--num-records", str(PERFORMED), "--record-size", "100", "--throughput", "-1"]
    tools = [
        launch("ProducerPerformance", "--topic", performed, *numbers, "--producer-props", *settings),
        launch(
            "VerifiableProducer",
            *("--bootstrap-server", either.bootstrap, "--topic", verified),
            *("--max-messages", str(VERIFIED), "--acks", "-1"),
        ),
    ]
    summary, events = map(end, tools)
    assert re.search(rf"^{PERFORMED} records sent", summary, re.MULTILINE), summary
    told = [json.loads(line) for line in events.splitlines() if line.startswith("{")]
    acked = [
        (event["partition"], event["value"].encode()) for event in told if event["name"] == "producer_send_success"
    ]
    assert sorted(int(value) for _, value in acked) == list(range(VERIFIED))
    assert (ends(either, performed), ends(either, verified)) == (PERFORMED, VERIFIED)
    for partition, records in enumerate(read_records(either.bootstrap, verified)):
        mine = [record.value for record in records]
        assert mine == sorted((value for where, value in acked if where == partition), key=int)


def test_javas_transactions_and_groups(either: Any) -> None:
    """ProducerPerformance commits in transactions of version 2, a VerifiableConsumer reads them as a member."""
    topic, group = either.topic(PARTITIONS), target.fresh("g")
    numbers = ["--num-records", str(PERFORMED), "--record-size", "100", "--throughput", "5000"]
    transactions = ["--transactional-id", target.fresh("tx"), "--transaction-duration-ms", "100"]
    settings = ["--producer-props", f"bootstrap.servers={either.bootstrap}"]
    end(launch("ProducerPerformance", "--topic", topic, *numbers, *transactions, *settings))
    assert sum(map(len, read_records(either.bootstrap, topic))) == PERFORMED
    consumer = launch(
        "VerifiableConsumer",
        *("--bootstrap-server", either.bootstrap, "--topic", topic, "--group-id", group),
        *("--reset-policy", "earliest", "--max-messages", str(PERFORMED)),
    )
    events = [json.loads(line) for line in end(consumer).splitlines() if line.startswith("{")]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") >= PERFORMED
    assert {"partitions_assigned", "offsets_committed"} <= {event["name"] for event in events}
