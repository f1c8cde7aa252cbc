"""Memory of a buffered record, SafeProducer against the confluent_kafka producer, while the broker cannot be reached.

Every run is a process of its own that keeps no payload itself; the two sides alternate.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import socket
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any

import psutil
from confluent_kafka.cimpl import Producer

from benchmarks.interleaved import Spread, show
from benchmarks.table import Bar, conclude, ratio, table
from safeproducer import SafeProducer

LIMIT = 1.5
VALUE_SIZES = (100, 1_000)
WARM_UP = 2_000
RUN_TIMEOUT = 300.0
PRODUCERS: dict[str, Callable[[dict[str, Any]], Any]] = {"stock": Producer, "safe": SafeProducer}
SHARED, OWN = "one callback for all", "a lambda per record"


@dataclass(frozen=True)
class Row:
    value_size: int
    callbacks: str
    stock_bytes: float
    safe_bytes: float
    ratio: Spread


def main() -> None:
    options = arguments()
    records, runs = (50_000, 3) if options.quick else (200_000, 3)
    rows = [
        compare(size, callbacks, options.records or records, options.runs or runs)
        for size in VALUE_SIZES
        for callbacks in (SHARED, OWN)
    ]
    show("")
    bars = [
        Bar(
            f"{row.value_size} B, {row.callbacks}: memory of a buffered record", row.ratio.median, LIMIT, at_least=False
        )
        for row in rows
        if row.callbacks == SHARED
    ]
    cells = [
        (f"{row.value_size} B", row.callbacks, f"{row.stock_bytes:,.0f}", f"{row.safe_bytes:,.0f}", ratio(row.ratio))
        for row in rows
    ]
    text = table(("value", "callbacks", "stock, bytes", "safe, bytes", "SafeProducer / stock"), cells)
    conclude({"rows": list(map(asdict, rows))}, text, bars, options.json, options.check)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="50 000 records instead of 200 000")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--records", type=int, help="records to buffer")
    parser.add_argument("--runs", type=int, help="processes of each side (default: 3)")
    return parser.parse_args()


def compare(value_size: int, callbacks: str, records: int, runs: int) -> Row:
    used: dict[str, list[float]] = {side: [] for side in PRODUCERS}
    for number in range(1, runs + 1):
        show(f"{value_size} B, {callbacks}: round {number} of {runs}")
        for side in random.Random(number).sample(sorted(PRODUCERS), len(PRODUCERS)):
            used[side].append(in_fresh_process(side, value_size, callbacks, records))
    ratios = [safe / stock for safe, stock in zip(used["safe"], used["stock"], strict=True)]
    medians = {side: statistics.median(figures) for side, figures in used.items()}
    return Row(value_size, callbacks, medians["stock"], medians["safe"], Spread.of(ratios))


def in_fresh_process(side: str, value_size: int, callbacks: str, records: int) -> float:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_fill, args=(theirs, side, value_size, callbacks, records), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(RUN_TIMEOUT):
            raise TimeoutError(f"buffering {records} records took longer than {RUN_TIMEOUT:.0f} s")
        used: float = ours.recv()
        return used
    finally:
        process.kill()
        process.join()


def _fill(pipe: Connection, side: str, value_size: int, callbacks: str, records: int) -> None:
    """In a child: bytes of resident memory that each of `records` buffered records takes."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: every connection is refused
        config = {
            "bootstrap.servers": f"127.0.0.1:{closed.getsockname()[1]}",
            "enable.idempotence": True,
            "queue.buffering.max.messages": 2 * (records + WARM_UP),
            "queue.buffering.max.kbytes": 2_000_000,
            "message.timeout.ms": 3_600_000,
            "log_level": 0,
            "error_cb": lambda error: None,
        }
        producer = PRODUCERS[side](config)
        make = random.Random(value_size).randbytes
        buffer(producer, make, value_size, callbacks, range(WARM_UP))
        before = psutil.Process().memory_info().rss
        buffer(producer, make, value_size, callbacks, range(WARM_UP, WARM_UP + records))
        after = psutil.Process().memory_info().rss
        if len(producer) < WARM_UP + records:
            raise RuntimeError(f"{len(producer)} of {WARM_UP + records} records are buffered: the measurement is void")
        pipe.send((after - before) / records)
        os._exit(0)  # nothing of this is to be delivered, and waiting for it would take an hour


def buffer(producer: Any, make: Callable[[int], bytes], value_size: int, callbacks: str, numbers: range) -> None:
    """Produce and release every payload, so that one that the producer keeps alive is counted."""
    if callbacks == SHARED:
        for number in numbers:
            producer.produce("buffered", value=make(value_size), key=b"key-%07d" % number, on_delivery=ignore)
        return
    for number in numbers:
        own = lambda error, message, number=number: None  # noqa: E731
        producer.produce("buffered", value=make(value_size), key=b"key-%07d" % number, on_delivery=own)


def ignore(error: Any, message: Any) -> None:
    """A delivery callback that keeps nothing."""


if __name__ == "__main__":
    main()
