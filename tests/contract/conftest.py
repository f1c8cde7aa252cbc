"""The contract against librdkafka's mock cluster; `integration/contract` runs the same tests against real Kafka."""

import pytest

pytest.register_assert_rewrite("tests.contract.fixtures", "tests.contract.support", "tests.contract.ways")

from tests.contract.fixtures import (  # noqa: E402 - after its asserts are known to pytest
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
from tests.contract.ways import brokers, start  # noqa: E402

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
