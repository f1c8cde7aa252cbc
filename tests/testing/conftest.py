"""One cluster for a whole module, as new for each test."""

from collections.abc import Iterator

import pytest

from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster
from tests.testing.raw import RawClient

running = fake_cluster({}, brokers=3, scope="module")


@pytest.fixture
def cluster(running: FakeCluster) -> FakeCluster:
    running.reset()
    return running


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[RawClient]:
    """Of the first broker, which leads the topic "t"."""
    cluster.create_topic("t")
    with RawClient(cluster.bootstrap) as made:
        yield made
