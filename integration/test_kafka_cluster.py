"""The cluster does what the other tests rely on: it starts, elects, keeps data, and never outlives its owner."""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import ResourceType  # type: ignore[attr-defined]

from integration.kafka.cluster import KafkaCluster
from integration.kafka.exchange import exchange
from integration.kafka.node import NodeError
from integration.kafka.poll import until
from integration.kafka.ports import free_ports, is_listening
from safeproducer.testing import wire


def produce(bootstrap: str, topic: str, count: int, **config: object) -> list[object]:
    """Deliver `count` records to partition 0 and return their errors."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0, **config})
    for number in range(count):
        producer.produce(
            topic, str(number), str(number), partition=0, on_delivery=lambda error, _: errors.append(error)
        )
    assert producer.flush(30) == 0
    return [error for error in errors if error is not None]


@pytest.fixture(scope="module")
def own() -> Iterator[KafkaCluster]:
    """One node that the tests of this file may stop and kill."""
    with KafkaCluster() as cluster:
        yield cluster


def test_topic_is_usable_at_once(kafka: KafkaCluster, topic: Callable[..., str]) -> None:
    """A fresh topic takes records as soon as the factory has returned, and its end offsets count them."""
    name = topic(partitions=3)
    assert produce(kafka.bootstrap, name, 7) == []
    assert kafka.admin.end_offsets(name) == [7, 0, 0]


def test_describe_producers_names_the_producer(kafka: KafkaCluster, topic: Callable[..., str]) -> None:
    """The leader remembers one producer ID and the sequence of its last record."""
    name = topic()
    produce(kafka.bootstrap, name, 5)
    (state,) = kafka.admin.describe_producers(name, 0)
    assert state.producer_id >= 0
    assert (state.epoch, state.last_sequence, state.transaction_start_offset) == (0, 4, -1)


def test_restart_keeps_data(own: KafkaCluster, topic: Callable[..., str]) -> None:
    """After a clean restart, and after a kill, the node serves what was acknowledged before."""
    name = topic(on=own)
    produce(own.bootstrap, name, 10)
    node = own.nodes[1]
    before = node.pid
    node.restart()
    assert node.pid != before
    assert own.admin.end_offsets(name) == [10]
    produce(own.bootstrap, name, 10)
    node.kill()
    assert node.state == "stopped"
    node.start()
    assert own.admin.end_offsets(name) == [20]


@pytest.mark.timeout(120)
def test_leader_kill_elects_another(kafka3: KafkaCluster, topic: Callable[..., str]) -> None:
    """When a leader is killed another in-sync node leads, nothing acknowledged is lost, and the node comes back."""
    name = topic(replication=3, on=kafka3)
    produce(kafka3.bootstrap, name, 10)
    admin = kafka3.admin
    old = admin.leader(name, 0)
    kafka3.nodes[old].kill()
    try:
        new = until(lambda: {admin.leader(name, 0)} - {old, -1}, "another leader", 15).pop()
        assert new != old
        assert produce(kafka3.bootstrap, name, 10) == []
        assert admin.end_offsets(name) == [20]
    finally:
        kafka3.nodes[old].start()
    until(lambda: len(admin.partitions(name)[0].in_sync) == 3, "three nodes in sync")
    admin.move_leader(name, 0, old)
    assert admin.leader(name, 0) == old


def test_paused_node_hangs_and_resumes(own: KafkaCluster, topic: Callable[..., str]) -> None:
    """A paused node answers nothing but keeps its connections; after resume what waited is delivered."""
    name = topic(on=own)
    node = own.nodes[1]
    reports: list[object] = []
    producer = Producer({"bootstrap.servers": own.bootstrap, "log_level": 0})
    producer.produce(name, "before", on_delivery=lambda error, _: reports.append(error))
    assert producer.flush(30) == 0
    node.pause()
    assert node.state == "paused"
    producer.produce(name, "while paused", on_delivery=lambda error, _: reports.append(error))
    assert producer.flush(1) == 1
    node.resume()
    assert producer.flush(30) == 0
    assert reports == [None, None]


def test_paused_node_can_be_killed() -> None:
    """SIGKILL reaches a node that stands still."""
    with KafkaCluster() as cluster:
        node = cluster.nodes[1]
        node.pause()
        node.kill()
        assert node.state == "stopped"
        with pytest.raises(NodeError, match="does not run"):
            node.pause()


def test_quota_throttles(kafka: KafkaCluster, topic: Callable[..., str]) -> None:
    """A byte quota of a client id makes the broker answer with a throttle time; without it there is none."""
    name = topic()
    kafka.admin.set_quota(client_id="slow", producer_byte_rate=20_000)
    assert max(throttle_times(kafka, name, "slow")) > 0
    kafka.admin.set_quota(client_id="slow", producer_byte_rate=None)
    assert max(throttle_times(kafka, name, "free"), default=0) == 0


def throttle_times(cluster: KafkaCluster, topic: str, client_id: str) -> list[float]:
    """Send 200 KB as `client_id` and return the throttle times, in seconds, that librdkafka was told."""
    seen: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "client.id": client_id,
            "throttle_cb": lambda event: seen.append(event.throttle_time),
        }
    )
    for _ in range(20):
        producer.produce(topic, b"x" * 10_000)
        producer.poll(0)
    assert producer.flush(60) == 0
    return seen


def test_topic_and_broker_configs(kafka: KafkaCluster, topic: Callable[..., str]) -> None:
    """Configs of topics and brokers can be set and removed, and hold when the call returns."""
    name = topic()
    admin = kafka.admin
    admin.set_topic_config(name, {"max.message.bytes": "1000"})
    reports: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(name, b"x" * 5_000, on_delivery=lambda error, _: reports.append(error))
    assert producer.flush(30) == 0
    assert reports[0] is not None
    assert reports[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    admin.set_topic_config(name, {"max.message.bytes": None})
    admin.set_broker_config({"message.max.bytes": "900000"})
    assert admin.configs(ResourceType.TOPIC, name)["max.message.bytes"].value == "900000"
    admin.set_broker_config({"message.max.bytes": "800000"}, node_id=1)
    assert admin.configs(ResourceType.TOPIC, name)["max.message.bytes"].value == "800000"
    admin.set_broker_config({"message.max.bytes": None}, node_id=1)
    admin.set_broker_config({"message.max.bytes": None})
    assert admin.configs(ResourceType.BROKER, "1")["message.max.bytes"].value == "1048588"


def test_topic_can_grow_and_go(kafka: KafkaCluster, topic: Callable[..., str]) -> None:
    """A topic takes more partitions, and is gone when deleted."""
    name = topic()
    kafka.admin.create_partitions(name, 3)
    assert kafka.admin.end_offsets(name) == [0, 0, 0]
    kafka.admin.delete_topic(name)
    assert kafka.admin.partitions(name) == {}


def test_tapped_cluster_advertises_another_port(kafka_tapped: KafkaCluster) -> None:
    """Metadata of the CLIENT listener names the tap's port, on which nobody listens yet; the broker has its own."""
    node = kafka_tapped.nodes[1]
    assert node.advertised_port != node.client_port
    assert not is_listening(node.advertised_port)
    # By hand: a client that is told of a port where nobody listens may take its time to ask again.
    answer = exchange(node.client_port, wire.encode_request("Metadata", 12, 1, "test", {"topics": []}))
    (broker,) = wire.decode_response("Metadata", 12, answer)[1]["brokers"]
    assert (broker["node_id"], broker["port"]) == (1, node.advertised_port)
    assert kafka_tapped.bootstrap == f"127.0.0.1:{node.advertised_port}"
    assert kafka_tapped.admin.requests.running() == [1]


def test_failed_start_shows_the_console() -> None:
    """A broker that refuses its settings ends the start at once, and the error shows what it said."""
    with (
        pytest.raises(NodeError, match=r"(?s)exit code 1.*num\.io\.threads"),
        KafkaCluster(configs={"num.io.threads": "none"}),
    ):
        pass


def test_taken_port_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """When another process takes a port between the choice and the start, other ports are tried."""
    with socket.create_server(("127.0.0.1", 0)) as squatter:
        taken = [squatter.getsockname()[1]]

        def choose(count: int) -> list[int]:
            return [taken.pop() if taken else free_ports(1)[0] for _ in range(count)]

        monkeypatch.setattr("integration.kafka.cluster.free_ports", choose)
        with KafkaCluster() as cluster:
            assert taken == []
            assert cluster.nodes[1].client_port != squatter.getsockname()[1]


def test_no_two_processes_get_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port on which nobody listens yet, as a tap's, is given to no other process, nor twice to this one."""
    monkeypatch.setattr("integration.kafka.ports.EPHEMERAL", Path("/nowhere"))
    monkeypatch.setattr("integration.kafka.ports.LOWEST", 31_500)
    mine = free_ports(600)
    program = (
        "from pathlib import Path\n"
        "from integration.kafka import ports\n"
        "ports.EPHEMERAL, ports.LOWEST = Path('/nowhere'), 31_500\n"
        "print(*ports.free_ports(1_268))"
    )
    theirs = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert len(mine) == 600
    assert len(theirs.stdout.split()) > 300
    assert not set(mine) & set(map(int, theirs.stdout.split()))
    assert not set(mine) & set(free_ports(1_268))
