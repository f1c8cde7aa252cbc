"""Many topics and many partitions: wall time, CPU, Metadata requests, memory, beside confluent_kafka.

Each client lives in a process of its own, and so does FakeCluster. In each round all clients run every case, one after
the other and in random order, on topics that are as new as the client. See README.md.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from benchmarks.client import SAFE, STOCK
from benchmarks.interleaved import Bystanders, show
from benchmarks.scale_clients import LOOKS, ON_KAFKA, PHASES, REST, Case, Phase, Plan, Run, clusters, run
from benchmarks.table import Bar, conclude, disturbed, table
from safeproducer.settings.delivery import STATISTICS_MS

TOPICS, PARTITIONS, RTT = (100, 300, 1_000, 3_000, 10_000), (200, 1_000, 5_000), (0, 30)
MODES, ORDERINGS = ("auto", "held"), ("partition", "key")
UNREAD = "stock, statistics unread"
PEERS = (STOCK, UNREAD)
MANY, MANY_TOPICS = 5_000, 10_000
"""Partitions from which poll() and LOOKS are judged, and topics from which memory is."""
MOST_MS = dict(zip(LOOKS, (100.0, 50.0, 20.0), strict=True))
MOST_WALL, WALL_SLACK = {"auto": 1.2, "held": 2.0, "passthrough": 1.2}, 0.1
MOST_CPU, CPU_SLACK = 3.0, 0.02
MOST_GROWTH, MOST_POLL_MS, MOST_KB, MOST_IDLE = 5.0, 20.0, 6.0, 0.01


def main() -> None:
    options = arguments()
    sizes = [*((number, 1) for number in options.topics), *((1, number) for number in options.partitions)]
    cases = [Case(topics, partitions, rtt) for rtt in options.rtt for topics, partitions in sizes]
    plan = Plan(options.phases, options.limit, options.settle, options.idle, options.apart / 1e6)
    runs: list[Run] = []
    bystanders, sides = Bystanders(), ways(options)
    with clusters(kafka=options.kafka, far=any(options.rtt)) as stage:
        for number in range(1, options.rounds + 1):
            for case in cases:
                show(f"{case}: round {number} of {options.rounds}")
                for way in random.Random(number).sample(sorted(sides), len(sides)):
                    runs.append(run(stage, case, way, *sides[way], plan))
    show("")
    by_case = [paired([one for one in runs if one.case == case]) for case in cases]
    grown = [(way, str(small), str(large), f"{grown:.2f}") for way, small, large, grown in growth(runs)]
    text = "\n\n".join([disturbed(bystanders.share()), *map(described, by_case)])
    if grown:
        text += "\n\n" + table(("client", "from", "to", "growth of CPU, told for 4 times as many"), grown)
    bars = judged_at_rest(by_case) if options.memory else [*judged(by_case), *judged_growth(runs)]
    conclude({"runs": list(map(asdict, runs))}, text, bars, options.json, options.check)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--topics", type=int, nargs="*", help="numbers of topics of one partition")
    parser.add_argument("--partitions", type=int, nargs="*", help="numbers of partitions of one topic")
    parser.add_argument("--rtt", type=int, nargs="+", default=RTT, help="milliseconds until an answer (default: 0 30)")
    parser.add_argument("--mode", nargs="+", choices=(*MODES, "passthrough"), default=MODES)
    parser.add_argument("--ordering", nargs="+", choices=ORDERINGS, help="default: partition, key")
    parser.add_argument("--phases", nargs="+", choices=PHASES, help="default: all; on Kafka the first three")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of a phase; what is left then is missing")
    parser.add_argument("--settle", type=float, default=REST, help="seconds of rest behind the phases (default: 3)")
    parser.add_argument("--idle", type=float, default=5.0, help="seconds in which idle CPU is measured (default: 5)")
    parser.add_argument("--apart", type=float, default=0.0, help="microseconds that applications compute for a record")
    parser.add_argument("--memory", action="store_true", help="only the first phase, then a minute of rest")
    parser.add_argument("--kafka", action="store_true", help="one Apache Kafka node instead of FakeCluster")
    parser.add_argument("--quick", action="store_true", help="fewer cases and phases, ordering=partition alone")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    options = parser.parse_args()
    if options.topics is None and options.partitions is None:
        options.topics, options.partitions = TOPICS, PARTITIONS
        if options.memory:
            options.topics, options.partitions = (MANY_TOPICS,), (MANY,)
        elif options.quick:
            options.topics, options.partitions = (100, 300, 1_000), (1_000,)
    options.topics, options.partitions = options.topics or (), options.partitions or ()
    few = options.quick or options.memory
    options.ordering = options.ordering or (ORDERINGS[:1] if few else ORDERINGS)
    options.phases = options.phases or (ON_KAFKA if options.kafka or options.quick else PHASES)
    if options.kafka and not set(options.phases) <= set(ON_KAFKA):
        parser.error(f"--kafka: only the phases {', '.join(ON_KAFKA)} are there")
    if options.memory:
        options.phases, options.settle, options.idle = ("first",), 60.0, 20.0
    return options


def ways(options: argparse.Namespace) -> dict[str, tuple[str, dict[str, Any]]]:
    """The clients by their names: the class of the producer, and its settings."""
    found: dict[str, tuple[str, dict[str, Any]]] = {STOCK: (STOCK, {})}
    if options.memory:
        found[UNREAD] = (STOCK, {"statistics.interval.ms": STATISTICS_MS, "stats_cb": bool})
    for mode in options.mode:
        for ordering in options.ordering:
            found[f"{mode}, {ordering}"] = (SAFE, {"safeproducer.mode": mode, "safeproducer.ordering": ordering})
    return found


@dataclass(frozen=True)
class Pair:
    """What one client did in a case, and confluent_kafka in the same rounds."""

    way: str
    ours: list[Run]
    theirs: list[Run]

    @property
    def phases(self) -> list[str]:
        """Those that all of them have begun."""
        return [name for name in PHASES if all(name in one.phases for one in (*self.ours, *self.theirs))]

    def middle(self, phase: str, figure: str) -> float | None:
        found = [getattr(one.phases[phase], figure) for one in self.ours]
        return None if None in found else median(found)

    def ratio(self, phase: str, figure: str, slack: float = 0.0) -> float:
        """The median over the rounds of the ratio within one; `slack` is taken off ours."""
        return median(max(one - slack, 0) / max(other, 1e-3) for one, other in self._both(phase, figure))

    def worst(self, figure: str, slack: float) -> tuple[float, str]:
        """The highest ratio and its phase."""
        return max((self.ratio(phase, figure, slack), phase) for phase in self.phases)

    def most_more(self, figure: str) -> tuple[float, str]:
        """By how much ours is above theirs at most, and the phase of it."""
        return max((median(one - other for one, other in self._both(phase, figure)), phase) for phase in self.phases)

    def _both(self, phase: str, figure: str) -> list[tuple[float, float]]:
        pairs = zip(self.ours, self.theirs, strict=True)
        return [tuple(getattr(one.phases[phase], figure) or 0 for one in both) for both in pairs]  # type: ignore[misc]


def paired(runs: Sequence[Run]) -> list[Pair]:
    """Of one case: confluent_kafka beside itself first."""
    by_way: dict[str, list[Run]] = {STOCK: []}
    for one in runs:
        by_way.setdefault(one.way, []).append(one)
    return [Pair(way, ours, by_way[STOCK]) for way, ours in by_way.items()]


def described(pairs: Sequence[Pair]) -> str:
    """All figures of one case."""
    cells, rest = [], []
    for pair in pairs:
        for phase in pair.phases:
            wall, cpu, missing, poll, asked = (pair.middle(phase, name) for name in Phase.__dataclass_fields__)
            beside = [f"{pair.ratio(phase, name):.2f}" if pair.way != STOCK else "" for name in ("wall", "cpu")]
            row = (pair.way, phase, f"{wall:.2f}", beside[0], f"{cpu:.3f}", beside[1])
            told = ("" if asked is None else f"{asked:.0f}", f"{missing:.0f}" if missing else "", f"{poll:.0f}")
            cells.append((*row, *told))
        looks = [f"{median(one.looks[name] for one in pair.ours):.0f}" if pair.ours[0].looks else "" for name in LOOKS]
        kb, idle, close = (median(getattr(one, name) for one in pair.ours) for name in ("kb", "idle", "close"))
        rest.append((pair.way, f"{kb:.1f}", f"{idle:.2%}", *looks, f"{close:.3f}"))
    heads = ("client", "phase", "s", "/ stock", "CPU s", "/ stock", "Metadata", "missing", "poll(0) ms")
    below = table(("client", "kB a partition", "idle", *(f"{name}() ms" for name in LOOKS), "close() s"), rest)
    return f"{pairs[0].ours[0].case}\n{table(heads, cells)}\n\n{below}"


def growth(runs: Sequence[Run]) -> list[tuple[str, Case, Case, float]]:
    """By client: how CPU grows from a case to the next larger one, told for four times as many partitions."""
    kinds: dict[tuple[int, bool, str], dict[Case, list[Run]]] = {}
    for one in runs:
        kinds.setdefault((one.case.rtt, one.case.topics > 1, one.way), {}).setdefault(one.case, []).append(one)
    found = []
    for (_, _, way), cases in kinds.items():
        for small, large in pairwise(sorted(cases, key=lambda case: case.all)):
            both = (*cases[small], *cases[large])
            common = [name for name in PHASES if all(name in one.phases for one in both)]
            few, many = (
                median(sum(one.phases[name].cpu for name in common) for one in cases[c]) for c in (small, large)
            )
            found.append((way, small, large, 4 ** (math.log(many / few) / math.log(large.all / small.all))))
    return found


def judged_growth(runs: Sequence[Run]) -> list[Bar]:
    return [
        Bar(f"{way}, {small} to {large}: growth of CPU", grown, MOST_GROWTH, at_least=False)
        for way, small, large, grown in growth(runs)
        if way not in PEERS
    ]


def judged(by_case: Sequence[Sequence[Pair]]) -> list[Bar]:
    """The bars, of the worst phase each."""
    bars: list[Bar] = []
    for pair in (pair for pairs in by_case for pair in pairs if pair.way not in PEERS):
        case, mode = pair.ours[0].case, pair.way.partition(",")[0]
        limits = [(f"time less {WALL_SLACK} s", pair.worst("wall", WALL_SLACK), MOST_WALL[mode])]
        if mode == "auto" and not case.rtt:
            limits.append((f"CPU less {CPU_SLACK} s", pair.worst("cpu", CPU_SLACK), MOST_CPU))
        limits.append(("more missing", pair.most_more("missing"), 0.0))
        if all(pair.middle(phase, "metadata") is not None for phase in pair.phases):
            limits.append(("more Metadata requests", pair.most_more("metadata"), case.topics / 50 + 10))
        left_out = len(pair.theirs[0].phases) - len(pair.phases)
        limits.append(("phases left out", (left_out, "behind those that did not end"), 0.0))
        if case.all >= MANY:
            limits.append(("longer poll(0), ms", pair.most_more("poll_ms"), MOST_POLL_MS))
            looks = [(look, median(one.looks[look] for one in pair.ours)) for look in LOOKS]
            limits += [(f"{look}()", (took, "ms"), MOST_MS[look]) for look, took in looks]
        bars += [
            Bar(f"{case}, {pair.way}: {what}, {where}", found, limit, at_least=False)
            for what, (found, where), limit in limits
        ]
    return bars


def judged_at_rest(by_case: Sequence[Sequence[Pair]]) -> list[Bar]:
    """The bars of --memory."""
    bars = []
    for pairs in by_case:
        unread = median(one.idle for pair in pairs for one in pair.ours if pair.way == UNREAD)
        for pair in (pair for pair in pairs if pair.way not in PEERS):
            case = pair.ours[0].case
            if case.topics >= MANY_TOPICS:
                more = median(one.kb - other.kb for one, other in zip(pair.ours, pair.theirs, strict=True))
                bars.append(Bar(f"{case}, {pair.way}: more kB a topic", more, MOST_KB, at_least=False))
            idle = median(one.idle for one in pair.ours) - unread
            bars.append(Bar(f"{case}, {pair.way}: more idle CPU", idle, MOST_IDLE, at_least=False))
    return bars


if __name__ == "__main__":
    main()
