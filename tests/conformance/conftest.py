"""The suite on FakeCluster; `integration/conformance` runs the same tests on real Kafka."""

import pytest

pytest.register_assert_rewrite("tests.conformance.fixtures", "tests.conformance.target")

from collections.abc import Iterator  # noqa: E402

from safeproducer.testing import FakeCluster  # noqa: E402
from tests.conformance.fixtures import client, untouched  # noqa: E402 - after its asserts are known to pytest
from tests.conformance.target import (  # noqa: E402
    CONFIGS,
    PLAIN_PASSWORD,
    PLAIN_USER,
    SCRAM_PASSWORD,
    SCRAM_USER,
    Target,
)

__all__ = ["client", "cluster", "cluster3", "secure", "untouched"]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Target]:
    """One broker, as users get it: it knows KIP-1269."""
    with FakeCluster(1, broker_config=CONFIGS) as fake:
        yield Target("fake", fake.bootstrap)


@pytest.fixture(scope="session")
def cluster3() -> Iterator[Target]:
    """Three brokers, whose followers fetch."""
    with FakeCluster(3, replica_link=100_000_000) as fake:
        yield Target("fake", fake.bootstrap, lambda topic, broker: fake.move_leader(topic, to=broker))


@pytest.fixture(scope="session")
def secure() -> Iterator[Target]:
    """One broker that lets nobody in without a log-in."""
    with FakeCluster(1, broker_config=CONFIGS, users={PLAIN_USER: PLAIN_PASSWORD, SCRAM_USER: SCRAM_PASSWORD}) as fake:
        yield Target("fake", fake.bootstrap)
