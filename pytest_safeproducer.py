"""pytest's plug-in of safeproducer: the fixture ``kafka_cluster``, and a ledger of producer IDs for the test run alone.

A module beside the package, because importing the package loads librdkafka: a test run that does not use the fixture
is to pay nothing for the plug-in.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from safeproducer.testing import FakeCluster

__all__ = ["kafka_cluster", "pytest_configure", "pytest_unconfigure"]

_MARKER = "kafka_cluster(...): what the test's FakeCluster is constructed with, e.g. brokers=1, kip_1269=False"
_LEDGERS = "SAFEPRODUCER_PRODUCER_IDS_AUTO"
"""The directory that `safeproducer.producer.ids.ledger` "auto" takes, in this process and those that it starts."""
_made = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, and keep the producers of tests out of this host's ledger (KIP-936)."""
    config.addinivalue_line("markers", _MARKER)
    if _LEDGERS not in os.environ:  # else this is a worker, or a test run inside a test
        config.stash[_made] = os.environ[_LEDGERS] = tempfile.mkdtemp(prefix="safeproducer-pytest-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Delete what the test run has counted."""
    if _made in config.stash:
        del os.environ[_LEDGERS]
        shutil.rmtree(config.stash[_made], ignore_errors=True)


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
    of its own, made with the marker's arguments. An error inside the cluster fails the test that used it.
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
