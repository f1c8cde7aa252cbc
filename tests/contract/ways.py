"""The ways that records take through a class, each with a cluster of its own: for tests that try them all."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import cimpl

from safeproducer import SafeProducer
from safeproducer.hooks import Hook
from safeproducer.records import Record
from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster
from tests.contract.support import poll_until
from tests.inside import engine_of

TOPIC = "t"
LINGER = {"linger.ms": 50}
"""So that records wait after the call, wherever they do."""
LONG_ROUND_TRIP = 0.03
HELD = {"safeproducer.mode": "held"}
KEY = {"safeproducer.mode": "held", "safeproducer.ordering": "key"}


class Records(Hook):
    """Keeps each record that was accepted, and adds a header to it."""

    def __init__(self) -> None:
        self.seen: list[Record] = []

    def record_accepted(self, record: Record) -> None:
        self.seen.append(record)
        record.add_header("trace", b"%d" % len(self.seen))


@dataclass(frozen=True)
class Way:
    """One way that records take through a class."""

    cls: Callable[..., Any]
    settings: dict[str, Any]
    hooked: bool = False
    long_round_trip: bool = False


WAYS = {
    "stock": Way(cimpl.Producer, LINGER),
    "auto": Way(SafeProducer, LINGER),
    "held": Way(SafeProducer, LINGER | HELD),
    "far": Way(SafeProducer, {}, long_round_trip=True),
    "key": Way(SafeProducer, LINGER | KEY),
    "hooks": Way(SafeProducer, LINGER, hooked=True),
    "hooks-held": Way(SafeProducer, LINGER | HELD, hooked=True),
    "blocked": Way(SafeProducer, LINGER | {"safeproducer.max.block.ms": 10_000, "queue.buffering.max.messages": 3}),
    "blocked-held": Way(
        SafeProducer, LINGER | HELD | {"safeproducer.max.block.ms": 10_000, "queue.buffering.max.messages": 3}
    ),
}
EVERY_WAY = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())


brokers = fake_cluster({TOPIC: 1})


@pytest.fixture
def start(brokers: FakeCluster) -> Iterator[Callable[..., Any]]:
    """Make a producer that goes a way: `start(way, {setting: value})`."""
    made: list[Any] = []

    def build(way: Way, settings: dict[str, Any] | None = None) -> Any:
        config = {"bootstrap.servers": brokers.bootstrap, "enable.idempotence": True, "log_level": 0} | way.settings
        hooks = {"hooks": [Records()]} if way.hooked else {}
        made.append(producer := way.cls(config | (settings or {}), **hooks))
        if way.long_round_trip:
            brokers.delay(LONG_ROUND_TRIP)
            producer.produce(TOPIC, b"warm")
            poll_until(producer, lambda: not engine_of(producer).route.goes_direct and not len(producer), timeout=30)
        return producer

    yield build
    brokers.delay(0)
    for producer in made:
        producer.close()
