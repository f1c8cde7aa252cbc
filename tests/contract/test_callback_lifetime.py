"""How long a callback lives: until the report of its record has run, and not as long as its producer."""

import contextlib
import functools
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

from tests.contract.fixtures import BASE
from tests.contract.support import poll_until, wait_until

pytestmark = pytest.mark.usefixtures("without_collector")
THREADS = Path("/proc/self/task")


class Payload:
    """What an application hands to its callback, to know what was delivered."""


def keep(payload: Payload, error: Any, message: Any) -> None:
    """A callback that refers to something."""


def produce_with_payload(producer: Any, topic: str, value: bytes = b"v", **tp: int) -> weakref.ref[Payload]:
    """Produce a record whose callback refers to a payload that nobody else refers to."""
    payload = Payload()
    alive = weakref.ref(payload)
    with contextlib.suppress(KafkaException):
        producer.produce(topic, value, on_delivery=functools.partial(keep, payload), **tp)
    return alive


@pytest.mark.parametrize("tp", [{}, {"partition": 1}], ids=["any", "partition"])
def test_flush_leaves_no_callback_behind(producer: Any, topic: str, tp: dict[str, int]) -> None:
    """Its closure may hold a large payload."""
    alive = produce_with_payload(producer, topic, **tp)
    assert alive() is not None
    assert producer.flush(10) == 0
    assert alive() is None


def test_batch_leaves_no_callback_behind(producer: Any, topic: str) -> None:
    payload = Payload()
    alive = weakref.ref(payload)
    producer.produce_batch(topic, [{"value": b"v"}], 1, on_delivery=functools.partial(keep, payload))
    del payload
    assert alive() is not None
    assert producer.flush(10) == 0
    assert alive() is None


def test_poll_leaves_no_callback_behind(producer: Any, topic: str) -> None:
    """An application that only polls does not keep its last callback for the life of the producer."""
    alive = produce_with_payload(producer, topic)
    poll_until(producer, lambda: alive() is None)


def test_close_leaves_no_callback_behind(make: Callable[..., Any], topic: str) -> None:
    """Somebody may keep a closed producer."""
    closed = make()
    alive = produce_with_payload(closed, topic)
    closed.close()
    assert alive() is None


def test_refused_record_leaves_no_callback_behind(make: Callable[..., Any]) -> None:
    """It is never called, and the producer has no use for it."""
    producer = make({"message.max.bytes": 1000})
    alive = produce_with_payload(producer, "t", b"x" * 2000)
    assert len(producer) == 0
    assert producer.flush(10) == 0
    assert alive() is None


class Owner:
    """An object that owns a producer and gives its own method as the callback, the usual wrapper."""

    def __init__(self, producer: Any) -> None:
        self.producer = producer
        self.reports = 0

    def delivered(self, error: Any, message: Any) -> None:
        self.reports += 1


@pytest.mark.parametrize("settings", [{}, {"enable.idempotence": True}], ids=["plain", "idempotent"])
@pytest.mark.parametrize("partition", [-1, 1])
def test_owner_of_a_producer_is_freed_with_its_threads(
    producer_class: Any, cluster: Any, topic: str, settings: dict[str, Any], partition: int
) -> None:
    """At once, when nobody refers to it any more, and all native threads with it."""
    before = set(os.listdir(THREADS))  # some of them may be ending
    owner = Owner(producer_class({**BASE, "bootstrap.servers": cluster.bootstrap, **settings}))
    alive = weakref.ref(owner)
    for _ in range(3):
        owner.producer.produce(topic, b"v", partition=partition, on_delivery=owner.delivered)
    assert owner.producer.flush(10) == 0
    assert owner.reports == 3
    assert set(os.listdir(THREADS)) - before
    del owner
    assert alive() is None
    try:
        wait_until(lambda: not set(os.listdir(THREADS)) - before)
    except AssertionError:
        left = set(os.listdir(THREADS)) - before
        raise AssertionError([(THREADS / each / "comm").read_text() for each in left]) from None


def test_owner_that_only_polled_is_freed(producer_class: Any, cluster: Any, topic: str) -> None:
    """Without a flush it takes a moment, and no collector."""
    owner = Owner(producer_class({**BASE, "bootstrap.servers": cluster.bootstrap}))
    alive = weakref.ref(owner)
    owner.producer.produce(topic, b"v", on_delivery=owner.delivered)
    while not owner.reports:
        owner.producer.poll(0.1)
    del owner
    wait_until(lambda: alive() is None)


def test_owner_may_close_its_producer_when_it_is_freed(producer_class: Any, cluster: Any, topic: str) -> None:
    """Whatever thread frees it; what it calls finds no lock held."""
    closed: list[Any] = []

    class Closing(Owner):
        def __del__(self) -> None:
            closed.append(self.producer.close())

    owner = Closing(producer_class({**BASE, "bootstrap.servers": cluster.bootstrap}))
    owner.producer.produce(topic, b"v", on_delivery=owner.delivered)
    while not owner.reports:
        owner.producer.poll(0.1)
    del owner
    wait_until(lambda: closed)
    assert closed[0]
