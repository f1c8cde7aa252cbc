"""Several lanes at a distance: SafeProducer with safeproducer.ordering=key against confluent_kafka and against Java's
producer.

Each producer is alone in a process; a wire tap makes the distance, the same for all. See README.md.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from typing import Any

from benchmarks import pace
from benchmarks.client import SAFE, STOCK, Client, Done, Work
from benchmarks.interleaved import Bystanders, Spread, show
from benchmarks.latency import check
from benchmarks.link import Link, link
from benchmarks.table import Bar, conclude, disturbed, ratio, table
from integration.kafka.jars import classpath, java

VALUE_SIZE = 100
RECORDS_A_BATCH = 100
JAVA = "java"
RECORD_OVERHEAD = 9
"""Bytes that Java counts for a record of this size beside its value, in a batch."""
BATCH_OVERHEAD = 61
WARM_UP = 4.0
"""Seconds until as many lanes are there as are of use: each step takes some round trips."""
SATURATED = "saturated, batches of 100, 5,000 keys"
FULL = "saturated, full batches, 200 B, 6 partitions"
_SPEED = re.compile(r"records sent, ([\d.]+) records/sec")
_numbers = count(1)


@dataclass(frozen=True)
class Side:
    """A producer that takes part; `budget` batches of a partition may be unresolved."""

    title: str
    kind: str
    budget: int | None = None
    ordering: str = "key"

    @property
    def config(self) -> dict[str, Any]:
        if self.budget is None:
            return {}
        return {"safeproducer.ordering": self.ordering, "safeproducer.window": self.budget}


@dataclass(frozen=True)
class Case:
    title: str
    work: Work
    config: dict[str, Any]
    sides: tuple[Side, ...]
    java: bool = False
    partitions: int = 1


@dataclass(frozen=True)
class Result:
    """Spreads of each side by its title; `speed`: records/s in units of confluent_kafka's in the same round.

    `call_ns`: what a call of confluent_kafka's produce() took meanwhile, see pace.py. `near`: the share of a core that
    confluent_kafka takes beside the broker, where nothing has to wait, for the records/s that each side reached.
    """

    title: str
    rtt: float
    measured_rtt: float
    disturbance: float
    call_ns: float
    figures: dict[str, dict[str, Spread]]
    speed: dict[str, Spread]
    to_java: dict[str, Spread]
    near: dict[str, Spread]


BUDGETS = Side("stock", STOCK), Side("budget 5", SAFE, 5), Side("budget 20", SAFE, 20)
ORDERINGS = BUDGETS[0], Side("one lane", SAFE, 5, "partition"), BUDGETS[1]


def cases(rtt: float, seconds: float) -> list[Case]:
    batches = {"batch.num.messages": RECORDS_A_BATCH, "queue.buffering.max.messages": 10_000}
    found = [
        Case(SATURATED, Work("", VALUE_SIZE, seconds, keys=5_000), batches, BUDGETS, java=rtt >= _FAR),
    ]
    if rtt >= _FAR:
        found.append(Case(FULL, Work("", 200, seconds, keys=5_000), {}, ORDERINGS, partitions=6))
        sides = BUDGETS[0], BUDGETS[2]
        for rate, keys in ((1_000, 1_000), (5_000, 1_000), (1_000, 100_000)):
            work = Work("", VALUE_SIZE, seconds, rate, keys=keys)
            found.append(Case(f"{rate:,}/s, {keys:,} keys", work, {}, sides))
    return found


_FAR = 100.0


def run_case(way: Link, case: Case, rtt: float, rounds: int) -> Result:
    label = f"RTT {rtt:g} ms, {case.title}"
    measured = way.set_rtt(rtt)
    topics = {side.title: f"lanes-{next(_numbers)}" for side in case.sides}
    java_topic, near_topic = (f"lanes-{next(_numbers)}" for _ in range(2))
    base = {
        "bootstrap.servers": way.bootstrap,
        "enable.idempotence": True,
        "linger.ms": 5,
        "log_level": 3,
        **case.config,
    }
    for topic in (*topics.values(), java_topic, near_topic):
        way.create_topic(topic, case.partitions)
    done: list[dict[str, Done]] = []
    near: list[dict[str, float]] = []
    by_java: list[float] = []
    calls: list[float] = []
    produced = dict.fromkeys(topics, 0)
    bystanders = Bystanders()
    clients = {side.title: Client(side.kind, {**base, **side.config}) for side in case.sides}
    beside = Client(STOCK, {**base, "bootstrap.servers": way.direct_bootstrap})
    try:
        for number in range(-1, rounds):
            if number >= 0:
                show(f"{label}: round {number + 1} of {rounds}")
            row: dict[str, Done] = {}
            for title in random.Random(f"{label} {number}").sample(sorted(topics), len(topics)):
                seconds = case.work.seconds if number >= 0 else WARM_UP
                work = replace(case.work, topic=topics[title], seconds=seconds)
                row[title] = clients[title].run(work)
                produced[title] += row[title].records
            if number >= 0:
                done.append(row)
                calls.append(pace.stock_call_ns())
                near.append(
                    {side: beside.run(as_fast_as(row[side], case, near_topic)).cpu for side in safe_sides(case)}
                )
                if case.java:
                    by_java.append(java_speed(way.bootstrap, java_topic, case.work.seconds))
    finally:
        for client in (*clients.values(), beside):
            client.close()
    show("")
    check(way, topics, produced)
    for topic in (*topics.values(), java_topic, near_topic):
        way.delete_topic(topic)
    return evaluated(case, (rtt, measured), (bystanders.share(), statistics.median(calls)), done, by_java, near)


def safe_sides(case: Case) -> list[str]:
    return [side.title for side in case.sides if side.budget is not None]


def as_fast_as(done: Done, case: Case, topic: str) -> Work:
    """The same work at the rate that was reached."""
    return replace(case.work, topic=topic, rate=round(done.rate))


def java_speed(bootstrap: str, topic: str, seconds: float) -> float:
    """Records/s of ProducerPerformance, idempotent with 5 requests in flight, with as many records in a batch."""
    records = int(seconds * 60 * RECORDS_A_BATCH)
    properties = {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": "true",
        "max.in.flight.requests.per.connection": "5",
        "batch.size": str(BATCH_OVERHEAD + RECORDS_A_BATCH * (VALUE_SIZE + RECORD_OVERHEAD)),
        "linger.ms": "5",
    }
    return performance(topic, records, VALUE_SIZE, properties)


def performance(topic: str, records: int, size: int, properties: Mapping[str, str]) -> float:
    """Records/s of ProducerPerformance in a process of its own."""
    load = ["--num-records", str(records), "--record-size", str(size), "--throughput", "-1"]
    settings = ["--producer-props", *(f"{name}={value}" for name, value in properties.items())]
    tool = "org.apache.kafka.tools.ProducerPerformance"
    finished = subprocess.run(
        [java(), "-Xmx256m", "-XX:+UseSerialGC", tool, "--topic", topic, *load, *settings],
        env={**os.environ, "CLASSPATH": os.pathsep.join(map(str, classpath()))},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    # The last line is of the whole run; the ones before are of five seconds each.
    return float(_SPEED.findall(finished.stdout)[-1])


def evaluated(
    case: Case,
    distance: tuple[float, float],
    machine: tuple[float, float],
    done: Sequence[dict[str, Done]],
    by_java: list[float],
    near: Sequence[dict[str, float]],
) -> Result:
    titles = [side.title for side in case.sides]
    figures = {
        title: {name: Spread.of([getattr(row[title], name) for row in done]) for name in ("p50", "p95", "rate", "cpu")}
        for title in titles
    }
    speed = {title: Spread.of([row[title].rate / row["stock"].rate for row in done]) for title in titles}
    if by_java:
        speed[JAVA] = Spread.of([rate / row["stock"].rate for rate, row in zip(by_java, done, strict=True)])
    to_java = {
        title: Spread.of([row[title].rate / rate for rate, row in zip(by_java, done, strict=True)])
        for title in titles
        if by_java
    }
    by_stock = {title: Spread.of([row[title] for row in near]) for title in safe_sides(case)}
    return Result(case.title, *distance, *machine, figures, speed, to_java, by_stock)


def judged(result: Result) -> list[Bar]:
    """The bars."""
    what = f"RTT {result.rtt:g} ms, {result.title}"
    bars: list[Bar] = []
    if result.title == SATURATED:
        least = {5: 4.7, 20: 18.0} if result.rtt >= _FAR else {5: 4.0, 20: 12.0}
        for budget, times in least.items():
            title = f"budget {budget}"
            bars.append(Bar(f"{what}, {title}: times stock", result.speed[title].median, times, at_least=True))
        if result.rtt >= _FAR:
            for budget, share, java_times in ((5, 0.06, 0.95), (20, 0.15, 3.5)):
                title = f"budget {budget}"
                cpu = result.figures[title]["cpu"].median
                bars.append(Bar(f"{what}, {title}: share of a core", cpu, share, at_least=False))
                bars.append(
                    Bar(f"{what}, {title}: times Java", result.to_java[title].median, java_times, at_least=True)
                )
        return bars
    if result.title == FULL:
        # Lanes share a link that one lane fills as well: they must not cost speed there.
        more_lanes = result.figures["budget 5"]["rate"].median / result.figures["one lane"]["rate"].median
        return [Bar(f"{what}: lanes, times one lane", more_lanes, 0.95, at_least=True)]
    safe = result.figures["budget 20"]
    limits = {"1,000/s, 1,000 keys": (1.15, 1.8), "5,000/s, 1,000 keys": (1.25, 2.05)}.get(result.title, (None, 1.3))
    for name, limit in zip(("p50", "p95"), limits, strict=True):
        if limit is not None:
            trips = safe[name].median / result.measured_rtt
            bars.append(Bar(f"{what}: {name} in round trips", trips, limit, at_least=False))
    if result.title.startswith("5,000/s"):
        bars.append(Bar(f"{what}: share of a core", safe["cpu"].median, 0.15, at_least=False))
    return bars


def described(results: Sequence[Result]) -> str:
    heads = ("", "", "p50 ms", "p95 ms", "records/s", "% of a core", "stock near", "times stock", "times Java")
    rows = []
    for result in results:
        for number, (title, figures) in enumerate(result.figures.items()):
            median = {name: spread.median for name, spread in figures.items()}
            rows.append(
                (
                    "" if number else result.title,
                    title,
                    f"{median['p50']:.1f}",
                    f"{median['p95']:.1f}",
                    f"{median['rate']:,.0f}",
                    f"{median['cpu']:.1%}",
                    f"{result.near[title].median:.1%}" if title in result.near else "",
                    ratio(result.speed[title]),
                    ratio(result.to_java[title]) if title in result.to_java else "",
                )
            )
        if JAVA in result.speed:
            rows.append(("", JAVA, "", "", "", "", "", ratio(result.speed[JAVA]), ""))
    measured = f"{min(result.measured_rtt for result in results):.2f} ms measured"
    busiest = max(result.disturbance for result in results)
    usual = f"1 partition and {VALUE_SIZE} B where not said otherwise"
    slow = pace.described(statistics.median([result.call_ns for result in results]))
    return (
        f"Round trip {results[0].rtt:g} ms wanted, {measured}; {usual}; {disturbed(busiest)}\n"
        f"{table(heads, rows)}\n{slow}\n"
        "stock near: its share of a core for as many such records beside the broker, where nothing has to wait\n"
    )


def main() -> None:
    options = arguments()
    results: list[Result] = []
    with link() as way:
        for rtt in options.rtt:
            wanted = [case for case in cases(rtt, options.seconds) if (options.only or "") in case.title]
            done = [run_case(way, case, rtt, options.rounds) for case in wanted]
            results += done
            if done and not options.json:
                print(described(done), flush=True)
    if not results:
        sys.exit(f"--only {options.only}: no such case")
    bars = [bar for result in results for bar in judged(result)]
    facts = {"rounds": options.rounds, "cases": list(map(asdict, results))}
    text = f"Median [quartiles] of {options.rounds} rounds of {options.seconds:g} s."
    conclude(facts, text, bars, options.json, options.check)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lanes", description=__doc__)
    parser.add_argument("--rtt", type=float, nargs="+", default=[100.0, 20.0], metavar="MS", help="round trips to make")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a block (default: 4)")
    parser.add_argument("--rounds", type=int, default=4, help="rounds to measure (default: 4)")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--only", metavar="TEXT", help="only cases whose title contains TEXT")
    return parser.parse_args()


if __name__ == "__main__":
    main()
