"""One FakeCluster for all tests of the engine, as new for each, and no producer left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from safeproducer.spark import slot
from safeproducer.spark.errors import Failure, KafkaWriteError
from safeproducer.spark.options import Options
from safeproducer.spark.task import Task, write_task
from safeproducer.spark.worker_producers import WorkerProducer, producers
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


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[WorkerProducer]:
    """What tasks of this test write with."""
    found, begin = list[WorkerProducer](), WorkerProducer.begin

    def noted(worker: WorkerProducer) -> None:
        found.append(worker)
        begin(worker)

    monkeypatch.setattr(WorkerProducer, "begin", noted)
    return found


def failure_of(batches: Iterable[pa.RecordBatch], options: Options, task: Task, match: str | None = None) -> Failure:
    """Of a task that raises."""
    with pytest.raises(KafkaWriteError, match=match) as raised:
        write_task(batches, options, task)
    return raised.value.failure


def quiet(options: Options) -> Options:
    """Without librdkafka's log lines."""
    options.config["log_level"] = "0"
    return options
