"""Speed of FakeCluster beside one real Kafka node, for a confluent_kafka producer in the process of the test.

Both are produced to in this process with the same configuration, block-interleaved; see README.md.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass

from confluent_kafka.cimpl import Producer

from benchmarks import load as forms
from benchmarks.brokers import broker
from benchmarks.interleaved import Block, Rounds, Spread, measure, rate, throughput_ratio
from benchmarks.load import POLL_EVERY, Load, block
from benchmarks.table import Bar, conclude, disturbed, ratio, table
from safeproducer.testing import FakeCluster

RECORDS = {100: 20_000, 1_000: 10_000}
"""Records in a block, by the size of their values in bytes."""
WARM_UP = 10
LIMITS = {100: None, 1_000: 0.80}
"""FakeCluster's throughput in that of the node's has to be at least this."""
KAFKA, FAKE = "one Apache Kafka node", "FakeCluster"
KEPT = "20000000"
"""Bytes of a partition that FakeCluster keeps between blocks; the test's memory is its log."""


@dataclass(frozen=True)
class Row:
    title: str
    throughput: Spread
    records_per_second: Spread


@dataclass(frozen=True)
class Case:
    value_size: int
    disturbance: float
    rows: list[Row]
    bars: list[Bar]


def main() -> None:
    options = arguments()
    rounds = options.rounds or (9 if options.quick else 27)
    cases = []
    with broker(mock=False) as kafka, FakeCluster(1) as fake:
        for size in options.values:
            topic = f"bench-fake-{size}"
            kafka.create_topic(topic, options.partitions)
            fake.create_topic(topic, options.partitions, config={"retention.bytes": KEPT})
            loaded = Load.make(topic, options.partitions, size, RECORDS[size])
            cases.append(evaluated(size, run_case(kafka.bootstrap, fake, loaded, rounds, f"{size} B")))
            kafka.delete_topic(topic)
    text = "\n".join(map(described, cases))
    text += f"\nMedian [quartiles] of {rounds} rounds; {options.partitions} partition(s), poll(0) every {POLL_EVERY}."
    bars = [bar for case in cases for bar in case.bars]
    conclude({"rounds": rounds, "cases": list(map(asdict, cases))}, text, bars, options.json, options.check)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fake", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="9 rounds: no gate")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--rounds", type=int, help="rounds to measure (default: 27)")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--values", type=int, nargs="+", choices=sorted(RECORDS), default=sorted(RECORDS), help="bytes")
    return parser.parse_args()


def run_case(bootstrap: str, fake: FakeCluster, load: Load, rounds: int, label: str) -> Rounds:
    config = {"enable.idempotence": True}
    with (
        Producer({**config, "bootstrap.servers": bootstrap}) as to_kafka,
        Producer({**config, "bootstrap.servers": fake.bootstrap}) as to_fake,
    ):
        variants = {KAFKA: block(forms.keyword, to_kafka, load), FAKE: block(forms.keyword, to_fake, load)}
        return measure({name: emptied(fake, run) for name, run in variants.items()}, rounds, WARM_UP, 1, label)


def emptied(fake: FakeCluster, run: Block) -> Block:
    """The same, and what FakeCluster has kept beyond its limit goes: in each variant, so that all pay for it."""

    def both() -> None:
        run()
        fake.apply_retention()

    return both


def evaluated(size: int, rounds: Rounds) -> Case:
    rows = [
        Row(name, throughput_ratio(rounds, name, KAFKA), rate(rounds, name, RECORDS[size])) for name in (KAFKA, FAKE)
    ]
    limit = LIMITS[size]
    bars = [] if limit is None else [Bar(f"{size} B, FakeCluster", rows[1].throughput.median, limit, at_least=True)]
    return Case(size, rounds.disturbance, rows, bars)


def described(case: Case) -> str:
    rows = [(row.title, ratio(row.throughput), f"{row.records_per_second.median:,.0f}") for row in case.rows]
    return (
        f"values of {case.value_size} B; {disturbed(case.disturbance)}\n"
        f"{table(('stock producer to', 'throughput', 'records/s'), rows)}\n"
    )


if __name__ == "__main__":
    main()
