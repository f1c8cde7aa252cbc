"""``safeproducer replication`` on three real nodes: a move is planned, watched, and what it leaves is named."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from integration.conftest import MARKER, Login, TopicFactory
from integration.kafka.cluster import KafkaCluster
from integration.kafka.poll import until

Document = dict[str, Any]
KB, MB = 1_000, 1_000_000
LISTS = [f"{side}.replication.throttled.replicas" for side in ("leader", "follower")]
RATES = [f"{side}.replication.throttled.rate" for side in ("leader", "follower")]


def replication(exit_code: int, *arguments: str | Path) -> Document:
    """The report of a run that ends so, as JSON."""
    line = [sys.executable, "-W", "error", "-m", "safeproducer", "replication", *arguments, "--json"]
    done = subprocess.run(line, capture_output=True, timeout=120, check=False)
    assert MARKER.encode() not in done.stdout + done.stderr
    assert b"Traceback" not in done.stderr
    assert done.returncode == exit_code, done.stdout + done.stderr
    found: Document = json.loads(done.stdout)
    assert (found["command"], found["exit_code"]) == ("replication", exit_code)
    return found


def fill(bootstrap: str, topic: str, partitions: int, size: int) -> None:
    """So many bytes in each partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "log_level": 0})
    for number in range(size // (10 * KB)):
        for partition in range(partitions):
            producer.produce(topic, bytes([number % 256]) * 10 * KB, partition=partition)
        producer.poll(0)
    assert producer.flush(60) == 0


def file_of(path: Path, topic: str, partitions: int, replicas: list[int]) -> Path:
    entries = [{"topic": topic, "partition": number, "replicas": replicas} for number in range(partitions)]
    path.write_text(json.dumps({"version": 1, "partitions": entries}))
    return path


def throttle(cluster: KafkaCluster, topic: str, lists: list[Document], rate: int | None) -> None:
    """Set the lists of a plan, and one rate everywhere; None removes it."""
    cluster.admin.set_topic_config(topic, {one["config"]: one["value"] for one in lists})
    for broker in cluster.nodes:
        cluster.admin.set_broker_config(dict.fromkeys(RATES, None if rate is None else str(rate)), broker)


@pytest.fixture
def placed(kafka3: KafkaCluster, topic: TopicFactory) -> Iterator[str]:
    """A topic of four partitions, all on brokers 1 and 2; without any throttle afterwards."""
    name = topic(partitions=4, replication=2, on=kafka3)
    for number in range(4):
        kafka3.admin.requests.reassign(name, number, [1, 2])
    until(
        lambda: all(
            one.replicas == (1, 2) and sorted(one.in_sync) == [1, 2] for one in kafka3.admin.partitions(name).values()
        ),
        "the replicas are where they should be",
    )
    for number in range(4):
        kafka3.admin.move_leader(name, number, 1)
    yield name
    throttle(kafka3, name, [{"config": one, "value": None} for one in LISTS], None)


def codes(found: Document, topic: str) -> list[str]:
    return [one["code"] for one in found["findings"] if one.get("topic") == topic]


def test_a_move_ends_within_its_range_and_what_it_leaves_is_named(
    kafka3: KafkaCluster, placed: str, tmp_path: Path
) -> None:
    """The plan is set, the move runs and ends, and the throttle is left over until it is removed."""
    fill(kafka3.bootstrap, placed, 4, 10 * MB)
    file = file_of(tmp_path / "move.json", placed, 4, [1, 3])
    named = ("--bootstrap-servers", kafka3.bootstrap, "--measure", "1")
    planned = replication(0, "plan", *named, "--reassignment", file, "--rate", "1.5 MB/s")
    assert [(one["config"], one["value"]) for one in planned["lists"]] == [
        (LISTS[1], "0:3,1:3,2:3,3:3"),
        (LISTS[0], "0:1,0:2,1:1,1:2,2:1,2:2,3:1,3:2"),
    ]
    assert [(one["broker"], one["side"], one["partitions"]) for one in planned["sides"]] == [
        (1, "leader", 4),
        (3, "follower", 4),
    ]
    assert all(one["bytes"] == pytest.approx(40 * MB, rel=0.05) for one in planned["sides"])
    assert all(one["free"] == 1.5 * MB for one in planned["sides"])
    within = replication(0, "plan", *named, "--reassignment", file, "--within", "40s")
    assert MB < within["rate"] < 1.5 * MB
    assert replication(1, "status", *named, "--reassignment", file)["findings"][0]["code"] == "replication-not-moved"

    throttle(kafka3, placed, planned["lists"], 1_500_000)
    started = time.monotonic()
    for number in range(4):
        kafka3.admin.requests.reassign(placed, number, [1, 3])
    running = replication(0, "status", *named)
    assert [(one["partition"], one["destinations"]) for one in running["moves"] if one["topic"] == placed] == [
        (number, [3]) for number in range(4)
    ]
    assert next(one for one in running["brokers"] if one["broker"] == 3)["sum_replica_lag"] > 0
    assert replication(0, "plan", *named, "--ongoing")["lists"][0]["topic"] == placed
    until(lambda: all(one.replicas == (1, 3) for one in kafka3.admin.partitions(placed).values()), "moved", timeout=90)
    low, high = planned["seconds"]
    assert low <= time.monotonic() - started <= high + 5

    left = replication(1, "status", *named, "--reassignment", file)
    assert codes(left, placed) == ["replication-throttle-left-over"]
    throttle(kafka3, placed, planned["lists"], None)
    assert codes(replication(1, "status", *named), placed) == ["replication-list-without-rate"]
    throttle(kafka3, placed, [{"config": one, "value": None} for one in LISTS], None)
    assert codes(replication(0, "status", *named), placed) == []


def test_a_move_that_never_ends_is_named(kafka3: KafkaCluster, placed: str, tmp_path: Path) -> None:
    """0.8 MB/s are written with one follower in sync: 1 MB/s is enough by KIP-73's IN < T, and too little."""
    stop = threading.Event()
    producer = Producer({"bootstrap.servers": kafka3.bootstrap, "log_level": 0})

    def write() -> None:
        while not stop.wait(0.05):
            for number in range(4):
                producer.produce(placed, bytes(10 * KB), partition=number)
            producer.poll(0)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        file = file_of(tmp_path / "move.json", placed, 4, [1, 3])
        named = ("--bootstrap-servers", kafka3.bootstrap, "--measure", "3")
        planned = replication(1, "plan", *named, "--reassignment", file, "--rate", "1MB")
        assert planned["kip_73"]["in"] < MB < planned["ends_above"]
        assert planned["never_ends"]
        fits = replication(0, "plan", *named, "--reassignment", file, "--within", "1h")
        assert fits["rate"] > fits["ends_above"]
        throttle(kafka3, placed, planned["lists"], MB)
        fill(kafka3.bootstrap, placed, 4, 5 * MB)
        for number in range(4):
            kafka3.admin.requests.reassign(placed, number, [1, 3])
        found = replication(1, "status", *named)
        assert {one["code"] for one in found["findings"]} == {"replication-never-ends"}
        assert any(
            "leader.replication.throttled.rate of broker 1 is 1.0 MB/s" in one["message"] for one in found["findings"]
        )
    finally:
        stop.set()
        writer.join()
        producer.flush(30)


# --- bad input --------------------------------------------------------------------------------------------------------


def test_what_does_not_exist_is_refused(kafka3: KafkaCluster, placed: str, tmp_path: Path) -> None:
    """Topic, partition and broker."""
    for topic, partitions, replicas, words in (
        ("no-such-topic", 1, [1], "no-such-topic [0] does not exist"),
        (placed, 5, [1, 2], f"{placed} [4] does not exist"),
        (placed, 1, [1, 9], "Broker 9"),
    ):
        file = file_of(tmp_path / "move.json", topic, partitions, replicas)
        named = ("--bootstrap-servers", kafka3.bootstrap, "--measure", "0", "--reassignment", file)
        assert words in replication(2, "plan", *named)["error"]["message"]


def test_a_missing_right_is_named(kafka_secure: KafkaCluster, login: Login) -> None:
    """One sentence with the right, and exit 2."""
    found = replication(2, "status", "--config-file", login(), "--measure", "0")
    assert "the user needs DESCRIBE_CONFIGS on the cluster" in found["error"]["message"]
    assert kafka_secure.nodes
