"""One cluster for a whole module, as new for each test."""

import pytest

from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster

running = fake_cluster({}, brokers=3, scope="module")


@pytest.fixture
def cluster(running: FakeCluster) -> FakeCluster:
    running.reset()
    return running
