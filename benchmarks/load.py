"""The records a block produces, and the ways an application may hand them over."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from typing import Any

POLL_EVERY = 1000
"""Records between two calls of poll(0), and records in one produce_batch(); the same for both producers."""
FLUSH_TIMEOUT = 60.0

Pair = tuple[bytes, bytes]


class VoidError(Exception):
    """Records were lost or failed, so the measurement says nothing."""


@dataclass(frozen=True)
class Load:
    """`chunks` of (key, value), every pair distinct, and the same as dicts for produce_batch()."""

    topic: str
    second_topic: str
    partitions: int
    value_size: int
    chunks: list[list[Pair]]
    batches: list[list[dict[str, Any]]]

    @property
    def records(self) -> int:
        return sum(len(chunk) for chunk in self.chunks)

    @classmethod
    def make(cls, topic: str, partitions: int, value_size: int, records: int) -> Load:
        source = random.Random(value_size)
        pairs = [(b"key-%07d" % number, source.randbytes(value_size)) for number in range(records)]
        chunks = [pairs[start : start + POLL_EVERY] for start in range(0, records, POLL_EVERY)]
        batches = [[{"key": key, "value": value} for key, value in chunk] for chunk in chunks]
        return cls(topic, f"{topic}-second", partitions, value_size, chunks, batches)


class Tally:
    """Counts delivery reports of one producer: the callback a careful application would have."""

    def __init__(self) -> None:
        self.delivered = 0
        self.failed = 0

    def on_delivery(self, error: Any, message: Any) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.failed += 1


Form = Callable[[Any, Load, Tally], Callable[[], None]]


def keyword(producer: Any, load: Load, tally: Tally) -> Callable[[], None]:
    topic, on_delivery = load.topic, tally.on_delivery

    def produce() -> None:
        for chunk in load.chunks:
            for key, value in chunk:
                producer.produce(topic, value=value, key=key, on_delivery=on_delivery)
            producer.poll(0)

    return produce


def positional(producer: Any, load: Load, tally: Tally) -> Callable[[], None]:
    topic, on_delivery = load.topic, tally.on_delivery

    def produce() -> None:
        for chunk in load.chunks:
            for key, value in chunk:
                producer.produce(topic, value, key, -1, on_delivery)
            producer.poll(0)

    return produce


def batch(producer: Any, load: Load, tally: Tally) -> Callable[[], None]:
    topic, on_delivery = load.topic, tally.on_delivery

    def produce() -> None:
        for messages in load.batches:
            producer.produce_batch(topic, messages, on_delivery=on_delivery)
            producer.poll(0)

    return produce


def batch_to_partition(producer: Any, load: Load, tally: Tally) -> Callable[[], None]:
    topic, on_delivery = load.topic, tally.on_delivery
    partitions = cycle(range(load.partitions))

    def produce() -> None:
        for messages in load.batches:
            producer.produce_batch(topic, messages, partition=next(partitions), on_delivery=on_delivery)
            producer.poll(0)

    return produce


def explicit_partition(producer: Any, load: Load, tally: Tally) -> Callable[[], None]:
    topic, on_delivery = load.topic, tally.on_delivery
    partitions = cycle(range(load.partitions))

    def produce() -> None:
        for chunk in load.chunks:
            for key, value in chunk:
                producer.produce(topic, value=value, key=key, partition=next(partitions), on_delivery=on_delivery)
            producer.poll(0)

    return produce


def callback_per_record(producer: Any, load: Load, tally: Tally) -> Callable[[], None]:
    topic, on_delivery = load.topic, tally.on_delivery

    def produce() -> None:
        for chunk in load.chunks:
            for key, value in chunk:
                own = lambda error, message, key=key: on_delivery(error, message)  # noqa: E731
                producer.produce(topic, value=value, key=key, on_delivery=own)
            producer.poll(0)

    return produce


def callback_method(producer: Any, load: Load, tally: Tally) -> Callable[[], None]:
    topic = load.topic

    def produce() -> None:
        for chunk in load.chunks:
            for key, value in chunk:
                # A new bound method object for each record, as in on_delivery=self.on_delivery.
                producer.produce(topic, value=value, key=key, on_delivery=tally.on_delivery)
            producer.poll(0)

    return produce


def poll_each(producer: Any, load: Load, tally: Tally) -> Callable[[], None]:
    topic, on_delivery = load.topic, tally.on_delivery

    def produce() -> None:
        for chunk in load.chunks:
            for key, value in chunk:
                producer.produce(topic, value=value, key=key, on_delivery=on_delivery)
                producer.poll(0)

    return produce


def one_header(producer: Any, load: Load, tally: Tally) -> Callable[[], None]:
    topic, on_delivery = load.topic, tally.on_delivery

    def produce() -> None:
        for chunk in load.chunks:
            for key, value in chunk:
                producer.produce(topic, value=value, key=key, on_delivery=on_delivery, headers=[("source", b"bench")])
            producer.poll(0)

    return produce


def two_topics(producer: Any, load: Load, tally: Tally) -> Callable[[], None]:
    topics, on_delivery = cycle((load.topic, load.second_topic)), tally.on_delivery

    def produce() -> None:
        for chunk in load.chunks:
            for key, value in chunk:
                producer.produce(next(topics), value=value, key=key, on_delivery=on_delivery)
            producer.poll(0)

    return produce


def no_callback(producer: Any, load: Load, tally: Tally) -> Callable[[], None]:
    topic = load.topic

    def produce() -> None:
        for chunk in load.chunks:
            for key, value in chunk:
                producer.produce(topic, value=value, key=key)
            producer.poll(0)
        tally.delivered += load.records  # only the broker's log can tell

    return produce


def block(form: Form, producer: Any, load: Load) -> Callable[[], None]:
    """One block: produce all records, flush, and make sure that every one was delivered."""
    tally = Tally()
    produce: Any = form(producer, load, tally)
    # CPython specialises a code object for the types it last saw, so both producers get one of their own.
    produce.__code__ = produce.__code__.replace()

    def run() -> None:
        tally.delivered = tally.failed = 0
        produce()
        left = producer.flush(FLUSH_TIMEOUT)
        if left or tally.failed or tally.delivered != load.records:
            raise VoidError(
                f"{form.__name__} with {type(producer).__name__}: of {load.records} records {tally.delivered} were "
                f"delivered, {tally.failed} failed and {left} were left by flush(); the measurement is void"
            )

    return run
