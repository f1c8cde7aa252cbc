"""Metrics tell what producers count: all of them, those that are gone, and nothing twice."""

from __future__ import annotations

import gc
import logging
import math
import os
import random
import statistics
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from safeproducer import Hook, Record, SafeProducer
from safeproducer.hooks import Gaps
from safeproducer.pipeline.lanes.renewing import Failure
from safeproducer.runtime import clock
from safeproducer.runtime.totals import Totals
from safeproducer.telemetry import OpenTelemetryMetrics, figures, metrics
from safeproducer.telemetry.metrics import INSTRUMENTS
from safeproducer.testing import FakeCluster
from tests import inside

DEADLINE = 30
SENT, DURATION = "messaging.client.sent.messages", "messaging.client.operation.duration"
ACCEPTED, ENDED = "safeproducer.records.accepted", "safeproducer.records.ended"
COUNTERS = {each.name for each in INSTRUMENTS if each.kind == "counter"}
TOPIC, OUTCOME = "messaging.destination.name", "safeproducer.outcome"
Point = tuple[str, frozenset[tuple[str, Any]]]


class Collector:
    """A meter provider, and what it collected last. No counter may ever have fallen."""

    def __init__(self, **options: Any) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False)
        self.hook = OpenTelemetryMetrics(self.provider, **options)
        self.before: dict[Point, float] = {}

    def collect(self) -> dict[Point, Any]:
        """(instrument, attributes) -> value, a histogram's data point."""
        data = self.reader.get_metrics_data()
        found: dict[Point, Any] = {}
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                assert (scope.scope.name, scope.schema_url) == (
                    "safeproducer",
                    "https://opentelemetry.io/schemas/1.44.0",
                )
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        key = metric.name, frozenset((point.attributes or {}).items())
                        found[key] = getattr(point, "value", point)
        for key, value in found.items():
            if key[0] in COUNTERS:
                assert value >= self.before.get(key, 0), key
                self.before[key] = value
        return found

    def total(self, name: str, **attributes: Any) -> float:
        """The sum of an instrument's points with these attributes, whose dots are written as two underscores."""
        wanted = {(each.replace("__", "."), value) for each, value in attributes.items()}
        return sum(value for (of, has), value in self.collect().items() if of == name and wanted <= has)

    def outcomes(self) -> dict[str, float]:
        """Outcome -> records that ended so, of all topics."""
        names = ("delivered", "not_written", "unknown", "lost")
        return {name: self.total(ENDED, safeproducer__outcome=name) for name in names}


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as made:
        made.create_topic("a", 2)
        made.create_topic("b", 1)
        yield made


def producer_of(cluster: FakeCluster, *hooks: Hook, **more: Any) -> SafeProducer:
    config = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "log_level": 0}
    return SafeProducer({**config, **{name.replace("_", "."): value for name, value in more.items()}}, hooks=hooks)


def down(*hooks: Hook, **more: Any) -> SafeProducer:
    """A producer whose brokers nobody reaches."""
    config = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "message.timeout.ms": 200, **more}
    return SafeProducer(config, hooks=hooks)


# --- sums ------------------------------------------------------------------------------------------------------------


def test_figures_are_those_of_the_accounts(cluster: FakeCluster) -> None:
    """By topic; of several producers added up, and with closed ones."""
    collector = Collector()
    accepted = 0
    for _ in range(2):
        with producer_of(cluster, collector.hook) as producer:
            for number in range(10):
                producer.produce("a", b"x", partition=number % 2)
            producer.produce("b", b"x")
            assert producer.flush(DEADLINE) == 0
            accepted += producer.snapshot().accepted
            assert collector.total(ACCEPTED) == accepted
    del producer
    gc.collect()
    assert collector.total(ACCEPTED) == collector.total(SENT) == accepted == 22
    assert collector.total(ACCEPTED, **{"messaging__destination__name": "b"}) == 2
    assert collector.outcomes() == {"delivered": 22, "not_written": 0, "unknown": 0, "lost": 0}
    assert collector.total("safeproducer.records.unresolved") == 0
    assert collector.total("safeproducer.producer_ids", safeproducer__principal="User:ANONYMOUS") == 2


STEPS = st.lists(
    st.sampled_from(["open", "produce", "produce", "batch", "flush", "close", "drop", "fork", "collect"]),
    min_size=3,
    max_size=14,
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, seed=st.integers(0, 99))
def test_whatever_producers_do_sums_are_right_and_never_fall(cluster: FakeCluster, steps: list[str], seed: int) -> None:
    """Producers come and go under a collector; one that is dropped with records loses them."""
    collector, chance, accepted = Collector(), random.Random(seed), 0
    alive: list[SafeProducer] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # records that are dropped are lost
        for step in steps:
            if step == "open" or not alive:
                alive.append(producer_of(cluster, collector.hook, safeproducer_producer_ids_per_hour=100_000))
            number = chance.randrange(len(alive))
            if step == "produce":
                alive[number].produce("a", b"x", partition=chance.choice((-1, 0, 1)))
                accepted += 1
            elif step == "batch":
                accepted += alive[number].produce_batch("b", [{"value": b"x"}] * 3)
            elif step == "flush":
                assert alive[number].flush(DEADLINE) == 0
            elif step == "close":
                alive.pop(number).close(DEADLINE)
            elif step == "drop":
                del alive[number]
            elif step == "fork":
                assert in_child(lambda: collector.total(ACCEPTED) == 0)
            assert collector.total(ACCEPTED) == accepted
        for producer in alive:
            producer.close(DEADLINE)
        alive.clear()
        producer = None  # type: ignore[assignment]
        gc.collect()
    assert collector.total(ACCEPTED) == accepted == sum(collector.outcomes().values())
    assert collector.total("safeproducer.records.unresolved") == 0
    assert len(collector.hook._collection.totals.known()[0]) == 0


def in_child(holds: Any) -> bool:
    """Whether it does in a child of a fork."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if holds() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
