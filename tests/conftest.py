"""Fixtures of the unit tests: librdkafka's mock cluster, and ways to hurt a producer."""

import gc
import itertools
import os
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

from safeproducer import SafeProducer
from safeproducer.pipeline.lanes.batch_lane import BatchLane
from tests.inside import fatal_planter
from tests.mock_cluster import mock_cluster

pytest.register_assert_rewrite("tests.contract.fixtures", "tests.contract.support", "tests.contract.ways")

# How long examples take is the machine's affair.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
_numbers = itertools.count()


@pytest.fixture(scope="session")
def mock_bootstrap() -> Iterator[str]:
    """The bootstrap list of a mock cluster with three brokers, which lives as long as the session."""
    owner = mock_cluster(3)
    brokers = owner.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    owner.close()


@pytest.fixture
def producer(mock_bootstrap: str) -> Iterator[SafeProducer]:
    """A SafeProducer on the mock cluster, closed at the end of the test."""
    made = SafeProducer({"bootstrap.servers": mock_bootstrap, "log_level": 0})
    yield made
    made.close(5)


@pytest.fixture
def unreachable() -> dict[str, object]:
    """A configuration whose broker does not answer: records stay unresolved."""
    return {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "message.timeout.ms": 60_000}


@pytest.fixture(scope="session")
def plant_fatal() -> Callable[[SafeProducer | BatchLane], None]:
    return fatal_planter()


@pytest.fixture
def without_collector() -> Iterator[None]:
    """What only the cyclic collector would free stays: servers that fork switch it off, or freeze what they have."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(autouse=True)
def _ledger_of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests' producers of the same cluster took does not count. The directory is made when it is used."""
    shared = os.environ.get("SAFEPRODUCER_PRODUCER_IDS_AUTO")
    if shared is not None:
        monkeypatch.setenv("SAFEPRODUCER_PRODUCER_IDS_AUTO", os.path.join(shared, str(next(_numbers))))


@pytest.fixture(autouse=True, scope="module")
def _dropped_producers_end() -> Iterator[None]:
    """Those that a module's tests dropped go on in librdkafka's threads until the collector finds them."""
    yield
    gc.collect()
