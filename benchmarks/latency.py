"""Latency, throughput and CPU of SafeProducer against the confluent_kafka producer at chosen distances from the broker.

Each producer is alone in a process; a wire tap makes the distance. See README.md for how to read the figures.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

from benchmarks.brokers import written
from benchmarks.client import SAFE, STOCK, Client, Done, Work
from benchmarks.interleaved import Bystanders, Spread, show
from benchmarks.link import Link, link
from benchmarks.load import VoidError
from benchmarks.table import Bar, conclude, disturbed, ratio, table

RTTS = (0.0, 1.0, 5.0, 20.0, 100.0)
RATES = (1_000, 5_000, 10_000)
VALUE_SIZE = 100
SITTINGS = 2
"""Times the producers are made anew: a connection may be quicker than another for as long as it lasts."""
WARM_UP = 1.0
BUSY_RATE = 1_000
LANE = "saturated, batches of 100"
LANE_FROM = 100.0
"""Milliseconds of round trip from which on small batches show what waiting for one request at a time costs."""
LANE_CONFIG = {"batch.num.messages": 100, "queue.buffering.max.messages": 2_000}
FIGURES: dict[str, Callable[[Done], float]] = {
    "p50": lambda done: done.p50,
    "p95": lambda done: done.p95,
    "p99": lambda done: done.p99,
    "rate": lambda done: done.rate,
    "cpu": lambda done: done.cpu,
}


@dataclass(frozen=True)
class Case:
    title: str
    work: Work
    config: dict[str, Any]


@dataclass(frozen=True)
class Result:
    """Spreads by figure: of each side, and of the ratio within a round. Times in ms, CPU as a share of one core."""

    title: str
    rtt: float
    measured_rtt: float
    disturbance: float
    stock: dict[str, Spread]
    safe: dict[str, Spread]
    ratio: dict[str, Spread]
    requests: dict[str, int]
    """Produce requests that reached the tap, retries included."""
    account: str
    """SafeProducer's own, at the end of the last block."""


def main() -> None:
    options = arguments()
    rounds = math.ceil((options.rounds or (2 if options.quick else 6)) / SITTINGS) * SITTINGS
    results: list[Result] = []
    with link() as way:
        for rtt in options.rtt:
            wanted = [case for case in cases(rtt, options) if (options.only or "") in case.title]
            done = [run_case(way, case, rtt, rounds, options.safe_config) for case in wanted]
            results += done
            if done and not options.json:
                print(described(done), flush=True)
    if not results:
        sys.exit(f"--only {options.only}: no such case")
    bars = [bar for result in results for bar in judged(result)]
    facts = {"rounds": rounds, "cases": list(map(asdict, results))}
    text = f"Median [quartiles] of {rounds} rounds of {options.seconds:g} s."
    conclude(facts, text, bars, options.json, options.check)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--rtt", type=float, nargs="+", default=list(RTTS), metavar="MS", help="round trips to make")
    parser.add_argument("--rate", type=int, nargs="*", default=list(RATES), metavar="N", help="records/s, fixed")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a block (default: 2)")
    parser.add_argument("--rounds", type=int, help="rounds to measure (default: 6)")
    parser.add_argument("--quick", action="store_true", help="2 rounds: no gate")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--only", metavar="TEXT", help="only cases whose title contains TEXT")
    parser.add_argument("--mode", help="safeproducer.mode, for a look at one of its ways alone")
    options = parser.parse_args()
    options.safe_config = {"safeproducer.mode": options.mode} if options.mode else {}
    return options


def cases(rtt: float, options: argparse.Namespace) -> list[Case]:
    def case(title: str, config: dict[str, Any] | None = None, **work: Any) -> Case:
        return Case(title, Work("", VALUE_SIZE, options.seconds, **work), config or {})

    found = [case(f"{rate:,}/s", rate=rate) for rate in options.rate]
    found.append(case(f"{BUSY_RATE:,}/s, busy main thread", rate=BUSY_RATE, busy=True))
    found.append(case("saturated"))
    if rtt >= LANE_FROM:
        found.append(case(LANE, LANE_CONFIG))
    return found


_numbers = count(1)


def run_case(way: Link, case: Case, rtt: float, rounds: int, safe_config: dict[str, Any]) -> Result:
    label = f"RTT {rtt:g} ms, {case.title}"
    distance = rtt, way.set_rtt(rtt)
    topics = {side: f"latency-{side}-{next(_numbers)}" for side in (STOCK, SAFE)}
    base = {"bootstrap.servers": way.bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 3}
    base |= case.config
    configs = {STOCK: base, SAFE: {**base, **safe_config}}
    for topic in topics.values():
        way.create_topic(topic, 1)
    figures: list[dict[str, Done]] = []
    produced = dict.fromkeys(topics, 0)
    bystanders = Bystanders()
    for sitting in range(SITTINGS):
        clients = {side: Client(side, configs[side]) for side in topics}
        try:
            for number in range(-1, rounds // SITTINGS):
                if number >= 0:
                    show(f"{label}: round {len(figures) + 1} of {rounds}")
                done: dict[str, Done] = {}
                for side in random.Random(f"{label} {sitting} {number}").sample(sorted(topics), len(topics)):
                    seconds = case.work.seconds if number >= 0 else min(WARM_UP, case.work.seconds)
                    work = Work(topics[side], VALUE_SIZE, seconds, case.work.rate, case.work.busy)
                    done[side] = clients[side].run(work)
                    produced[side] += done[side].records
                if number >= 0:
                    figures.append(done)
        finally:
            for client in clients.values():
                client.close()
    show("")
    requests = check(way, topics, produced)
    for topic in topics.values():
        way.delete_topic(topic)
    return evaluated(case.title, distance, bystanders.share(), figures, requests)


def check(way: Link, topics: dict[str, str], produced: dict[str, int]) -> dict[str, int]:
    """Tap and log hold exactly what was produced; returns the requests of each side."""
    requests = {}
    for side, (number, records) in way.seen(topics).items():
        requests[side] = number
        found = written(way.direct_bootstrap, topics[side], 1)
        if not produced[side] == records == found:
            raise VoidError(f"{side}: {produced[side]} records produced, the tap saw {records}, the log holds {found}")
    return requests


def evaluated(
    title: str,
    distance: tuple[float, float],
    disturbance: float,
    figures: Sequence[dict[str, Done]],
    requests: dict[str, int],
) -> Result:
    sides = {
        side: {name: Spread.of([figure(done[side]) for done in figures]) for name, figure in FIGURES.items()}
        for side in (STOCK, SAFE)
    }
    ratios = {
        name: Spread.of([figure(done[SAFE]) / figure(done[STOCK]) for done in figures])
        for name, figure in FIGURES.items()
    }
    account = figures[-1][SAFE].account
    return Result(title, *distance, disturbance, sides[STOCK], sides[SAFE], ratios, requests, account)


def judged(result: Result) -> list[Bar]:
    """The bars; a busy application is only reported."""
    what = f"RTT {result.rtt:g} ms, {result.title}"
    median = {name: spread.median for name, spread in result.ratio.items()}
    if result.title == LANE:
        return [
            Bar(f"{what}: throughput", median["rate"], 0.97, at_least=True),
            Bar(f"{what}: share of a core", result.safe["cpu"].median, 0.03, at_least=False),
        ]
    if result.title == "saturated":
        return [Bar(f"{what}: throughput", median["rate"], 0.9, at_least=True)]
    if "busy" in result.title or not result.rtt:
        return []
    limit = 1.05 if result.rtt >= LANE_FROM else 1.1
    bars = [Bar(f"{what}: {name}", median[name], limit, at_least=False) for name in ("p50", "p95")]
    return [*bars, Bar(f"{what}: CPU", median["cpu"], 1.05, at_least=False)]


def described(results: Sequence[Result]) -> str:
    heads = ("", "p50 ms", "p95 ms", "p99 ms", "records/s", "% of a core", "p50", "p95", "records/s", "CPU", "requests")
    rows = []
    for result in results:
        stock, safe, compared = result.stock, result.safe, result.ratio
        both = [(stock[name].median, safe[name].median) for name in FIGURES]
        times = [f"{a:.1f} / {b:.1f}" for a, b in both[:3]]
        speed, cpu = f"{both[3][0]:,.0f} / {both[3][1]:,.0f}", f"{both[4][0]:.1%} / {both[4][1]:.1%}"
        ratios = [ratio(compared[name]) for name in ("p50", "p95", "rate", "cpu")]
        sent = f"{result.requests[STOCK]} / {result.requests[SAFE]}"
        rows.append((result.title, *times, speed, cpu, *ratios, sent))
    rtt = results[0].rtt
    measured = [result.measured_rtt for result in results]
    between = f"{min(measured):.2f} to {max(measured):.2f} ms"
    busiest = max(result.disturbance for result in results)
    return (
        f"Round trip {rtt:g} ms wanted, {between} measured; 1 partition, {VALUE_SIZE} B; "
        f"{disturbed(busiest)}\nstock / SafeProducer, then the ratio SafeProducer / stock\n{table(heads, rows)}\n"
    )


if __name__ == "__main__":
    main()
