"""A Celery worker whose processes each have a producer: made at their start, or by the first task that needs one."""

# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import functools
from typing import Any

from celery.exceptions import SoftTimeLimitExceeded  # type: ignore[import-untyped]
from celery.signals import (  # type: ignore[import-untyped]
    worker_process_init,
    worker_process_shutdown,
    worker_ready,
)
from confluent_kafka import Producer

from integration.applications.programs.celery_app import app
from integration.applications.programs.given import TOPIC, accepted, account, make, reported, say

TASKS = 20
LIMITED = 2

started: list[Producer] = []


@functools.cache
def lazy() -> Producer:
    return make()


@worker_process_init.connect
def start(**_: Any) -> None:
    started.append(make())


@worker_process_shutdown.connect
def stop(**_: Any) -> None:
    for producer in (started[0], lazy()):
        producer.flush(10)
        account(producer)


@app.task
def order(number: int) -> None:
    producer = lazy() if number % 2 else started[0]
    producer.produce(TOPIC, str(number), on_delivery=reported)
    accepted(str(number))
    left = producer.flush(10)
    say("done", left=left)


@app.task(soft_time_limit=1)
def limited(number: int) -> None:
    """Celery raises in the middle of whatever the task does when its time is over."""
    producer = started[0]
    index = 0
    try:
        while True:
            value = f"limited-{number}-{index}"
            producer.produce(TOPIC, value)
            accepted(value)
            producer.poll(0.001)
            index += 1
    except SoftTimeLimitExceeded:
        say("limited", left=producer.flush(10))


@worker_ready.connect
def ask(**_: Any) -> None:
    for number in range(LIMITED):
        limited.delay(number)
    for number in range(TASKS):
        order.delay(number)
