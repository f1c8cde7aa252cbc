"""How long the first record of a fresh producer takes, from the constructor to its delivery callback.

Each producer is a new one, and all live in this process; a wire tap makes the distance. At a round trip of 0 there is
none: the tap itself takes some 4 ms for the ten requests before the first acknowledgement. See README.md.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

from confluent_kafka.cimpl import Producer

from benchmarks.brokers import written
from benchmarks.interleaved import Bystanders, Spread, show
from benchmarks.link import Link, link
from benchmarks.load import VoidError
from benchmarks.table import Bar, conclude, disturbed, table
from safeproducer import SafeProducer

RTTS = (0.0, 100.0)
ROUNDS = 50
MOST_P95 = {0.0: 65.0, 100.0: 650.0}
PATIENCE = 30.0
UNLIMITED = {"safeproducer.producer.ids.per.hour": 1_000_000}
SIDES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "stock": Producer,
    "stock, not idempotent": lambda config: Producer({**config, "enable.idempotence": False}),
    "auto": lambda config: SafeProducer({**config, **UNLIMITED}),
    "held": lambda config: SafeProducer({**config, **UNLIMITED, "safeproducer.mode": "held"}),
}
_numbers = count(1)


@dataclass(frozen=True)
class First:
    """One producer's: milliseconds in the constructor, in produce(), from the constructor to the report, in close()."""

    made: float
    produced: float
    acknowledged: float
    closed: float


@dataclass(frozen=True)
class Figures:
    """Over all rounds: of the acknowledgement median, 95th percentile and worst; of the calls the median."""

    median: float
    p95: float
    worst: float
    made: float
    produced: float
    closed: float

    @classmethod
    def of(cls, firsts: Sequence[First]) -> Figures:
        took = sorted(first.acknowledged for first in firsts)
        calls = {name: statistics.median([getattr(first, name) for first in firsts]) for name in CALLS}
        p95 = statistics.quantiles(took, n=20, method="inclusive")[-1] if len(took) > 1 else took[0]
        return cls(statistics.median(took), p95, took[-1], **calls)


CALLS = "made", "produced", "closed"


@dataclass(frozen=True)
class Result:
    rtt: float
    measured_rtt: float
    disturbance: float
    sides: dict[str, Figures]
    ratios: dict[str, Spread]
    """The acknowledgement of `auto` in units of another's in the same round."""


def first(make: Callable[[dict[str, Any]], Any], config: dict[str, Any], topic: str) -> First:
    """Make a producer, have one record acknowledged, close it."""
    reports: list[float] = []

    def report(error: object, _: object) -> None:
        if error is not None:
            raise VoidError(f"a record failed: {error}")
        reports.append(time.perf_counter())

    began = time.perf_counter()
    producer = make(config)
    made = time.perf_counter()
    producer.produce(topic, b"x", on_delivery=report)
    produced = time.perf_counter()
    while not reports:
        producer.poll(0.1)
        if time.perf_counter() > began + PATIENCE:
            raise VoidError(f"no report within {PATIENCE:.0f} s")
    closing = time.perf_counter()
    producer.close()
    ends = made - began, produced - made, reports[0] - began, time.perf_counter() - closing
    return First(*(1e3 * seconds for seconds in ends))


def measure(way: Link, rtt: float, rounds: int) -> Result:
    measured = way.set_rtt(rtt)
    topic = f"first-{next(_numbers)}"
    way.create_topic(topic, 1)
    bootstrap = way.bootstrap if rtt else way.direct_bootstrap
    config = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 3}
    done: dict[str, list[First]] = {side: [] for side in SIDES}
    bystanders = Bystanders()
    for number in range(-1, rounds):
        show(f"RTT {rtt:g} ms: round {number + 1} of {rounds}")
        for side in random.Random(f"{rtt} {number}").sample(sorted(SIDES), len(SIDES)):
            found = first(SIDES[side], config, topic)
            if number >= 0:
                done[side].append(found)
    show("")
    expected, found_records = (rounds + 1) * len(SIDES), written(way.direct_bootstrap, topic, 1)
    if found_records != expected:
        raise VoidError(f"{expected} records produced, the log holds {found_records}")
    way.delete_topic(topic)
    sides = {side: Figures.of(firsts) for side, firsts in done.items()}
    ratios = {
        side: Spread.of(
            [ours.acknowledged / theirs.acknowledged for ours, theirs in zip(done["auto"], done[side], strict=True)]
        )
        for side in ("stock", "stock, not idempotent")
    }
    return Result(rtt, measured, bystanders.share(), sides, ratios)


def judged(result: Result) -> list[Bar]:
    what = f"RTT {result.rtt:g} ms, auto"
    auto, stock = result.sides["auto"], result.sides["stock"]
    bars = [Bar(f"{what}: median, of stock's", auto.median / stock.median, 0.55, at_least=False)]
    if result.rtt in MOST_P95:
        bars.append(Bar(f"{what}: p95 in ms", auto.p95, MOST_P95[result.rtt], at_least=False))
    return bars


def described(result: Result) -> str:
    heads = ("", "first ack ms", "p95", "worst", "of stock's", "constructor ms", "produce() ms", "close() ms")
    stock = result.sides["stock"]
    rows = [
        (
            side,
            *(f"{value:.0f}" for value in (figures.median, figures.p95, figures.worst)),
            f"{figures.median / stock.median:.2f}",
            *(f"{value:.2f}" for value in (figures.made, figures.produced, figures.closed)),
        )
        for side, figures in result.sides.items()
    ]
    what = f"Round trip {result.rtt:g} ms wanted, {result.measured_rtt:.2f} ms measured"
    return f"{what}; {disturbed(result.disturbance)}\n{table(heads, rows)}\n"


def main() -> None:
    options = arguments()
    results = []
    with link() as way:
        for rtt in options.rtt:
            results.append(measure(way, rtt, options.rounds))
            if not options.json:
                print(described(results[-1]), flush=True)
    bars = [bar for result in results for bar in judged(result)]
    facts = {"rounds": options.rounds, "cases": list(map(asdict, results))}
    conclude(facts, f"{options.rounds} fresh producers of each kind.", bars, options.json, options.check)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_acknowledgement", description=__doc__)
    parser.add_argument("--rtt", type=float, nargs="+", default=list(RTTS), metavar="MS", help="round trips to make")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"producers of each kind (default: {ROUNDS})")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    return parser.parse_args()


if __name__ == "__main__":
    main()
