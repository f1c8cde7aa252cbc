"""The fixtures of the contract, with real Kafka where the mock cluster was."""

import uuid
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from integration.again import rewrite_asserts
from integration.kafka.cluster import KafkaCluster

TOPICS_AT_ONCE = 50
"""Topics are made in advance: one at a time they would take longer than the tests that use them."""

rewrite_asserts("tests.contract")
fixtures: Any = import_module("tests.contract.fixtures")
support: Any = import_module("tests.contract.support")

is_held = fixtures.is_held
is_stock = fixtures.is_stock
make = fixtures.make
mock_cluster = fixtures.mock_cluster
producer = fixtures.producer
producer_class = fixtures.producer_class
shared_producer = fixtures.shared_producer
topic = fixtures.topic


@pytest.fixture(scope="session")
def cluster(kafka: KafkaCluster) -> Iterator[Any]:
    """A real broker, with the topics of the contract's number of partitions."""

    stock: list[str] = []

    def topic() -> str:
        if not stock:
            stock.extend(f"contract-{uuid.uuid4().hex[:12]}" for _ in range(TOPICS_AT_ONCE))
            new = [NewTopic(name, support.PARTITIONS, 1) for name in stock]
            for created in kafka.admin.client.create_topics(new).values():
                created.result()
            # Brokers learn of topics in the order of their creation: when the last one is known, all are.
            kafka.admin.create_topic(f"contract-{uuid.uuid4().hex[:12]}", support.PARTITIONS)
        return stock.pop()

    real = fixtures.Cluster("kafka", kafka.bootstrap, topic)
    yield real
    real.close()
