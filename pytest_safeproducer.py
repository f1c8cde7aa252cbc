"""pytest's plug-in of safeproducer: the fixture ``kafka_cluster``.

A module beside the package, because importing the package loads librdkafka: a test run that does not use the fixture
is to pay nothing for the plug-in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from safeproducer.testing import FakeCluster

__all__ = ["kafka_cluster", "pytest_configure"]

_MARKER = "kafka_cluster(...): what the test's FakeCluster is constructed with, e.g. brokers=1, kip_1269=False"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture(scope="session")
def _shared_kafka_cluster() -> Iterator[FakeCluster]:
    from safeproducer.testing import FakeCluster  # noqa: PLC0415

    with FakeCluster() as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[FakeCluster]:
    """A FakeCluster of three brokers, as new: no topics, no faults, an empty journal.

    It is one cluster for each process (for each worker, with pytest-xdist), on free ports of the loopback, started by
    the first test that asks for it and reset behind each test. A test with the marker ``kafka_cluster`` gets a cluster
    of its own, made with the marker's arguments. What goes wrong inside the cluster fails the test that used it.
    """
    from safeproducer.testing import FakeCluster  # noqa: PLC0415

    marker = request.node.get_closest_marker("kafka_cluster")
    if marker is not None:
        with FakeCluster(*marker.args, **marker.kwargs) as own:
            yield own
        return
    shared: FakeCluster = request.getfixturevalue("_shared_kafka_cluster")
    yield shared
    shared.reset()
