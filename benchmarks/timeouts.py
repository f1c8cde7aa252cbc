"""Records that deadlines duplicate or misreport, by seeds: confluent_kafka and SafeProducer side by side on real Kafka.

Each seed is a plan of lost answers and passing deadlines (see integration/lost_answers.py); many are played at the same
time, since each is nearly only waiting. The log is then compared with what the producers reported.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from confluent_kafka.cimpl import Producer

from benchmarks.interleaved import show
from benchmarks.table import table
from integration.faults.oracle import Verdict
from integration.held_back import in_mode
from integration.kafka.cluster import KafkaCluster
from integration.lost_answers import Maker, Plan, play
from integration.tap import Tap
from safeproducer import SafeProducer

AT_ONCE = 25
"""Plans of one wave; every side runs each of them."""
PROMISES = ("lost", "duplicated", "reordered", "phantom", "misplaced", "foreign", "unreported", "reported_again")
OUTCOMES = ("delivered", "not_written", "unknown_present", "unknown_absent")


@dataclass(frozen=True)
class Tally:
    """One side's plans in which a promise was broken, and records by what became of them."""

    plans: int
    broken_plans: list[str]
    records: dict[str, int]


def main() -> None:
    options = arguments()
    makers = sides(options)
    seeds = range(options.first, options.first + options.seeds)
    verdicts: dict[str, dict[Plan, Verdict]] = {side: {} for side in makers}
    started = time.monotonic()
    for number, plans in enumerate(waves([Plan.of(seed) for seed in seeds])):
        show(f"wave {number + 1}: round 1 of 1")
        for side, told in wave(plans, makers, number).items():
            verdicts[side] |= told
    show("")
    tallies = {side: tallied(told) for side, told in verdicts.items()}
    if options.json:
        print(json.dumps({side: asdict(tally) for side, tally in tallies.items()}, indent=2))
    else:
        print(described(tallies))
        print(f"{len(seeds)} seeds from {options.first} on, in {time.monotonic() - started:.0f} s")
    if any(tally.broken_plans for side, tally in tallies.items() if side != "stock"):
        sys.exit(1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.timeouts", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many plans (default: 200)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--only", choices=("stock", "safe"), help="only one side")
    parser.add_argument("--mode", action="append", help="safeproducer.mode, may be repeated (default: its default)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    return parser.parse_args()


def sides(options: argparse.Namespace) -> dict[str, Maker]:
    found: dict[str, Maker] = {"stock": Producer}
    if options.mode:
        found |= {f"safe, {mode}": partial(in_mode, mode) for mode in options.mode}
    else:
        found["safe"] = SafeProducer
    return {side: maker for side, maker in found.items() if side.startswith(options.only or "")}


def waves(plans: Sequence[Plan]) -> Iterator[Sequence[Plan]]:
    return (plans[start : start + AT_ONCE] for start in range(0, len(plans), AT_ONCE))


def wave(plans: Sequence[Plan], makers: dict[str, Maker], number: int) -> dict[str, dict[Plan, Verdict]]:
    """A cluster of its own for each wave: hundreds of partitions that nobody needs any more slow it down."""
    cast = [(side, plan) for side in makers for plan in plans]
    with KafkaCluster(tapped=True) as cluster, Tap(cluster) as tap:
        played = play([(plan, makers[side]) for side, plan in cast], cluster, tap, f"timeouts-{number}")
    told: dict[str, dict[Plan, Verdict]] = {side: {} for side in makers}
    for (side, plan), verdict in zip(cast, played, strict=True):
        told[side][plan] = verdict
    return told


def tallied(told: dict[Plan, Verdict]) -> Tally:
    broken = [
        f"{plan}: {', '.join(verdict.broken)} ({'; '.join(verdict.examples[:1])})"
        for plan, verdict in told.items()
        if verdict.broken
    ]
    records = {name: sum(getattr(verdict, name) for verdict in told.values()) for name in (*PROMISES, *OUTCOMES)}
    return Tally(len(told), broken, records)


def described(tallies: dict[str, Tally]) -> str:
    heads = ("", "plans broken", *(name.replace("_", " ") for name in (*PROMISES, *OUTCOMES)))
    rows = [
        (side, f"{len(tally.broken_plans)} of {tally.plans}", *(str(count) for count in tally.records.values()))
        for side, tally in tallies.items()
    ]
    worst = [f"{side}: {one}" for side, tally in tallies.items() if side != "stock" for one in tally.broken_plans]
    return "\n".join([table(heads, rows), "", *worst])


if __name__ == "__main__":
    main()
