"""Measures the costs of idle producers: 30 of one process on a topic of 200 partitions, after one record each.

Beside SafeProducer stand confluent_kafka, and confluent_kafka with statistics as often as SafeProducer has them, which
nobody reads: what librdkafka takes to write them is the least that SafeProducer can take. All idle at the same time.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from benchmarks.brokers import broker
from benchmarks.interleaved import show
from benchmarks.table import Bar, conclude, table
from safeproducer import SafeProducer
from safeproducer.settings.delivery import STATISTICS_MS

MOST = 0.01
SETTLE = 8.0
"""Seconds until a producer is at rest: it reads its first statistics."""
EVERY = 0.1
FLUSH_TIMEOUT = 30.0
ANSWER_TIMEOUT = 300.0
STOCK, WRITING, SAFE = "confluent_kafka", "confluent_kafka, statistics unread", "SafeProducer"
_TASKS = Path("/proc/self/task")
PARTS = ("application", "sender", "librdkafka main", "librdkafka brokers")


@dataclass(frozen=True)
class Row:
    """Shares of one core: of the process, and of its threads by kind (Linux only, else empty). `away`: nobody polls."""

    side: str
    application: str
    cpu: float
    parts: dict[str, float]
    threads: int


def main() -> None:
    options = arguments()
    with broker(mock=options.mock) as cluster:
        cluster.create_topic("idle", options.partitions)
        rows = measured(cluster.bootstrap, options.producers, options.seconds)
    found = {"producers": options.producers, "partitions": options.partitions, "rows": list(map(asdict, rows))}
    conclude(found, described(rows), judged(rows), options.json, options.check)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle", description=__doc__)
    parser.add_argument("--producers", type=int, default=30, help="of each process (default: 30)")
    parser.add_argument("--partitions", type=int, default=200, help="of the topic (default: 200)")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long CPU time is measured (default: 20)")
    parser.add_argument("--mock", action="store_true", help="librdkafka's mock cluster instead of a Kafka node")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    return parser.parse_args()


def measured(bootstrap: str, producers: int, seconds: float) -> list[Row]:
    """Every process is made and at rest before the first is measured."""
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        pipes = []
        for side, application in ((STOCK, "polls"), (WRITING, "polls"), (SAFE, "polls"), (SAFE, "away")):
            show(f"{side}, application {application}")
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_idle, args=(theirs, bootstrap, side, application, producers, seconds), daemon=True
            )
            process.start()
            theirs.close()
            stack.callback(process.join)
            stack.callback(process.kill)
            _answer(ours)  # one after another: a broker that 30 others keep busy is taken for a far one
            pipes.append(ours)
        show("at rest")
        for pipe in pipes:
            pipe.send("go")
        rows: list[Row] = [_answer(pipe) for pipe in pipes]
    show("")
    return rows


def _answer(pipe: Connection) -> Any:
    if not pipe.poll(ANSWER_TIMEOUT):
        raise TimeoutError(f"no answer within {ANSWER_TIMEOUT:.0f} s")
    return pipe.recv()


def judged(rows: Sequence[Row]) -> list[Bar]:
    """The bars."""
    return [
        Bar(f"{row.side}, application {row.application}: share of a core", row.cpu, MOST, at_least=False)
        for row in rows
        if row.side == SAFE
    ]


def described(rows: Sequence[Row]) -> str:
    heads = ("producers", "application", "% of a core", *PARTS, "threads")
    cells = [
        (
            row.side,
            row.application,
            f"{row.cpu:.2%}",
            *(f"{row.parts[part]:.2%}" if part in row.parts else "" for part in PARTS),
            str(row.threads),
        )
        for row in rows
    ]
    return table(heads, cells)


MAKE: dict[str, Callable[[dict[str, Any]], Any]] = {
    STOCK: Producer,
    WRITING: lambda config: Producer({**config, "statistics.interval.ms": STATISTICS_MS, "stats_cb": bool}),
    SAFE: SafeProducer,
}


def _idle(pipe: Connection, bootstrap: str, side: str, application: str, count: int, seconds: float) -> None:
    """In a child: make the producers, let them come to rest, watch them."""
    config = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
    producers = []
    for _ in range(count):
        producers.append(producer := MAKE[side](config))
        producer.produce("idle", b"x")
        if producer.flush(FLUSH_TIMEOUT):
            raise RuntimeError("a record was not delivered: the measurement is void")
    polled = producers if application == "polls" else []
    _rest(polled, SETTLE)
    pipe.send("ready")
    while not pipe.poll(0):
        _rest(polled, EVERY)
    before, used, started = _threads(), time.process_time(), time.monotonic()
    _rest(polled, seconds)
    took, used, after = time.monotonic() - started, time.process_time() - used, _threads()
    parts = dict.fromkeys(PARTS if after else (), 0.0)
    for number, (part, seconds_then) in after.items():
        parts[part] += (seconds_then - before.get(number, (part, 0.0))[1]) / took
    pipe.send(Row(side, application, used / took, parts, len(after)))


def _rest(producers: Sequence[Any], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for producer in producers:
            producer.poll(0)
        time.sleep(EVERY)


def _threads() -> dict[str, tuple[str, float]]:
    """The kind of each thread of this process, and how many seconds it has used, by its number."""
    found = {}
    for task in _TASKS.iterdir() if _TASKS.is_dir() else ():
        with contextlib.suppress(OSError):
            name, used = (task / "comm").read_text(), (task / "schedstat").read_text()
            found[task.name] = (_kind(int(task.name), name), int(used.split()[0]) / 1e9)
    return found


def _kind(number: int, name: str) -> str:
    if not name.startswith("rdk:"):
        return PARTS[0] if number in (os.getpid(), threading.main_thread().native_id) else PARTS[1]
    return PARTS[2] if name.startswith("rdk:main") else PARTS[3]


if __name__ == "__main__":
    main()
