"""The contract against librdkafka's mock cluster; `integration/contract` runs the same tests against real Kafka."""

from tests.contract.fixtures import (
    cluster,
    is_stock,
    make,
    mock_cluster,
    producer,
    producer_class,
    shared_producer,
    topic,
)

__all__ = [
    "cluster",
    "is_stock",
    "make",
    "mock_cluster",
    "producer",
    "producer_class",
    "shared_producer",
    "topic",
]
