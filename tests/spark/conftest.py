"""One FakeCluster for all tests of the engine, as new for each, and no producer left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from safeproducer.spark import slot
from safeproducer.spark.options import Options
from safeproducer.spark.worker_producers import producers
from safeproducer.testing import FakeCluster

MakeOptions = Callable[..., Options]
"""As Options.parse(), of options beside those that name the cluster, with underscores for dots."""


@pytest.fixture(scope="package")
def brokers() -> Iterator[FakeCluster]:
    """Lives as long as the tests of this folder."""
    with FakeCluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture
def cluster(brokers: FakeCluster) -> Iterator[FakeCluster]:
    """With the topic `rows` of three partitions."""
    brokers.reset()
    brokers.create_topic("rows", 3)
    yield brokers
    end_producers()


def end_producers() -> None:
    """Close what this process keeps."""
    for worker in list(producers._idle.values()):
        producers._idle.pop(worker.key).end()
    if producers._timer is not None:
        producers._timer.cancel()
    slot._positions.cache_clear()


@pytest.fixture
def options(cluster: FakeCluster) -> MakeOptions:
    """Options for the cluster; `topic` is `rows` unless given, None for none."""

    def make(topic: str | None = "rows", **more: Any) -> Options:
        given = {"kafka.bootstrap.servers": cluster.bootstrap, **{k.replace("_", "."): v for k, v in more.items()}}
        return quiet(Options.parse(given if topic is None else {**given, "topic": topic}))

    return make


def quiet(options: Options) -> Options:
    """Without librdkafka's log lines."""
    options.config["log_level"] = "0"
    return options
