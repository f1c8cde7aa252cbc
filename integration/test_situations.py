"""The situations of tests/situations.py that need nothing but a broker, on Kafka itself."""

from collections.abc import Iterator, Mapping

import pytest

from integration.kafka.cluster import KafkaCluster
from tests.situations import CASES, Scene, play

PLAYED = (
    "TLS against plain",
    "misspelt topic",
    "partition missing",
    "too large",
    "poll() not called",
    "linger",
    "ID limit",
    "nothing wrong",
    "leader silent",
    "leader silent, expiry",
    "leader silent, held",
    "buffer full",
)


class Control:
    """FakeCluster's methods that these need."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        self._cluster.admin.create_topic(name, partitions, configs=config)

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


@pytest.mark.parametrize("name", PLAYED)
def test_the_true_cause_is_told(alone: KafkaCluster, name: str) -> None:
    """As with FakeCluster."""
    try:
        play(CASES[name], Scene(alone.bootstrap, Control(alone)))
    finally:
        alone.nodes[1].resume()
