"""The situations of tests/situations.py that need nothing but a broker, on Kafka itself."""

import dataclasses
from collections.abc import Iterator, Mapping

import pytest

from integration.kafka.cluster import KafkaCluster
from tests.situations import CASES, Case, Scene, of_nobody, play, small_records

PLAYED = (
    "TLS against plain",
    "SASL where none is",
    "all brokers stop",
    "misspelt topic",
    "topic deleted",
    "partition missing",
    "too large",
    "batch of small records too large",
    "callback blocks",
    "poll() not called",
    "linger",
    "ID limit",
    "nothing wrong",
    "leader silent",
    "leader silent, expiry",
    "leader silent, held",
    "buffer full",
)
KEYLESS = "record without a key"
WITHOUT_A_KEY = Case(
    small_records("compacted", {"cleanup.policy": "compact"}, b"x", "a", None, "b"),
    "3 failed, lately with _?INVALID_",
    health="refused",
    ok=True,
    cure="key",
    error="neighbour",
    lasts=0.2,
)


class Control:
    """FakeCluster's methods that these need."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        self._cluster.admin.create_topic(name, partitions, configs=config)

    @property
    def brokers(self) -> list[int]:
        return [*self._cluster.nodes]

    def stop(self, broker: int) -> None:
        self._cluster.nodes[broker].kill()

    def start(self, broker: int) -> None:
        if broker in self._cluster.nodes:
            self._cluster.nodes[broker].start()

    def pause(self, broker: int) -> None:
        self._cluster.nodes[broker].pause()

    def resume(self, broker: int) -> None:
        self._cluster.nodes[broker].resume()


@pytest.fixture(scope="module")
def alone() -> Iterator[KafkaCluster]:
    """One node that the tests of this module have for themselves."""
    with KafkaCluster() as cluster:
        cluster.admin.create_topic("t", 2)
        yield cluster


@pytest.mark.parametrize("name", [*PLAYED, KEYLESS])
def test_the_true_cause_is_told(alone: KafkaCluster, name: str) -> None:
    """As with FakeCluster."""
    try:
        play({**CASES, KEYLESS: WITHOUT_A_KEY}[name], Scene(alone.bootstrap, Control(alone)))
    finally:
        alone.nodes[1].resume()


def test_an_address_that_kafka_advertises_and_nobody_listens_on(kafka_tapped: KafkaCluster) -> None:
    """As FakeCluster's; its bootstrap server is well."""
    kafka_tapped.admin.create_topic("t")
    case = dataclasses.replace(
        CASES["advertised wrongly"],
        begin=of_nobody(),
        says=f"127.0.0.1:{kafka_tapped.nodes[1].advertised_port} refuses",
    )
    play(case, Scene(f"127.0.0.1:{kafka_tapped.nodes[1].client_port}"))


def test_a_password_that_kafka_refuses(kafka_secure: KafkaCluster, user: str) -> None:
    """As FakeCluster's."""
    login = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": "wrong",
        "ssl.ca.location": str(kafka_secure.ca_pem),
    }
    case = dataclasses.replace(CASES["wrong password"], begin=of_nobody(**login))
    play(case, Scene(kafka_secure.secure_bootstrap))
