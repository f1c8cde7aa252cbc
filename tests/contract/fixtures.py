"""Fixtures of the contract: the two classes, the two clusters, and a way to read a topic back.

Every expectation in these tests holds for confluent_kafka.Producer; that it is run against the confluent_kafka class
too is what makes it a contract and not an opinion.
"""

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition, cimpl

from tests.contract.support import PARTITIONS, wait_until
from tests.mock_cluster import mock_cluster as mock_brokers

BASE = {"enable.idempotence": False, "log_level": 0}
"""Settings of the producers that tests make: an idempotent one needs half a second to get its producer ID, so
idempotence is left to the shared producer, which most tests use."""


class Cluster:
    """Where records go: its address, topics to be had, and what is in them."""

    def __init__(self, kind: str, bootstrap: str, topic: Callable[[], str]) -> None:
        self.kind = kind
        self.bootstrap = bootstrap
        self.topic = topic
        """Makes a new topic of PARTITIONS partitions and returns its name."""
        self._consumers: dict[str, Consumer] = {}

    def end_offsets(self, topic: str, isolation: str = "read_committed") -> list[int]:
        """The end of each partition as a consumer of this isolation level sees it."""
        return [self._end_offset(TopicPartition(topic, number), isolation) for number in range(PARTITIONS)]

    def _end_offset(self, tp: TopicPartition, isolation: str) -> int:
        deadline = time.monotonic() + 10
        while True:
            try:
                end: int = self._consumer(isolation).get_watermark_offsets(tp, timeout=10)[1]
                return end
            except KafkaException:  # this consumer has not heard of a topic made a moment ago
                assert time.monotonic() < deadline, f"no offsets of {tp}"

    def read(self, topic: str, isolation: str = "read_committed") -> list[Message]:
        """Everything in the topic, by partition and offset."""
        ends = self.end_offsets(topic, isolation)
        filled = {partition: end for partition, end in enumerate(ends) if end}
        if not filled:
            return []
        consumer = self._consumer(isolation)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in filled])
        messages: list[Message] = []
        deadline = time.monotonic() + 15
        while filled:
            assert time.monotonic() < deadline, f"cannot read {topic} to its end"
            message = consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is not None:
                filled.pop(message.partition(), None)
            else:
                messages.append(message)
        consumer.unassign()
        return sorted(messages, key=lambda message: (message.partition(), message.offset()))

    def values(self, topic: str) -> list[bytes | None]:
        """The values in the topic, by partition and offset."""
        return [message.value() for message in self.read(topic)]

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()

    def _consumer(self, isolation: str) -> Consumer:
        if isolation not in self._consumers:
            self._consumers[isolation] = Consumer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "group.id": f"contract-{uuid.uuid4().hex[:8]}",
                    "enable.partition.eof": True,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "isolation.level": isolation,
                    "fetch.wait.max.ms": 10,
                    "log_level": 0,
                }
            )
        return self._consumers[isolation]


def safe_producer() -> type:
    """SafeProducer, imported late: the confluent_kafka half of the contract needs nothing of this project."""
    from safeproducer import SafeProducer  # noqa: PLC0415

    return SafeProducer


def held_producer() -> type:
    """SafeProducer with everything held back, imported late as well."""
    from tests.contract.held import SafeProducerHeld  # noqa: PLC0415

    return SafeProducerHeld


@pytest.fixture(scope="session")
def mock_cluster() -> Iterator[Cluster]:
    """librdkafka's mock cluster of three brokers; topics appear in it when first asked for."""
    keeper = mock_brokers(3)
    brokers = keeper.list_topics(timeout=10).brokers.values()

    def topic() -> str:
        # The mock makes a topic when metadata of it is asked for, and answers with it from the next time on.
        name = f"contract-{uuid.uuid4().hex[:12]}"
        wait_until(lambda: len(keeper.list_topics(name, 10).topics[name].partitions) == PARTITIONS)
        return name

    cluster = Cluster("mock", ",".join(f"{broker.host}:{broker.port}" for broker in brokers), topic)
    yield cluster
    cluster.close()
    keeper.close()


@pytest.fixture(scope="session")
def cluster(mock_cluster: Cluster) -> Cluster:
    """The cluster under test; the integration run of this suite puts real Kafka in its place."""
    return mock_cluster


@pytest.fixture(scope="session", params=["stock", "safe", "held"])
def producer_class(request: pytest.FixtureRequest) -> type:
    if request.param == "stock":
        return cimpl.Producer
    return safe_producer() if request.param == "safe" else held_producer()


@pytest.fixture
def is_stock(producer_class: type) -> bool:
    """Whether the class under test is the confluent_kafka one."""
    return producer_class is cimpl.Producer


@pytest.fixture
def is_held(producer_class: type) -> bool:
    """Whether the class under test holds everything back."""
    return producer_class.__name__ == "SafeProducerHeld"


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """A topic of PARTITIONS partitions that no other test uses."""
    return cluster.topic()


@pytest.fixture
def make(producer_class: type, cluster: Cluster) -> Iterator[Callable[..., Any]]:
    """Make a producer on the cluster: `make({setting: value}, cls=subclass, **keywords)`; closed after the test."""
    made: list[Any] = []

    def build(config: dict[str, Any] | None = None, /, cls: type | None = None, **keywords: Any) -> Any:
        settings = {**BASE, "bootstrap.servers": cluster.bootstrap, **(config or {})}
        producer = (cls or producer_class)(settings, **keywords)
        made.append(producer)
        return producer

    yield build
    while made:
        discard(made.pop())


def discard(producer: Any) -> None:
    """Close a producer at once, whatever is left in it; one that is closed already stays closed."""
    try:
        producer.purge()
        producer.flush(5)
    except RuntimeError:
        pass  # closed by the test
    producer.close()


@pytest.fixture(scope="session")
def shared_producer(producer_class: type, cluster: Cluster) -> Iterator[Any]:
    """One idempotent producer per class for every test that needs no setting of its own."""
    shared = producer_class(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0, "linger.ms": 1}
    )
    warm = cluster.topic()
    shared.produce(warm, b"warm")
    assert shared.flush(30) == 0
    yield shared
    shared.close()


@pytest.fixture
def producer(shared_producer: Any) -> Iterator[Any]:
    """The shared producer, empty before and after the test."""
    yield shared_producer
    assert shared_producer.flush(10) == 0
    assert len(shared_producer) == 0
