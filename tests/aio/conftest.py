"""One cluster for each test, and each event loop that there is."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from safeproducer.testing import FakeCluster
from tests.aio import support


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=3) as made:
        made.create_topic("t", partitions=support.PARTITIONS)
        yield made


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[support.Main], Any]:
    """Runs a coroutine function to its end; nothing is left over then."""
    found: Callable[[support.Main], Any] = getattr(support, f"on_{request.param}")
    return found
