"""Shows the IDs that a crash loop leaves on a broker with the guard on producer IDs and without, and the guard's costs.

Real Kafka, one node: processes that produce one record and kill themselves, four at a time, each fifth killed at a
random moment. IDs are those that DescribeProducers shows. See README.md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import guard_costs, permit_costs
from benchmarks.guard_costs import Costs
from benchmarks.interleaved import Bystanders, show
from benchmarks.table import Bar, conclude, disturbed, table
from integration.crash_loop import Start, loop, settings
from integration.kafka.cluster import KafkaCluster
from safeproducer.settings.id_settings import LEDGER_VARIABLE

PROCESSES, QUICK = 200, 40
STOCK_SHARE = 4
"""One process without the guard for so many with it: what they leave is known."""
RATE = 20
LEAST = 10
REFUSE = {"safeproducer.producer.ids.policy": "refuse", "safeproducer.producer.ids.per.hour": RATE}


@dataclass(frozen=True)
class Loop:
    """One crash loop. `unsaid`: errors that did not name the line of code, and other ends."""

    processes: int
    killed: int
    refused: int
    unsaid: int
    ids: int
    seconds: float


def crash_loop(kafka: KafkaCluster, maker: Any, processes: int, ids: Path) -> Loop:
    """Run it on a topic of its own."""
    topic = f"crash-{'stock' if maker == 'stock' else 'guarded'}"
    kafka.admin.create_topic(topic, 1)
    starts, seconds = loop(kafka.bootstrap, topic, maker, processes, environment={LEDGER_VARIABLE: str(ids)})
    known = {state.producer_id for state in kafka.admin.describe_producers(topic, 0)}
    refused = [start for start in starts if start.refused]
    return Loop(
        processes,
        sum(start.killed for start in starts),
        len(refused),
        sum(_is_odd(start) for start in starts),
        len(known),
        seconds,
    )


def _is_odd(start: Start) -> bool:
    if start.killed or start.said == "delivered":
        return False
    return "integration/crash_loop.py:" not in start.said or "no producer ID is free" not in start.said


def judged(guarded: Loop, stock: Loop, cost: Costs, permits: dict[str, float]) -> list[Bar]:
    most = RATE + int(guarded.seconds / (3600 / RATE))
    return [
        Bar("IDs that a guarded crash loop leaves, at least", guarded.ids, LEAST, at_least=True),
        Bar("IDs that a guarded crash loop leaves, at most", guarded.ids, most, at_least=False),
        Bar("processes that were not told where and why", guarded.unsaid, 0, at_least=False),
        Bar("IDs of a stock process that was not killed", stock.ids / (stock.processes - stock.killed), 1, True),
        *cost.judged(),
        *permit_costs.judged(permits),
    ]


def described(loops: Sequence[tuple[str, Loop]], cost: Costs) -> str:
    heads = ("", "processes", "killed", "refused", "IDs on the leader", "seconds")
    rows = [
        (name, *map(str, (each.processes, each.killed, each.refused, each.ids)), f"{each.seconds:.0f}")
        for name, each in loops
    ]
    return f"{table(heads, rows)}\n\n{cost}"


def main() -> None:
    options = arguments()
    processes = QUICK if options.quick else options.processes
    bystanders = Bystanders()
    with KafkaCluster() as kafka, tempfile.TemporaryDirectory() as folder:
        show("crash loop, guarded")
        guarded = crash_loop(kafka, REFUSE, processes, Path(folder, "loop"))
        show("crash loop, stock")
        stock = crash_loop(kafka, "stock", processes // STOCK_SHARE, Path(folder, "loop"))
        kafka.admin.create_topic("costs", 1)
        rounds = guard_costs.QUICK if options.quick else guard_costs.ROUNDS
        cost = guard_costs.measured(settings(kafka.bootstrap), "costs", rounds)
    show("permits")
    permits = permit_costs.measured(permit_costs.QUICK if options.quick else permit_costs.ROUNDS)
    show("")
    facts = {
        "guarded": asdict(guarded),
        "stock": asdict(stock),
        "costs": {**asdict(cost), "pace": cost.pace},
        "permits": permits,
    }
    text = f"{described([('guarded', guarded), ('stock', stock)], cost)}\n{disturbed(bystanders.share())}"
    conclude(facts, text, judged(guarded, stock, cost, permits), options.json, options.check)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guard", description=__doc__)
    parser.add_argument("--processes", type=int, default=PROCESSES, help=f"of the loop (default: {PROCESSES})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} processes: for a look")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    return parser.parse_args()


if __name__ == "__main__":
    main()
