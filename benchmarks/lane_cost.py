"""Measures the costs of a lane while nothing is produced: threads, connections, resident memory, CPU.

Every row is a process of its own. Each lane has written to each partition once, so that it knows all of them.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any

import psutil
from confluent_kafka import Producer

from benchmarks.brokers import broker
from benchmarks.interleaved import show
from benchmarks.table import Bar, conclude, table
from safeproducer import SafeProducer
from tests.inside import engine_of

LANES = (1, 5, 20)
PARTITIONS = (1, 1000)
MOST_IDLE_CPU = 0.02
SETTLE = 8.0
"""Seconds until a producer is at rest: it reads less of its statistics when nothing happens for a while."""
RUN_TIMEOUT = 120.0
AWAY, POLLING = "away", "polls"
MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Row:
    """`lanes` 0 is the confluent_kafka producer. Figures are those that the producer added to its process."""

    lanes: int
    partitions: int
    application: str
    threads: int
    connections: int
    megabytes: float
    cpu: float
    """Share of one core."""


def main() -> None:
    options = arguments()
    rows: list[Row] = []
    with broker(mock=False) as cluster:
        for partitions in options.partitions:
            topic = f"lane-cost-{partitions}"
            cluster.create_topic(topic, partitions)
            for application in (AWAY, POLLING):
                for lanes in (0, *options.lanes):
                    show(f"{lanes} lanes, {partitions} partitions, application {application}")
                    rows.append(
                        in_fresh_process(cluster.bootstrap, topic, lanes, partitions, application, options.seconds)
                    )
    show("")
    conclude({"rows": list(map(asdict, rows))}, described(rows), judged(rows), options.json, options.check)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lane_cost", description=__doc__)
    parser.add_argument("--lanes", type=int, nargs="+", default=LANES, help="numbers of lanes (default: 1 5 20)")
    parser.add_argument("--partitions", type=int, nargs="+", default=PARTITIONS, help="default: 1 1000")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long CPU time is measured (default: 10)")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    return parser.parse_args()


def judged(rows: Sequence[Row]) -> list[Bar]:
    """The bars."""
    return [
        Bar(
            f"{row.lanes} lanes, {row.partitions:,} idle partitions, application {row.application}: share of a core",
            row.cpu,
            MOST_IDLE_CPU,
            at_least=False,
        )
        for row in rows
        if row.lanes
    ]


def described(rows: Sequence[Row]) -> str:
    heads = ("partitions", "application", "lanes", "threads", "connections", "MB", "% of a core", "MB per more lane")
    first: dict[tuple[int, str], Row] = {}
    cells = []
    for row in rows:
        base = first.setdefault((row.partitions, row.application), row) if row.lanes else row
        more = row.lanes - base.lanes
        cells.append(
            (
                f"{row.partitions:,}",
                row.application,
                str(row.lanes) if row.lanes else "stock",
                str(row.threads),
                str(row.connections),
                f"{row.megabytes:.1f}",
                f"{row.cpu:.2%}",
                f"{(row.megabytes - base.megabytes) / more:.2f}" if more else "",
            )
        )
    return table(heads, cells)


def in_fresh_process(bootstrap: str, topic: str, lanes: int, partitions: int, application: str, seconds: float) -> Row:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    arguments = (theirs, bootstrap, topic, lanes, partitions, application, seconds)
    process = context.Process(target=_idle, args=arguments, daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(RUN_TIMEOUT):
            raise TimeoutError(f"{lanes} lanes took longer than {RUN_TIMEOUT:.0f} s")
        row: Row = ours.recv()
        return row
    finally:
        ours.close()
        process.kill()
        process.join()


def _idle(
    pipe: Connection, bootstrap: str, topic: str, lanes: int, partitions: int, application: str, seconds: float
) -> None:
    """In a child: make the producer, let it come to rest, watch it."""
    config = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
    process = psutil.Process()
    gc.collect()
    threads, resident = process.num_threads(), process.memory_info().rss
    producer = _with_lanes(config, lanes, topic, partitions) if lanes else _stock(config, topic, partitions)
    rest: Callable[[float], Any] = producer.poll if application == POLLING else time.sleep
    _rest(rest, SETTLE)
    used = sum(process.cpu_times()[:2])
    started = time.monotonic()
    _rest(rest, seconds)
    used, took = sum(process.cpu_times()[:2]) - used, time.monotonic() - started
    pipe.send(
        Row(
            lanes,
            partitions,
            application,
            process.num_threads() - threads,
            sum(one.status == psutil.CONN_ESTABLISHED for one in process.net_connections("tcp")),
            (process.memory_info().rss - resident) / MEGABYTE,
            used / took,
        )
    )
    producer.close()


def _rest(wait: Callable[[float], Any], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        wait(0.1)


def _stock(config: dict[str, Any], topic: str, partitions: int) -> Any:
    producer = Producer(config)
    _write(producer, topic, partitions)
    return producer


def _with_lanes(config: dict[str, Any], lanes: int, topic: str, partitions: int) -> Any:
    own = {"safeproducer.mode": "held", "safeproducer.ordering": "key", "safeproducer.lanes": lanes}
    producer = SafeProducer({**config, **own})
    _write(producer, topic, partitions)
    made = engine_of(producer).dispatcher.lanes
    while len(made) < lanes or not all(lane.ready for lane in made):
        producer.poll(0.05)
    for lane in tuple(made)[1:]:  # the first has written to all of them
        _write(lane.client.native, topic, partitions)
    return producer


def _write(producer: Any, topic: str, partitions: int) -> None:
    """One record to each partition, so that it is known here from then on."""
    for partition in range(partitions):
        producer.produce(topic, b"x", partition=partition)
    if producer.flush(60):
        raise RuntimeError("not all records were delivered: the measurement is void")


if __name__ == "__main__":
    main()
