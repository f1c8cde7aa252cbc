"""Records of one topic that have a value, a key and nothing else: what produce() does, without a call for each.

Far from the brokers, where records wait before they go, those of one partition are accepted together, as a Block.

For the sink of Spark. It is no method of SafeProducer, whose methods are those of confluent_kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from safeproducer.errors import NOT_ACCEPTED, SafeProducerError
from safeproducer.pipeline.engine import Engine
from safeproducer.runtime import clock

ANY_PARTITION = -1


def produce_pairs(
    engine: Engine,
    topic: str,
    pairs: Iterable[tuple[bytes | None, bytes | None]],
    callback: Callable[..., Any],
    refused: Callable[[str, bytes | None, bytes | None], object],
    partition: int = ANY_PARTITION,
) -> None:
    """Accept (value, key) of each record in their order. Without exception each is counted before it is handed over.

    `refused(topic, value, key)` is called for a record that was not accepted; what it raises ends the loop. Why it was
    not, a produce() of the same tells. What is raised by a signal handler is not caught.
    """
    counters, route = engine.counters, engine.route
    opened = counters.open(topic)
    account = opened if partition == ANY_PARTITION else opened.explicit(partition)
    report = account.bind(callback)[1]
    for value, key in pairs:
        account.accepted += 1  # as in produce()
        try:
            route.send(topic, value, key, partition, report)  # looked up for each: the route may change meanwhile
        except NOT_ACCEPTED:
            account.accepted -= 1
        except BaseException:
            counters.interrupts += 1
            raise
        else:
            continue
        refused(topic, value, key)


class Block(NamedTuple):
    """Records of one partition, in their order; `sizes`: bytes of value and key of each. There is at least one."""

    topic: str
    partition: int
    values: list[bytes | None]
    keys: list[bytes | None]
    sizes: list[int]


class Placing(NamedTuple):
    """How records of `topic`, with so many `partitions`, are placed: by librdkafka's partitioner of that name.

    `choose(key)` does it for one; where the key decides nothing, for as many as come together.
    """

    topic: str
    partitions: int
    partitioner: str
    choose: Callable[[bytes | None], int]


def placing(engine: Engine, topic: str) -> Placing | None:
    """None while produce_block() takes nothing of this topic: records go directly, or no broker has told of it.

    Asks for the producer's permit, as the first produce() does.
    """
    partitions = engine.holds.partitions
    count = partitions.count(topic)
    if engine.route.gate is not None:
        with suppress(SafeProducerError):  # a produce() is refused with it; what a signal handler raises goes on
            engine.route.enter()
    direct = engine.holds.direct
    if engine.holds.cluster.outdated.differ(topic, clock.monotonic()):
        return None
    if not count or engine.route.send != engine.dispatcher.intake.send or (direct is not None and direct.starting):
        return None
    return Placing(topic, count, partitions.partitioner, partial(partitions.choose, topic, now=clock.monotonic()))


def produce_block(engine: Engine, block: Block, callback: Callable[..., Any]) -> bool:
    """Accept all records of `block`; False when none was: there is no room for all, or they have to go one by one.

    `callback` is called for errors alone, and only where the producer is configured so. What a signal handler raises
    goes on; then it is not known whether they were accepted.
    """
    counters, intake = engine.counters, engine.dispatcher.intake
    account = counters.open(block.topic)
    report = account.counted(callback)
    if report is None or engine.route.send != intake.send:
        return False
    count = len(block.sizes)
    account.accepted += count
    try:
        taken = intake.send_block(*block, report)
    except NOT_ACCEPTED:
        taken = False
    except BaseException:
        counters.interrupts += count
        raise
    if not taken:
        account.accepted -= count
    return taken
