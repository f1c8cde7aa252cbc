"""Greenlets that produce and poll beside one that ticks: `greenlets first|late|never`, when gevent patches."""

from __future__ import annotations

import sys

from gevent import monkey  # type: ignore[import-untyped]

WHEN = sys.argv[1]
if WHEN == "first":
    monkey.patch_all()

from integration.applications.programs.given import TOPIC, accepted, make, reported, say  # noqa: E402 - behind it

if WHEN == "late":
    make().flush()
    monkey.patch_all()

import gevent  # noqa: E402

GREENLETS = 5
RECORDS = 50


def produce(number: int) -> None:
    for index in range(RECORDS):
        value = f"{number}-{index}"
        producer.produce(TOPIC, value, on_delivery=reported)
        accepted(value)
        producer.poll(0)
        gevent.sleep(0.002)


def poll() -> None:
    while True:
        producer.poll(0)
        gevent.sleep(0.002)


if __name__ == "__main__":
    producer = make()
    poller = gevent.spawn(poll)
    jobs = [gevent.spawn(produce, number) for number in range(GREENLETS)]
    gevent.joinall(jobs, raise_error=True)
    say("left", count=producer.flush(20))
    poller.kill()
