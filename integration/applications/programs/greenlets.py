"""Greenlets that produce and poll: `greenlets first|late|never [yielding|blocks]`, when gevent patches, what callbacks
do, and whether records go as blocks, as those of the Spark sink do."""

from __future__ import annotations

import sys
from typing import Any

from gevent import monkey  # type: ignore[import-untyped]

WHEN, YIELDING, BLOCKS = sys.argv[1], "yielding" in sys.argv, "blocks" in sys.argv
if WHEN == "first":
    monkey.patch_all()

from integration.applications.programs.given import TOPIC, accepted, make, reported, say  # noqa: E402 - behind it

if WHEN == "late":
    make().flush()
    monkey.patch_all()

import gevent  # noqa: E402

from safeproducer.pipeline.bulk import Block, placing, produce_block  # noqa: E402
from safeproducer.producer import engine_of  # noqa: E402

GREENLETS = 5
RECORDS = 50

stopping: list[bool] = []


def report(error: Any, message: Any) -> None:
    reported(error, message)
    if YIELDING:
        gevent.sleep(0.001)


def produce(number: int) -> None:
    for index in range(RECORDS):
        value = f"{number}-{index}"
        producer.produce(TOPIC, value, on_delivery=report)
        accepted(value)
        producer.poll(0.002)
        gevent.sleep(0.002)


def produce_blocks(number: int) -> None:
    for first in range(0, RECORDS, 10):
        values: list[bytes | None] = [f"{number}-{index}".encode() for index in range(first, first + 10)]
        if not produce_block(
            engine_of(producer), Block(TOPIC, 0, values, [None] * 10, [len(value or b"") for value in values]), report
        ):
            raise RuntimeError("refused")
        for value in values:
            accepted((value or b"").decode())
        producer.poll(0.002)
        gevent.sleep(0.002)


def poll() -> None:
    while not stopping:
        producer.poll(0)
        gevent.sleep(0.002)


if __name__ == "__main__":
    producer: Any = make()
    poller = gevent.spawn(poll)
    if BLOCKS:
        producer.list_topics(TOPIC, timeout=10)
        placing(engine_of(producer), TOPIC)  # asks for the permit
    jobs = [gevent.spawn(produce_blocks if BLOCKS else produce, number) for number in range(GREENLETS)]
    gevent.joinall(jobs, raise_error=True)
    stopping.append(True)
    poller.join()
    say("left", count=producer.flush(20))
