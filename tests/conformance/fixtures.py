"""Fixtures that are the same on both clusters."""

from collections.abc import Iterator

import pytest

from tests.conformance.target import Target
from tests.testing.raw import RawClient


@pytest.fixture
def client(cluster: Target) -> Iterator[RawClient]:
    """A connection to the single broker."""
    with cluster.connect() as made:
        yield made
