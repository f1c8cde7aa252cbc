"""Fixtures that are the same on both clusters."""

from collections.abc import Iterator

import pytest

from tests.conformance.target import Target
from tests.testing.raw import RawClient


@pytest.fixture(scope="module")
def untouched(cluster: Target) -> str:
    """A topic of two partitions, for the tests that neither write to it nor change it."""
    return cluster.topic(2)


@pytest.fixture
def client(cluster: Target) -> Iterator[RawClient]:
    with cluster.connect() as made:
        yield made


@pytest.fixture
def name(cluster: Target) -> str:
    """That of a new topic with one partition."""
    return cluster.topic()
