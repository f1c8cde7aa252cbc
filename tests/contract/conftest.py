"""The contract against librdkafka's mock cluster; `integration/contract` runs the same tests against real Kafka."""

from tests.contract.fixtures import (
    cluster,
    is_held,
    is_stock,
    make,
    mock_cluster,
    producer,
    producer_class,
    shared_producer,
    topic,
)
from tests.contract.ways import brokers, start

__all__ = [
    "brokers",
    "cluster",
    "is_held",
    "is_stock",
    "make",
    "mock_cluster",
    "producer",
    "producer_class",
    "shared_producer",
    "start",
    "topic",
]
