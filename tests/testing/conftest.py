"""One cluster for a whole module, as new for each test."""

from collections.abc import Iterator

import pytest

from safeproducer.testing import FakeCluster


@pytest.fixture(scope="module")
def running() -> Iterator[FakeCluster]:
    with FakeCluster() as found:
        yield found


@pytest.fixture
def cluster(running: FakeCluster) -> FakeCluster:
    running.reset()
    return running
