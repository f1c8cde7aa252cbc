"""The cases of the report: which benchmark each runs, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.report import figures
from benchmarks.report.figures import Figure


@dataclass(frozen=True)
class Case:
    """A benchmark with its arguments; `quick` are those of `scripts/report --quick`."""

    name: str
    title: str
    benchmark: str
    full: str
    quick: str
    read: Callable[[dict[str, Any]], Iterator[Figure]]

    def arguments(self, quick: bool) -> list[str]:
        """As the benchmark takes them."""
        return ["--json", *(self.quick if quick else self.full).split()]

    def command(self, quick: bool) -> str:
        """As a person types it."""
        return " ".join(["scripts/bench", self.benchmark, *(self.quick if quick else self.full).split()])


CASES = (
    Case(
        "near",
        "Near the broker: speed and CPU of each form of the call",
        "throughput",
        "",
        "--quick --rounds 27 --partitions 1 --values 100",
        figures.near,
    ),
    Case(
        "far",
        "Far from the broker: records a second with several lanes",
        "lanes",
        "",
        "--rtt 100 --rounds 3 --seconds 1 --only saturated",
        figures.far,
    ),
    Case(
        "first",
        "The first acknowledgement of a new producer",
        "first_acknowledgement",
        "--rtt 0 5 20 100",
        "--rounds 10",
        figures.first,
    ),
    Case(
        "peers",
        "Other clients, with their defaults and at their best",
        "peers",
        "--rtt 0 5 20 100",
        "--rtt 0 --rounds 7 --records 50000",
        figures.peers,
    ),
    Case("quota", "A byte quota of the broker", "quota", "", "--rounds 1 --seconds 5", figures.quota),
    Case("memory", "Memory of a record that waits", "memory", "", "--quick --runs 7", figures.memory),
    Case("timeouts", "Answers that get lost while deadlines pass", "timeouts", "", "--seeds 25", figures.timeouts),
    Case("crash-loop", "A loop of processes that crash", "guard", "", "--quick", figures.crash_loop),
    Case(
        "scale",
        "Many partitions",
        "scale",
        "--partitions 1 100 1000 5000",
        "--quick --partitions 1000 --topics 1000 --rtt 0 --mode auto --phases first --rounds 7 --settle 0.2 --idle 0.2",
        figures.scale,
    ),
    Case("aio", "asyncio", "aio", "", "--quick", figures.aio),
    Case(
        "spark",
        "PySpark",
        "spark",
        "",
        "--quick --micro-batches --rounds 5 --only no-op SafeProducerSink safeproducer",
        figures.spark,
    ),
)
