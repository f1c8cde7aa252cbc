"""Processes of multiprocessing and of a pool, each with a producer of its own; the parent goes on with its own, too."""

from __future__ import annotations

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor

from confluent_kafka import Producer

from integration.applications.programs.given import TOPIC, accepted, account, make, reported, say

RECORDS = 20
PROCESSES = 2
TASKS = 4

pooled: list[Producer] = []


def send(producer: Producer, first: int) -> None:
    for number in range(first, first + RECORDS):
        producer.produce(TOPIC, str(number), on_delivery=reported)
        accepted(str(number))
    say("left", count=producer.flush(20))


def work(first: int) -> None:
    producer = make()
    send(producer, first)
    account(producer)


def start() -> None:
    pooled.append(make())


def task(first: int) -> int:
    send(pooled[0], first)
    account(pooled[0])
    return first


def main(method: str) -> None:
    own = make()
    send(own, 0)
    multiprocessing.set_start_method(method)
    processes = [multiprocessing.Process(target=work, args=(1000 * number,)) for number in range(1, PROCESSES + 1)]
    for process in processes:
        process.start()
    send(own, 100)
    for process in processes:
        process.join()
        say("child", status=process.exitcode)
    with ProcessPoolExecutor(2, initializer=start) as pool:
        for first in pool.map(task, range(10_000, 10_000 + 1000 * TASKS, 1000)):
            say("task", first=first)
    send(own, 200)
    account(own)


if __name__ == "__main__":
    main(sys.argv[1])
