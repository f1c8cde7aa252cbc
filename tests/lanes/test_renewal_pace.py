"""How soon records are delivered again after a fatal error, at a round trip of 10 ms, and what that costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from safeproducer import SafeProducer
from safeproducer.testing import FakeCluster
from tests.inside import engine_of
from tests.lanes.traffic import Traffic

ROUND_TRIP = 0.01
ERRORS = 7
CELLS = [("auto", "partition"), ("auto", "key"), ("held", "partition"), ("held", "key"), ("held", "none")]


@pytest.fixture
def newer() -> Iterator[FakeCluster]:
    with FakeCluster(2, kafka="4.5") as cluster:
        cluster.create_topic("t", 2)
        cluster.delay(ROUND_TRIP)
        yield cluster


def seconds(load: Traffic, hurt: Callable[[], object]) -> list[float]:
    """From each of some fatal errors to the next delivery of a record that was accepted later."""
    found = []
    for number in range(1, ERRORS + 1):
        load.keep(0.1, backlog=20)
        hurt()
        struck = time.monotonic()
        before = load.accepted
        load.until(lambda n=before: "delivered" in list(load.ended.values())[n:], backlog=20)
        found.append(time.monotonic() - struck)
        load.until(lambda n=number: load.producer.snapshot().renewals == n, backlog=20)
    load.finish()
    return found


@pytest.mark.parametrize("error", ["planted", "topic made anew"])
@pytest.mark.parametrize(("mode", "ordering"), CELLS)
def test_records_are_delivered_again_soon(
    newer: FakeCluster, plant_fatal: Callable[[Any], None], mode: str, ordering: str, error: str
) -> None:
    """After 0.3 s in the middle, after 3 s at most."""
    own = {"safeproducer.fatal": "renew", "safeproducer.mode": mode, "safeproducer.ordering": ordering}
    producer = SafeProducer({"bootstrap.servers": newer.bootstrap, "log_level": 0, **own})
    admin = AdminClient({"bootstrap.servers": newer.bootstrap, "log_level": 0})
    load = Traffic(producer, "t", 50)

    def hurt() -> None:
        if error == "planted":
            engine = engine_of(producer)
            plant_fatal(producer if engine.holds.direct is not None else next(iter(engine.dispatcher.lanes)))
        else:
            admin.delete_topics(["t"])["t"].result()
            newer.create_topic("t", 2)

    found = seconds(load, hurt)
    producer.close(10)
    print(f"{mode} {ordering}, {error}: median {statistics.median(found):.3f} s, worst {max(found):.3f} s")
    assert statistics.median(found) <= 0.3
    assert max(found) <= 3.0
