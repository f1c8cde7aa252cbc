"""The cluster does what the other tests rely on: it starts, elects, keeps data, and never outlives its owner."""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from integration.kafka.cluster import KafkaCluster
from integration.kafka.exchange import exchange
from integration.kafka.node import NodeError
from integration.kafka.ports import free_ports, is_listening
from safeproducer.testing import wire


def produce(bootstrap: str, topic: str, count: int) -> None:
    """Deliver `count` records to partition 0."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(count):
        producer.produce(
            topic, str(number), str(number), partition=0, on_delivery=lambda error, _: errors.append(error)
        )
    assert producer.flush(30) == 0
    assert errors == [None] * count


@pytest.fixture(scope="module")
def own() -> Iterator[KafkaCluster]:
    """One node that the tests of this file may stop and kill. Its first choice of a port is taken by somebody."""
    with socket.create_server(("127.0.0.1", 0)) as squatter, pytest.MonkeyPatch.context() as patch:
        taken = [squatter.getsockname()[1]]

        def choose(count: int) -> list[int]:
            return [taken.pop() if taken else free_ports(1)[0] for _ in range(count)]

        patch.setattr("integration.kafka.cluster.free_ports", choose)
        with KafkaCluster() as cluster:
            assert taken == []
            assert cluster.nodes[1].client_port != squatter.getsockname()[1]
            yield cluster


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


def test_paused_node_can_be_killed(own: KafkaCluster) -> None:
    """SIGKILL reaches a node that stands still."""
    node = own.nodes[1]
    node.pause()
    node.kill()
    assert node.state == "stopped"
    with pytest.raises(NodeError, match="does not run"):
        node.pause()


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
