"""Throughput of a producer whose native producer was replaced, beside the time before: FakeCluster, no distance.

Two producers in turn: one is renewed between its windows, the other is not and shows what the machine did meanwhile.
See README.md.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.load import POLL_EVERY, Load, VoidError
from benchmarks.table import Bar, conclude, table
from safeproducer import SafeProducer
from safeproducer.testing import FakeCluster
from tests.inside import engine_of, fatal_planter

MODES = ("auto", "held")
WINDOW, PAIRS = 0.2, 14
SETTLES = 2.0
"""Seconds from the moment when the old lane is empty to the window."""
PATIENCE = 20.0
KEPT = "20000000"
LIMIT = 0.95
LOAD = Load.make("bench-renewal", 1, 100, 20_000)


@dataclass(frozen=True)
class Round:
    """Records a second before, and the speed of the one that is renewed in that of the other, before and after."""

    mode: str
    per_second: float
    before: float
    after: float

    @property
    def ratio(self) -> float:
        return self.after / self.before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="renewals of each mode")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    options = parser.parse_args()
    rounds = [played(mode) for _ in range(options.rounds) for mode in MODES]
    by_mode = {mode: [each for each in rounds if each.mode == mode] for mode in MODES}
    ratios = {mode: statistics.median([each.ratio for each in found]) for mode, found in by_mode.items()}
    columns = ["", "records/s before", "throughput after / before", "of all rounds"]
    rows = [
        [
            mode,
            f"{statistics.median([each.per_second for each in found]):,.0f}",
            f"{ratios[mode]:.2f}",
            ", ".join(f"{each.ratio:.2f}" for each in found),
        ]
        for mode, found in by_mode.items()
    ]
    bars = [Bar(f"{mode}: throughput after / before", ratio, LIMIT, at_least=True) for mode, ratio in ratios.items()]
    conclude({"rounds": list(map(asdict, rounds))}, table(columns, rows), bars, options.json, options.check)


def played(mode: str) -> Round:
    """One renewal."""
    spawn = multiprocessing.get_context("spawn")
    pipe, end = spawn.Pipe()
    brokers = spawn.Process(target=serve, args=(end,), daemon=True)
    brokers.start()
    config = {
        "bootstrap.servers": pipe.recv(),
        "log_level": 0,
        "safeproducer.mode": mode,
        "safeproducer.max.block.ms": 5000,
    }
    renewed, other = (SafeProducer({**config, "safeproducer.fatal": "renew"}) for _ in range(2))
    for producer in (renewed, other):
        per_second(producer, SETTLES)
    speed, before = compared(renewed, other)
    fatal_planter()(renewed if mode == "auto" else next(iter(engine_of(renewed).dispatcher.lanes)))
    began = time.monotonic()
    while not renewed.snapshot().renewals:
        if time.monotonic() > began + PATIENCE:
            raise VoidError(renewed.explain())
        per_second(renewed, 0.01)
    per_second(renewed, SETTLES)
    _, after = compared(renewed, other)
    for producer in (renewed, other):
        producer.close()
    pipe.send(None)
    brokers.join()
    return Round(mode, speed, before, after)


def compared(renewed: Any, other: Any) -> tuple[float, float]:
    """Median of windows side by side: records a second of `renewed`, and in those of `other`."""
    found = []
    for number in range(PAIRS):
        speeds = {each: per_second(each) for each in ((renewed, other) if number % 2 else (other, renewed))}
        found.append((speeds[renewed], speeds[renewed] / speeds[other]))
    return statistics.median(each for each, _ in found), statistics.median(each for _, each in found)


def serve(pipe: Connection) -> None:
    """FakeCluster, in a process of its own, until told to end."""
    with FakeCluster(1) as cluster:
        cluster.create_topic(LOAD.topic, 1, config={"retention.bytes": KEPT})
        pipe.send(cluster.bootstrap)
        while not pipe.poll(1):
            cluster.apply_retention()


def per_second(producer: Any, seconds: float = WINDOW) -> float:
    """Records that are delivered in so many seconds, and in the time that the last ones take."""
    before, began, number = producer.snapshot().delivered, time.monotonic(), 0
    while time.monotonic() < began + seconds:
        for key, value in LOAD.chunks[number % len(LOAD.chunks)][:POLL_EVERY]:
            producer.produce(LOAD.topic, value, key)
        producer.poll(0)
        number += 1
    producer.flush(PATIENCE)
    delivered: int = producer.snapshot().delivered - before
    return delivered / (time.monotonic() - began)


if __name__ == "__main__":
    main()
