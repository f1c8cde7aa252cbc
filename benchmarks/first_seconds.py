"""The first seconds of a producer far from the brokers: one record to begin with, and then all that it has.

Each run is a fresh producer in a process of its own; a wire tap makes the distance. See README.md.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

from benchmarks import pace
from benchmarks.client import (
    PRODUCERS,
    SAFE,
    STOCK,
    StampedReports,
    Work,
    produce_all_keys_that_fit,
    produce_keys_at_rate,
)
from benchmarks.interleaved import Bystanders, Spread, show
from benchmarks.link import Link, link
from benchmarks.load import VoidError
from benchmarks.table import Bar, conclude, disturbed, ratio, table

VALUE_SIZE = 100
PATIENCE = 120.0
SATURATED = "saturated, batches of 100, 5,000 keys"
PACED = "1,000/s, 1,000 keys"
_numbers = count(1)


@dataclass(frozen=True)
class Side:
    title: str
    kind: str
    config: dict[str, Any] = field(default_factory=dict)


def keyed(budget: int, mode: str = "auto") -> dict[str, Any]:
    return {"safeproducer.ordering": "key", "safeproducer.window": budget, "safeproducer.mode": mode}


STOCKS = Side("stock", STOCK)
PARTITION = Side("auto, partition", SAFE)
KEY_5 = Side("auto, key, budget 5", SAFE, keyed(5))
KEY_20 = Side("auto, key, budget 20", SAFE, keyed(20))
HELD_20 = Side("held, key, budget 20", SAFE, keyed(20, "held"))


@dataclass(frozen=True)
class Case:
    title: str
    work: Work
    config: dict[str, Any]
    sides: tuple[Side, ...]


CASES = (
    Case(
        SATURATED,
        Work("", VALUE_SIZE, 7.0, keys=5_000),
        {"batch.num.messages": 100, "queue.buffering.max.messages": 8_000},
        (STOCKS, PARTITION, KEY_5, KEY_20, HELD_20),
    ),
    Case(PACED, Work("", VALUE_SIZE, 8.0, 1_000, keys=1_000), {}, (STOCKS, PARTITION, KEY_20)),
)


@dataclass(frozen=True)
class Done:
    """From the second record on: reports/s within the time, the share of a core, and latencies in milliseconds."""

    rate: float
    cpu: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class Result:
    title: str
    rtt: float
    measured_rtt: float
    disturbance: float
    call_ns: float
    figures: dict[str, dict[str, Spread]]
    to_stock: dict[str, dict[str, Spread]]


NAMES = "rate", "cpu", "p50", "p95", "p99"


def play(side: Side, config: dict[str, Any], work: Work) -> Done:
    """One producer's first seconds, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_play, args=(theirs, side.kind, {**config, **side.config}, work), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(PATIENCE):
            raise TimeoutError(f"{side.title}: no answer within {PATIENCE:.0f} s")
        done = ours.recv()
    finally:
        process.join(10)
        if process.is_alive():
            process.kill()
            process.join()
    if isinstance(done, Done):
        return done
    raise done


def _play(pipe: Connection, kind: str, config: dict[str, Any], work: Work) -> None:
    try:
        pipe.send(_first_seconds(PRODUCERS[kind](config), work))
    except Exception as error:
        pipe.send(error)


def _first_seconds(producer: Any, work: Work) -> Done:
    reports = StampedReports(1)
    producer.produce(work.topic, value=bytes(VALUE_SIZE), key=b"first", partition=0, on_delivery=reports.on_delivery)
    if producer.flush(30):
        raise VoidError("the first record was not delivered")
    reports.delivered = 0
    began, cpu = time.perf_counter(), time.process_time()
    if work.rate:
        sent = produce_keys_at_rate(producer, work, work.rate, reports)
    else:
        sent = produce_all_keys_that_fit(producer, work, reports)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    delivered = reports.delivered
    if work.rate:
        if producer.flush(30):
            raise VoidError("records were left")
    else:
        producer.purge()
        producer.flush(10)
    purged = reports.failed
    producer.close()
    if reports.delivered + purged != sent or (work.rate and purged):
        raise VoidError(f"{sent} records sent, {reports.delivered} delivered, {purged} purged")
    cuts = [1e3 * cut for cut in statistics.quantiles(reports.latencies, n=100, method="inclusive")]
    return Done(delivered / seconds, cpu / seconds, cuts[49], cuts[94], cuts[98])


def run_case(way: Link, case: Case, rtt: float, rounds: int) -> Result:
    measured = way.set_rtt(rtt)
    rows: list[dict[str, Done]] = []
    bystanders = Bystanders()
    config = {
        "bootstrap.servers": way.bootstrap,
        "enable.idempotence": True,
        "linger.ms": 5,
        "log_level": 3,
        **case.config,
    }
    calls = []
    for number in range(rounds):
        show(f"RTT {rtt:g} ms, {case.title}: round {number + 1} of {rounds}")
        row = {}
        for side in random.Random(f"{case.title} {number}").sample(case.sides, len(case.sides)):
            topic = f"seconds-{next(_numbers)}"
            way.create_topic(topic, 1)
            work = Work(topic, VALUE_SIZE, case.work.seconds, case.work.rate, keys=case.work.keys)
            row[side.title] = play(side, config, work)
            way.delete_topic(topic)
        rows.append(row)
        calls.append(pace.stock_call_ns())
    show("")
    figures, to_stock = {}, {}
    for title in (side.title for side in case.sides):
        figures[title] = {name: Spread.of([getattr(row[title], name) for row in rows]) for name in NAMES}
        to_stock[title] = {
            name: Spread.of([getattr(row[title], name) / getattr(row[STOCKS.title], name) for row in rows])
            for name in NAMES
        }
    return Result(case.title, rtt, measured, bystanders.share(), statistics.median(calls), figures, to_stock)


def judged(result: Result) -> list[Bar]:
    what = f"RTT {result.rtt:g} ms, {result.title}"
    if result.title == PACED:
        times = result.to_stock[KEY_20.title]
        return [
            Bar(f"{what}, {KEY_20.title}: {name}, of stock's", times[name].median, limit, at_least=False)
            for name, limit in (("p95", 1.0), ("p99", 1.3))
        ]
    bars = []
    for side, least in ((PARTITION, 0.97), (KEY_5, 4.5), (KEY_20, 16.0)):
        times_stock = result.to_stock[side.title]["rate"].median
        bars.append(Bar(f"{what}, {side.title}: times stock", times_stock, least, at_least=True))
    cpu = result.figures[PARTITION.title]["cpu"].median
    return [*bars, Bar(f"{what}, {PARTITION.title}: share of a core", cpu, 0.05, at_least=False)]


def described(result: Result) -> str:
    heads = ("", "reports/s", "% of a core", "p50 ms", "p95 ms", "p99 ms", "times stock", "p95, of stock's")
    rows = [
        (
            title,
            f"{figures['rate'].median:,.0f}",
            f"{figures['cpu'].median:.1%}",
            *(f"{figures[name].median:.0f}" for name in ("p50", "p95", "p99")),
            ratio(result.to_stock[title]["rate"]),
            ratio(result.to_stock[title]["p95"]),
        )
        for title, figures in result.figures.items()
    ]
    return (
        f"Round trip {result.rtt:g} ms wanted, {result.measured_rtt:.2f} ms measured; {result.title}; "
        f"{disturbed(result.disturbance)}\n{table(heads, rows)}\n{pace.described(result.call_ns)}\n"
    )


def main() -> None:
    options = arguments()
    results = []
    with link() as way:
        for case in CASES:
            if (options.only or "") in case.title:
                results.append(run_case(way, case, options.rtt, options.rounds))
                if not options.json:
                    print(described(results[-1]), flush=True)
    if not results:
        sys.exit(f"--only {options.only}: no such case")
    bars = [bar for result in results for bar in judged(result)]
    facts = {"rounds": options.rounds, "cases": list(map(asdict, results))}
    conclude(facts, f"Median [quartiles] of {options.rounds} rounds.", bars, options.json, options.check)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_seconds", description=__doc__)
    parser.add_argument("--rtt", type=float, default=100.0, metavar="MS", help="round trip to make (default: 100)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds to measure (default: 5)")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--only", metavar="TEXT", help="only cases whose title contains TEXT")
    return parser.parse_args()


if __name__ == "__main__":
    main()
