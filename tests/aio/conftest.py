"""One cluster for each test, and each event loop that there is."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.aio import support
from tests.clusters import fake_cluster

cluster = fake_cluster({"t": support.PARTITIONS}, brokers=3)


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[support.Main], Any]:
    """Runs a coroutine function to its end; nothing is left over then."""
    found: Callable[[support.Main], Any] = getattr(support, f"on_{request.param}")
    return found
