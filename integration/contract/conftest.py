"""The fixtures of the contract, with real Kafka where the mock cluster was."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from integration.kafka.cluster import KafkaCluster

pytest.register_assert_rewrite("tests.contract")
fixtures: Any = import_module("tests.contract.fixtures")
support: Any = import_module("tests.contract.support")

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

    def create(name: str) -> None:
        kafka.admin.create_topic(name, partitions=support.PARTITIONS)

    real = fixtures.Cluster("kafka", kafka.bootstrap, create)
    yield real
    real.close()
