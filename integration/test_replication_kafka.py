"""``safeproducer replication`` on three real nodes: a move is planned, throttled, watched, and what it leaves goes.

``safeproducer doctor`` finds the same, and names missing replicas.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from integration.conftest import MARKER, Login, TopicFactory
from integration.kafka.cluster import KafkaCluster
from integration.kafka.poll import until
from safeproducer.policy.replication import WINDOW
from tests.cli.in_process import CommandHere

Document = dict[str, Any]
KB, MB = 1_000, 1_000_000
LISTS = [f"{side}.replication.throttled.replicas" for side in ("leader", "follower")]
RATES = [f"{side}.replication.throttled.rate" for side in ("leader", "follower")]


def replication(exit_code: int, *arguments: str | Path) -> Document:
    return report("replication", exit_code, *arguments)


def report(command: str, exit_code: int, *arguments: str | Path) -> Document:
    """The report of a run that ends so, as JSON. In this process: another one takes a second to start."""
    done = CommandHere(Path.home()).run(command, *map(str, arguments), "--json")
    assert MARKER.encode() not in done.stdout + done.stderr
    assert b"Traceback" not in done.stderr
    assert done.returncode == exit_code, done.stdout + done.stderr
    found: Document = json.loads(done.stdout)
    assert (found["command"], found["exit_code"]) == (command, exit_code)
    return found


def fill(bootstrap: str, topic: str, partitions: range, size: int) -> None:
    """So many bytes in each of these partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "log_level": 0})
    for number in range(size // (10 * KB)):
        for partition in partitions:
            producer.produce(topic, bytes([number % 256]) * 10 * KB, partition=partition)
        producer.poll(0)
    assert producer.flush(60) == 0


def file_of(path: Path, topic: str, partitions: int, replicas: list[int]) -> Path:
    entries = [{"topic": topic, "partition": number, "replicas": replicas} for number in range(partitions)]
    path.write_text(json.dumps({"version": 1, "partitions": entries}))
    return path


def throttle(cluster: KafkaCluster, topic: str, lists: Mapping[str, str | None], rate: int | None) -> None:
    """Set these lists, and one rate everywhere; None removes it."""
    if lists:
        cluster.admin.set_topic_config(topic, lists)
    for broker in cluster.nodes:
        cluster.admin.set_broker_config(dict.fromkeys(RATES, None if rate is None else str(rate)), broker)


def configs(cluster: KafkaCluster, of: int | str) -> list[str]:
    """Both lists of a topic, or both rates of a broker."""
    kind, names = (ResourceType.BROKER, RATES) if isinstance(of, int) else (ResourceType.TOPIC, LISTS)
    found = cluster.admin.configs(kind, str(of))
    return [",".join(sorted(str(found[name].value).split(","))) for name in names if name in found]


def shown(cluster: KafkaCluster, expected: list[str], *of: int | str) -> None:
    """Whichever broker is asked."""
    for one in of:
        until(lambda one=one: configs(cluster, one) == expected, f"{one} has {expected}")  # type: ignore[misc]


@contextmanager
def written(cluster: KafkaCluster, topic: str, partitions: int, each: float) -> Iterator[None]:
    """10 kB to each partition, again after so many seconds."""
    stop = threading.Event()
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def write() -> None:
        while not stop.wait(each):
            for number in range(partitions):
                producer.produce(topic, bytes(10 * KB), partition=number)
            producer.poll(0)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()
        producer.flush(30)


@pytest.fixture
def place(kafka3: KafkaCluster, topic: TopicFactory) -> Iterator[Callable[[int], str]]:
    """Makes a topic whose partitions are on brokers 1 and 2; without any throttle afterwards."""
    made = []

    def make(partitions: int) -> str:
        name = topic(partitions=partitions, replication=2, on=kafka3)
        made.append(name)
        for number in range(partitions):
            kafka3.admin.requests.reassign(name, number, [1, 2])
        until(
            lambda: all(
                one.replicas == (1, 2) and sorted(one.in_sync) == [1, 2]
                for one in kafka3.admin.partitions(name).values()
            ),
            "the replicas are where they should be",
        )
        for number in range(partitions):
            kafka3.admin.move_leader(name, number, 1)
        return name

    yield make
    for name in made:
        throttle(kafka3, name, dict.fromkeys(LISTS), None)


@pytest.fixture
def placed(place: Callable[[int], str]) -> str:
    """One of four partitions."""
    return place(4)


def move(cluster: KafkaCluster, topic: str, *partitions: int) -> None:
    """From broker 2 to broker 3."""
    for number in partitions:
        cluster.admin.requests.reassign(topic, number, [1, 3])


def moved(cluster: KafkaCluster, topic: str) -> None:
    """Wait until none of it is on broker 2."""
    until(lambda: all(one.replicas == (1, 3) for one in cluster.admin.partitions(topic).values()), "moved", timeout=90)


@pytest.fixture(autouse=True)
def _ledger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its own: what other tests took is not in it."""
    monkeypatch.setenv("SAFEPRODUCER_PRODUCER_IDS_LEDGER", str(tmp_path / "ledger"))


def codes(found: Document, topic: str) -> list[str]:
    return [one["code"] for one in found["findings"] if one.get("topic") == topic]


def test_a_plan_is_set_watched_and_cleared(kafka3: KafkaCluster, placed: str, tmp_path: Path) -> None:
    """The move runs under its throttle and ends; that is left over until it is cleared. `doctor` sees the same."""
    fill(kafka3.bootstrap, placed, range(4), 6 * MB)
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
    assert all(one["bytes"] == pytest.approx(24 * MB, rel=0.05) for one in planned["sides"])
    assert all(one["free"] == 1.5 * MB for one in planned["sides"])
    within = replication(0, "plan", *named, "--reassignment", file, "--within", "27s")
    assert MB < within["rate"] < 1.5 * MB
    assert replication(1, "status", *named, "--reassignment", file)["findings"][0]["code"] == "replication-not-moved"

    set_ = replication(0, "throttle", *named, "--reassignment", file, "--rate", "1.5 MB/s", "--yes")
    assert (len(set_["changes"]), set_["seconds"]) == (8, pytest.approx(planned["seconds"], rel=0.05))
    move(kafka3, placed, *range(4))
    running = replication(0, "status", *named)
    assert [(one["partition"], one["destinations"]) for one in running["moves"] if one["topic"] == placed] == [
        (number, [3]) for number in range(4)
    ]
    assert next(one for one in running["brokers"] if one["broker"] == 3)["sum_replica_lag"] > 0
    assert replication(0, "plan", *named, "--ongoing")["lists"][0]["topic"] == placed
    moved(kafka3, placed)

    left = replication(1, "status", *named, "--reassignment", file)
    assert codes(left, placed) == ["replication-throttle-left-over"]
    assert codes(report("doctor", 1, *named[:2], "--topic", placed), placed) == ["replication-throttle-left-over"]
    throttle(kafka3, placed, {}, None)
    assert codes(replication(1, "status", *named), placed) == ["replication-list-without-rate"]
    assert len(replication(0, "clear", *named[:2], "--yes")["changes"]) == 2
    shown(kafka3, ["", ""], placed)
    assert codes(replication(0, "status", *named), placed) == []


def test_a_second_user_keeps_entries_and_rate(kafka3: KafkaCluster, placed: str, tmp_path: Path) -> None:
    """Somebody moves partition 3 slowly; this user throttles the others, and clears again."""
    fill(kafka3.bootstrap, placed, range(3), 1 * MB)
    fill(kafka3.bootstrap, placed, range(3, 4), 8 * MB)
    throttle(kafka3, placed, dict(zip(LISTS, ("3:1,3:2", "3:3"), strict=True)), 20 * KB)
    move(kafka3, placed, 3)
    file = file_of(tmp_path / "move.json", placed, 3, [1, 3])
    named = ("--bootstrap-servers", kafka3.bootstrap, "--measure", "0", "--yes")
    asked = (*named, "--reassignment", file, "--rate")
    found = replication(1, "throttle", *asked, "2MB")
    assert {one["code"] for one in found["findings"]} == {"replication-rate-kept"}
    shown(kafka3, ["0:1,0:2,1:1,1:2,2:1,2:2,3:1,3:2", "0:3,1:3,2:3,3:3"], placed)
    shown(kafka3, ["20000"] * 2, *kafka3.nodes)
    assert codes(report("doctor", 0, *named[:2], "--topic", placed), placed) == ["replication-move"]
    assert replication(0, "clear", *named[:2], "--yes")["findings"] == []
    shown(kafka3, ["3:1,3:2", "3:3"], placed)
    shown(kafka3, ["20000"] * 2, *kafka3.nodes)
    replication(0, "throttle", *asked, "20MB", "--replace")
    shown(kafka3, ["20000000"] * 2, *kafka3.nodes)
    move(kafka3, placed, 0, 1, 2)
    moved(kafka3, placed)
    replication(0, "clear", *named[:2], "--yes")
    shown(kafka3, ["", ""], placed)
    shown(kafka3, [], *kafka3.nodes)
    throttle(kafka3, placed, dict.fromkeys(LISTS, "*"), None)
    assert replication(0, "clear", *named[:2], "--yes", "--reassignment", file)["changes"] == []
    replication(0, "clear", *named[:2], "--yes")
    shown(kafka3, ["", ""], placed)


MOVES = ((1, 6, 1_500_000, None), (3, 3, 2_000_000, 0.1), (12, 1, 3_000_000, None))
MORE_MOVES = ((2, 3, 1_500_000, None), (4, 2, 2_000_000, None), (6, 2, 2_500_000, None))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("moves", [MOVES, pytest.param(MORE_MOVES, marks=pytest.mark.full)], ids=["few", "more"])
def test_three_moves_lie_in_their_ranges(
    kafka3: KafkaCluster,
    place: Callable[[int], str],
    tmp_path: Path,
    moves: Sequence[tuple[int, int, int, float | None]],
) -> None:
    """One to twelve partitions, one of them with writes."""
    named = ("--bootstrap-servers", kafka3.bootstrap, "--measure", "1", "--yes")
    last = time.monotonic()
    for partitions, size, rate, each in moves:
        name = place(partitions)
        fill(kafka3.bootstrap, name, range(partitions), size * MB)
        file = file_of(tmp_path / "move.json", name, partitions, [1, 3])
        # A broker whose meter has seen little within a window lets more pass at first.
        time.sleep(max(0.0, last + WINDOW + 1 - time.monotonic()))
        with written(kafka3, name, partitions, each) if each else nullcontext():
            found = replication(0, "throttle", *named, "--reassignment", file, "--rate", str(rate))
            started = time.monotonic()
            move(kafka3, name, *range(partitions))
            moved(kafka3, name)
            last = time.monotonic()
            took = last - started
        low, high = found["seconds"]
        print(f"{partitions} x {size} MB: {low:.1f} <= {took:.1f} <= {high:.1f} s")
        assert low <= took <= high + 5, (partitions, size)  # a busy machine moves later
        replication(0, "clear", *named[:2], "--yes", "--reassignment", file)
        shown(kafka3, ["", ""], name)
        shown(kafka3, [], *kafka3.nodes)


def test_a_move_that_never_ends_is_named(kafka3: KafkaCluster, placed: str, tmp_path: Path) -> None:
    """0.8 MB/s are written with one follower in sync: 1 MB/s is enough by KIP-73's IN < T, and too little."""
    with written(kafka3, placed, 4, 0.05):
        file = file_of(tmp_path / "move.json", placed, 4, [1, 3])
        named = ("--bootstrap-servers", kafka3.bootstrap, "--measure", "3")
        planned = replication(1, "plan", *named, "--reassignment", file, "--rate", "1MB")
        assert planned["kip_73"]["in"] < MB < planned["ends_above"]
        assert planned["never_ends"]
        fits = replication(0, "plan", *named, "--reassignment", file, "--within", "1h")
        assert fits["rate"] > fits["ends_above"]
        throttle(kafka3, placed, {one["config"]: one["value"] for one in planned["lists"]}, MB)
        fill(kafka3.bootstrap, placed, range(4), 5 * MB)
        move(kafka3, placed, *range(4))
        found = replication(1, "status", *named)
        assert {one["code"] for one in found["findings"]} == {"replication-never-ends"}
        assert any(
            "leader.replication.throttled.rate of broker 1 is 1.0 MB/s" in one["message"] for one in found["findings"]
        )


def test_too_few_replicas_in_sync_are_found(kafka3: KafkaCluster, topic: TopicFactory) -> None:
    """By doctor, while one node of three is down: at the minimum of two, and below that of three."""
    at, below = (topic(replication=3, configs={"min.insync.replicas": str(number)}, on=kafka3) for number in (2, 3))
    named = ("--bootstrap-servers", kafka3.bootstrap, "--topic", at, "--topic", below)
    assert report("doctor", 0, *named)["findings"] == []
    kafka3.nodes[3].kill()
    try:
        until(lambda: all(len(kafka3.admin.partitions(one)[0].in_sync) == 2 for one in (at, below)), "they notice")
        found = report("doctor", 1, *named, "--connect-timeout", "5")
        assert (codes(found, below), codes(found, at)) == (["in-sync-below-minimum"], ["in-sync-at-minimum"])
        assert all(one["broker"] == 3 for one in found["findings"])
    finally:
        kafka3.nodes[3].start()
        until(lambda: len(kafka3.admin.partitions(at)[0].in_sync) == 3, "the broker is back", timeout=60)


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


def test_each_missing_right_is_named(kafka_secure: KafkaCluster, topic: TopicFactory, user: str, login: Login) -> None:
    """One sentence with the right, exit 2, and nothing changed; in doctor a finding."""
    name = topic(on=kafka_secure)

    def refused(action: str, *words: str) -> None:
        found = replication(2, action, "--config-file", login(), *("--yes",) * (action == "clear"))
        assert all(word in found["error"]["message"] for word in words), found

    def grant(operation: AclOperation, *on: str | None) -> None:
        for one in on:
            kafka_secure.admin.add_acl(f"User:{user}", one, operation)

    refused("status", "the user needs DESCRIBE_CONFIGS on the cluster")
    grant(AclOperation.DESCRIBE, name)
    grant(AclOperation.DESCRIBE_CONFIGS, None)
    refused("status", name, "the user needs DESCRIBE_CONFIGS on it")
    missing = {one["cure"] for one in report("doctor", 1, "--config-file", login(), "--topic", name)["findings"]}
    for right in ("DESCRIBE_CONFIGS on these topics", "DESCRIBE on the cluster", "READ on this topic"):
        assert f"Have an administrator grant {right}." in missing
    grant(AclOperation.DESCRIBE_CONFIGS, name)
    refused("status", "the user needs DESCRIBE on the cluster")
    grant(AclOperation.DESCRIBE, None)
    replication(0, "status", "--config-file", login(), "--measure", "0")

    lists = dict.fromkeys(LISTS, "0:1")
    throttle(kafka_secure, name, lists, MB)
    refused("clear", "ALTER_CONFIGS on", "Nothing was changed.")
    grant(AclOperation.ALTER_CONFIGS, name)
    refused("clear", "ALTER_CONFIGS on the cluster. Nothing was changed.")
    shown(kafka_secure, ["0:1"] * 2, name)
    shown(kafka_secure, [str(MB)] * 2, 1)
    grant(AclOperation.ALTER_CONFIGS, None)
    assert len(replication(0, "clear", "--config-file", login(), "--yes")["changes"]) == 4
    shown(kafka_secure, ["", ""], name)
    shown(kafka_secure, [], 1)
