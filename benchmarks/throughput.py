"""Speed of SafeProducer against the confluent_kafka producer when the broker is near.

Both run in this process with the same configuration, block-interleaved; see README.md for how to read the figures.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka.cimpl import Producer

from benchmarks import load as forms
from benchmarks.brokers import Broker, broker, written
from benchmarks.interleaved import Block, Rounds, Row, Spread, cpu_ratio, joined, measure, rate, throughput_ratio
from benchmarks.load import POLL_EVERY, Form, Load, block
from benchmarks.table import Bar, conclude, disturbed, ratio, table
from safeproducer import SafeProducer

RECORDS = {100: 20_000, 1_000: 10_000}
"""Records in a block, by the size of their values in bytes: some 50 ms each."""
WARM_UP = 2
SITTINGS = 3
"""Times the producers are made anew: a connection may be quicker than another for as long as it lasts."""
NOISE = "stock, a second one"
IDEMPOTENT = {"enable.idempotence": True}


@dataclass(frozen=True)
class Comparison:
    """`limits` are (throughput at least, CPU at most) by the size of the values; None where there is no bar."""

    title: str
    form: Form
    against: Form
    limits: dict[int, tuple[float | None, float | None]]


NO_BAR: dict[int, tuple[float | None, float | None]] = {}
GATED = (
    Comparison("produce, keywords", forms.keyword, forms.keyword, {100: (0.85, 1.25), 1_000: (0.95, 1.10)}),
    Comparison("produce, positional", forms.positional, forms.positional, {100: (0.70, None), 1_000: (0.70, None)}),
    Comparison(
        "produce_batch, partition / produce",
        forms.batch_to_partition,
        forms.keyword,
        {100: (1.1, None), 1_000: (1.1, None)},
    ),
    Comparison("produce_batch / produce", forms.batch, forms.keyword, {100: (1.0, None), 1_000: (1.0, None)}),
)
FURTHER = (
    Comparison("produce_batch, partition", forms.batch_to_partition, forms.batch_to_partition, NO_BAR),
    Comparison("produce_batch", forms.batch, forms.batch, NO_BAR),
    Comparison("partition given", forms.explicit_partition, forms.explicit_partition, NO_BAR),
    Comparison("no callback", forms.no_callback, forms.no_callback, NO_BAR),
    Comparison("a lambda per record", forms.callback_per_record, forms.callback_per_record, NO_BAR),
    Comparison("on_delivery=self.method", forms.callback_method, forms.callback_method, NO_BAR),
    Comparison("poll(0) after each record", forms.poll_each, forms.poll_each, NO_BAR),
    Comparison("one header", forms.one_header, forms.one_header, NO_BAR),
    Comparison("two topics in turn", forms.two_topics, forms.two_topics, NO_BAR),
)

STOCK_BATCHES = {
    "stock: produce_batch, partition / produce": forms.batch_to_partition,
    "stock: produce_batch / produce": forms.batch,
}
"""The gain of a batch call without SafeProducer: no wrapper around it can gain more."""


@dataclass(frozen=True)
class Case:
    partitions: int
    value_size: int
    records_per_block: int
    stock_records_per_second: Spread
    disturbance: float
    rows: list[Row]
    bars: list[Bar]


def main() -> None:
    options = arguments()
    rounds = math.ceil((options.rounds or (9 if options.quick else 27)) / SITTINGS) * SITTINGS
    comparisons: tuple[Comparison, ...] = GATED if options.quick else GATED + FURTHER
    if options.only:
        comparisons = tuple(one for one in GATED + FURTHER if options.only in one.title)
        if not comparisons:
            sys.exit(
                f"--only {options.only}: no such comparison; there are: " + ", ".join(c.title for c in GATED + FURTHER)
            )
    cases = []
    with broker(mock=options.mock) as where:
        for partitions in options.partitions:
            for value_size in options.values:
                case = run_case(where, partitions, value_size, comparisons, rounds)
                cases.append(case)
                if not options.json:
                    print(described(case), flush=True)
        kind = where.kind
    facts = {"broker": kind, "rounds": rounds, "cases": list(map(asdict, cases))}
    text = f"Against {kind}; median [quartiles] of {rounds} rounds; poll(0) every {POLL_EVERY} records."
    conclude(facts, text, [bar for case in cases for bar in case.bars], options.json, options.check)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput", description=__doc__)
    parser.add_argument("--mock", action="store_true", help="librdkafka's mock cluster instead of real Kafka")
    parser.add_argument("--quick", action="store_true", help="9 rounds, only what has a bar: no gate")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--rounds", type=int, help="rounds to measure (default: 27)")
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--values", type=int, nargs="+", choices=sorted(RECORDS), default=sorted(RECORDS), help="bytes")
    parser.add_argument("--only", metavar="TEXT", help="only comparisons whose title contains TEXT")
    return parser.parse_args()


def run_case(
    where: Broker,
    partitions: int,
    value_size: int,
    comparisons: tuple[Comparison, ...],
    rounds: int,
    config: Mapping[str, Any] = IDEMPOTENT,
    make: type[SafeProducer] = SafeProducer,
) -> Case:
    topic = f"bench-{partitions}-{value_size}"
    load = Load.make(topic, partitions, value_size, RECORDS[value_size])
    for name in (load.topic, load.second_topic):
        where.create_topic(name, partitions)
    sittings: list[Rounds] = []
    for number in range(1, SITTINGS + 1):
        label = f"{partitions} partitions, {value_size} B, sitting {number} of {SITTINGS}"
        with make({"bootstrap.servers": where.bootstrap, **config}) as safe:
            sittings.append(run_sitting(where, load, comparisons, rounds // SITTINGS, number, label, config, safe))
    for name in (load.topic, load.second_topic):
        where.delete_topic(name)
    return evaluated(load, comparisons, joined(sittings))


def run_sitting(
    where: Broker,
    load: Load,
    comparisons: tuple[Comparison, ...],
    rounds: int,
    number: int,
    label: str,
    config: Mapping[str, Any],
    safe: SafeProducer,
) -> Rounds:
    config = {"bootstrap.servers": where.bootstrap, **config}
    with Producer(config) as stock, Producer(config) as second:
        variants: dict[str, Block] = {NOISE: block(forms.keyword, second, load)}
        for comparison in comparisons:
            variants[f"safe {comparison.form.__name__}"] = block(comparison.form, safe, load)
        for form in {forms.keyword} | {comparison.against for comparison in comparisons}:
            variants[f"stock {form.__name__}"] = block(form, stock, load)
        measured = measure(variants, rounds, WARM_UP, seed=number, label=label)
        check(safe, produced=number * len(variants) * (WARM_UP + rounds) * load.records, found=in_log(where, load))
    return measured


def in_log(where: Broker, load: Load) -> int:
    return sum(written(where.bootstrap, name, load.partitions) for name in (load.topic, load.second_topic))


def check(safe: SafeProducer, produced: int, found: int) -> None:
    """The log holds exactly what both producers reported as delivered, and SafeProducer's account agrees."""
    account = safe.snapshot()
    if found != produced or account.unresolved or account.failed or account.accepted != account.delivered:
        raise forms.VoidError(f"produced {produced} records, the log holds {found}, SafeProducer's account: {account}")


def evaluated(load: Load, comparisons: tuple[Comparison, ...], rounds: Rounds) -> Case:
    stock = f"stock {forms.keyword.__name__}"
    rows = [Row(NOISE, throughput_ratio(rounds, NOISE, stock), cpu_ratio(rounds, NOISE, stock))]
    for title, form in STOCK_BATCHES.items():
        if f"stock {form.__name__}" in rounds.timings[0]:
            pair = f"stock {form.__name__}", stock
            rows.append(Row(title, throughput_ratio(rounds, *pair), cpu_ratio(rounds, *pair)))
    bars = []
    for comparison in comparisons:
        pair = f"safe {comparison.form.__name__}", f"stock {comparison.against.__name__}"
        row = Row(comparison.title, throughput_ratio(rounds, *pair), cpu_ratio(rounds, *pair))
        rows.append(row)
        what = f"{load.partitions} partition{'s' * (load.partitions > 1)}, {load.value_size} B, {row.title}"
        at_least, at_most = comparison.limits.get(load.value_size, (None, None))
        if at_least is not None:
            bars.append(Bar(f"{what}: throughput", row.throughput.median, at_least, at_least=True))
        if at_most is not None:
            bars.append(Bar(f"{what}: CPU", row.cpu.median, at_most, at_least=False))
    speed = rate(rounds, stock, load.records)
    return Case(load.partitions, load.value_size, load.records, speed, rounds.disturbance, rows, bars)


def described(case: Case) -> str:
    rows = [(row.title, ratio(row.throughput), ratio(row.cpu)) for row in case.rows]
    return (
        f"{case.partitions} partition{'s' * (case.partitions > 1)}, values of {case.value_size} B, "
        f"blocks of {case.records_per_block} records; {disturbed(case.disturbance)}\n"
        f"stock produce() with keywords: {case.stock_records_per_second.median:,.0f} records/s\n"
        f"{table(('SafeProducer / stock', 'throughput', 'CPU'), rows)}\n"
    )


if __name__ == "__main__":
    main()
