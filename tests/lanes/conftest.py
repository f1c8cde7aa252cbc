"""One cluster for all tests of lanes, as new for each, and producers that hold back and spread over lanes."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from safeproducer import Hook, SafeProducer
from safeproducer.hooks import LanesChanged, WindowChanged
from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster

BATCH = 5
RETAIN = "producer.state.batches.to.retain"
REFRESH_MS = 1000
"""topic.metadata.refresh.interval.ms: the window is asked for every half of it and believed for as long."""
LATE = 0.06
"""Seconds by which Produce answers are late."""


class Changes(Hook):
    """What a producer told of windows and lanes."""

    def __init__(self) -> None:
        self.windows: list[WindowChanged] = []
        self.lanes: list[LanesChanged] = []
        self.fatal: list[Any] = []
        self.window_changed_at = 0.0
        """When the last change of a window was known, in seconds since the Unix epoch."""

    def window_changed(self, event: WindowChanged) -> None:
        self.window_changed_at = time.time()
        self.windows.append(event)

    def lanes_changed(self, event: LanesChanged) -> None:
        self.lanes.append(event)

    def fatal_error(self, producer: Any, error: Any) -> None:
        self.fatal.append(error)


Make = Callable[..., SafeProducer]


running = fake_cluster({}, brokers=2, scope="session")


@pytest.fixture
def cluster(running: FakeCluster) -> FakeCluster:
    """Two brokers that know KIP-1269, whose Produce answers are late."""
    running.reset()
    running.delay(LATE, api="Produce")
    return running


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture
def make(cluster: FakeCluster, changes: Changes) -> Iterator[Make]:
    """Makes producers with small batches and short-lived knowledge, closed at the end of the test."""
    made: list[SafeProducer] = []

    def make_one(**settings: Any) -> SafeProducer:
        config = {
            "bootstrap.servers": cluster.bootstrap,
            "log_level": 0,
            "safeproducer.mode": "held",
            "safeproducer.ordering": "key",
            "batch.num.messages": BATCH,
            "linger.ms": 5,
            "topic.metadata.refresh.interval.ms": REFRESH_MS,
            **{name if name.endswith("_cb") else name.replace("_", "."): value for name, value in settings.items()},
        }
        made.append(SafeProducer(config, hooks=[changes]))
        return made[-1]

    yield make_one
    for producer in made:
        producer.close(5)
