"""A Celery worker with one producer in each process, made and closed as the documents say."""

# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from typing import Any

from celery.signals import (  # type: ignore[import-untyped]
    worker_process_init,
    worker_process_shutdown,
    worker_ready,
)
from confluent_kafka import Producer

import safeproducer  # noqa: F401 - as an application does: so its master is known as the parent of the workers
from integration.applications.programs.celery_app import app
from integration.applications.programs.given import TOPIC, accepted, account, make, reported, say

TASKS = 16

_made: list[Producer] = []


@worker_process_init.connect
def start(**_: Any) -> None:
    _made.append(make())


@worker_process_shutdown.connect
def stop(**_: Any) -> None:
    (producer,) = _made
    producer.flush(10)
    producer.close()
    account(producer)


@app.task
def order(number: int) -> None:
    (producer,) = _made
    producer.produce(TOPIC, str(number), on_delivery=reported)
    accepted(str(number))
    left = producer.flush(10)
    account(producer)  # a worker that is slow to end is killed before it can say so there
    say("done", left=left)


@worker_ready.connect
def ask(**_: Any) -> None:
    for number in range(TASKS):
        order.delay(number)
