"""Speed and CPU of both doors for PySpark, beside Spark's own sink and confluent_kafka's produce() in the same session.

Needs Java. See README.md for how to read the figures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks import spark_triggers, spark_writes
from benchmarks.link import Link, link
from benchmarks.spark_triggers import Trigger
from benchmarks.spark_variants import BY_NAME, DOORS, FAR, MANY_TOPICS, SUITES, TOPICS, Suite
from benchmarks.spark_writes import Writes
from benchmarks.table import Bar, conclude, disturbed

PARTITIONS = 6
WARM_UP = 2
QUICK_ROWS = 100_000
BATCHES, QUICK_BATCHES = 25, 15
TRIGGERS = "triggers"


@dataclass
class Result:
    rtt: float
    measured_rtt: float
    rounds: int
    writes: list[Writes] = field(default_factory=list)
    triggers: list[Trigger] = field(default_factory=list)
    triggers_disturbance: float = 0.0
    bars: list[Bar] = field(default_factory=list)


def main() -> None:
    options = arguments()
    rounds = options.rounds or (3 if options.quick else 9)
    with link() as way:
        result = Result(options.rtt, way.set_rtt(options.rtt) if options.rtt else 0.0, rounds)
        place = {
            "bootstrap": way.bootstrap if options.rtt else way.direct_bootstrap,  # the tap takes time of its own
            "direct_bootstrap": way.direct_bootstrap,
            "partitions": PARTITIONS,
            "rounds": rounds,
        }
        for suite in () if options.micro_batches else SUITES:
            rows = suite.rows(options.rtt)
            if rows is not None:
                rows = options.rows or (min(rows, QUICK_ROWS) if options.quick else rows)
                write(way, suite, chosen(suite, options), rows, place, result)
        doors = [door.name for door in DOORS if is_wanted(door.name, options.only)]
        if options.rtt < FAR and doors and not options.rows:
            trigger(way, doors, QUICK_BATCHES if options.quick else BATCHES, place, result)
    facts = asdict(result)
    facts.pop("bars")
    conclude(facts, described(result), result.bars, options.json, options.check)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--rtt", type=float, default=0.0, metavar="MS", help="round trip to make (default: 0, none)")
    parser.add_argument("--quick", action="store_true", help=f"3 rounds of {QUICK_ROWS} rows: no gate")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--rounds", type=int, help="rounds to measure (default: 9)")
    parser.add_argument("--rows", type=int, help="of each write, without micro-batches (default: see README.md)")
    parser.add_argument("--micro-batches", action="store_true", help="only those, no other writes")
    parser.add_argument("--only", metavar="TEXT", nargs="+", help="only variants whose name contains one of these")
    options = parser.parse_args()
    names = {*BY_NAME, *(door.name for door in DOORS)}
    if not any(is_wanted(name, options.only) for name in names):
        sys.exit(f"--only: no such variant; there are: {', '.join(sorted(names))}")
    return options


def is_wanted(name: str, only: Sequence[str] | None) -> bool:
    return only is None or any(text in name for text in only)


def chosen(suite: Suite, options: argparse.Namespace) -> list[str]:
    """Names of its variants."""
    far = options.rtt >= FAR
    return [one.name for one in suite.variants if (far or not one.far_only) and is_wanted(one.name, options.only)]


def topics_for(way: Link, prefix: str, names: Sequence[str]) -> dict[str, str]:
    topics = {name: f"{prefix}-{number}" for number, name in enumerate(names)}
    for topic in topics.values():
        way.create_topic(topic, PARTITIONS)
    return topics


def write(way: Link, suite: Suite, names: list[str], rows: int, place: dict[str, Any], result: Result) -> None:
    if not names:
        return
    progress(suite.title, result)
    topics = topics_for(way, f"writes-{SUITES.index(suite)}", names)
    if any(BY_NAME[name].columns == TOPICS for name in names):
        for number in range(MANY_TOPICS):
            way.create_topic(f"{TOPICS}-{number}", 1)
    rounds, strangers = spark_writes.written({**place, "topics": topics, "rows": rows, "warm_up": WARM_UP})
    ratios, bars = spark_writes.compared(suite.comparisons, rounds, result.rtt, rows)
    speeds = spark_writes.speeds(rounds, rows)
    result.writes.append(Writes(suite.title, rows, strangers, speeds, ratios))
    result.bars += bars


def trigger(way: Link, doors: list[str], batches: int, place: dict[str, Any], result: Result) -> None:
    progress("micro-batches", result)
    topics = topics_for(way, TRIGGERS, doors)
    told = spark_triggers.measured({**place, "topics": topics, "rows": spark_triggers.ROWS, "batches": batches})
    rounds, result.triggers_disturbance = told
    result.triggers, bars = spark_triggers.evaluated(rounds)
    result.bars += bars


def progress(what: str, result: Result) -> None:
    print(f"Spark, {what}: {result.rounds} rounds", file=sys.stderr, flush=True)


def described(result: Result) -> str:
    distance = f"round trip {result.measured_rtt:.1f} ms" if result.rtt else "beside the broker"
    parts = [
        f"{one.rows:,} rows a write, {distance}; {disturbed(one.disturbance)}\n{spark_writes.described(one)}"
        for one in result.writes
    ]
    if result.triggers:
        parts.append(f"{disturbed(result.triggers_disturbance)}\n{spark_triggers.described(result.triggers)}")
    means = f"Ratios are geometric means [quartiles] of {result.rounds} rounds; every row was counted in the log."
    return "\n\n".join((*parts, means))


if __name__ == "__main__":
    main()
