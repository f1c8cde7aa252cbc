"""A byte quota of the broker (KIP-13): requests that wait until they time out, and what other brokers still get.

Real Kafka, confluent_kafka and SafeProducer at the same time, each with a client id, and so a quota, of its own. First
eight batches at 100 KB/s, with a time-out of 2 s for a request; a wire tap counts requests. Then a steady load on three
brokers, of which one is over its quota. See README.md.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from confluent_kafka.cimpl import Producer

from benchmarks.interleaved import Bystanders, show
from benchmarks.table import conclude, disturbed, table
from integration import uneven
from integration.kafka.cluster import KafkaCluster
from integration.tap import Tap
from integration.throttled import Outcome, Quota, deliver
from safeproducer import SafeProducer

SIDES = {"stock": Producer, "safe": SafeProducer}
BATCHES = Quota(batches=8, rate=100_000, size=150_000, batch_size=165_000, socket_timeout=2.0, patience=60)
SHORT_WINDOW = {"quota.window.num": "2"}
"""The broker averages over 2 s, not 11: one batch is over the quota."""


def timed_out(rounds: int) -> dict[str, list[Outcome]]:
    """Each round has a cluster of its own: a throttle time of the round before would hold this one back."""
    found: dict[str, list[Outcome]] = {side: [] for side in SIDES}
    for number in range(rounds):
        show(f"time-outs: round {number + 1} of {rounds}")
        with KafkaCluster(tapped=True, configs=SHORT_WINDOW) as cluster, Tap(cluster) as tap:
            outcomes = deliver([*SIDES.values()], BATCHES, f"quota-{number}", cluster, tap)
        for side, outcome in zip(SIDES, outcomes, strict=True):
            found[side].append(outcome)
    return found


def neighbours(seconds: float) -> dict[str, uneven.Speed]:
    """Records a second to each broker."""
    show("neighbours: round 1 of 1")
    with KafkaCluster(3) as cluster:
        loads = {side: uneven.Load(make, cluster, f"uneven-{side}", uneven.QUOTA) for side, make in SIDES.items()}
        return uneven.run(loads, seconds)


def main() -> None:
    options = arguments()
    bystanders = Bystanders()
    runs, speeds = timed_out(options.rounds), neighbours(options.seconds)
    show("")
    batches: dict[str, dict[str, Any]] = {
        side: {
            "rounds": len(outcomes),
            "batches": BATCHES.batches * len(outcomes),
            "requests": sum(one.requests for one in outcomes),
            "retries": sum(one.retries for one in outcomes),
            "delivered": sum(one.delivered for one in outcomes),
            "speeds": [one.speed for one in outcomes],
        }
        for side, outcomes in runs.items()
    }
    told = {side: asdict(one) for side, one in speeds.items()}
    facts = {"batches": batches, "neighbours": told, "disturbance": bystanders.share()}
    rows = [
        (side, f"{one['requests']}", f"{one['retries']}", f"{told[side]['crowded']:.0f}", f"{told[side]['others']:.0f}")
        for side, one in batches.items()
    ]
    heads = ("", "requests", "sent again", "records/s to the throttled broker", "to the others")
    conclude(facts, f"{disturbed(facts['disturbance'])}\n{table(heads, rows)}", [], options.json, check=False)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench quota", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="clusters with eight batches (3)")
    parser.add_argument("--seconds", type=float, default=10, help="of the steady load (10)")
    parser.add_argument("--check", action="store_true", help="there are no bars")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    return parser.parse_args()


if __name__ == "__main__":
    main()
