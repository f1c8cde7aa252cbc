"""Speed and CPU of both doors for PySpark, beside Spark's own sink and confluent_kafka's produce() in the same session.

Needs Java. See README.md for how to read the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.interleaved import Bystanders, Row, Spread
from benchmarks.link import Link, link
from benchmarks.load import VoidError
from benchmarks.spark_variants import COMPARISONS, VARIANTS, Comparison, Variant
from benchmarks.table import Bar, conclude, disturbed, table
from integration.kafka.jars import CONNECTOR, classpath
from integration.spark import run_script

SESSION = Path(__file__).resolve().parent / "spark_session"
PARTITIONS = 6
WARM_UP = 2
FAR = 50.0
"""Milliseconds of round trip from which the bars for long links hold."""
NEAR_ROWS, FAR_ROWS, QUICK_ROWS = 1_000_000, 500_000, 100_000
PATIENCE = 3600.0


@dataclass(frozen=True)
class Run:
    """One write of all rows: seconds of wall clock, and of CPU."""

    seconds: float
    jvm: float
    librdkafka: float
    python: float

    @property
    def cpu(self) -> float:
        return self.jvm + self.librdkafka + self.python


Rounds = list[dict[str, Run]]


@dataclass(frozen=True)
class Speed:
    """Rows/s, and microseconds of CPU a row, over the rounds."""

    name: str
    rate: Spread
    jvm: float
    librdkafka: float
    python: float


@dataclass(frozen=True)
class Result:
    rtt: float
    measured_rtt: float
    rows: int
    disturbance: float
    speeds: list[Speed]
    ratios: list[Row]
    bars: list[Bar]


def main() -> None:
    options = arguments()
    rows = options.rows or (QUICK_ROWS if options.quick else FAR_ROWS if options.rtt >= FAR else NEAR_ROWS)
    rounds = options.rounds or (3 if options.quick else 9)
    wanted = [variant for variant in VARIANTS if options.rtt >= FAR or not variant.far_only]
    if options.only:
        wanted = [variant for variant in wanted if any(text in variant.name for text in options.only)]
        if not wanted:
            sys.exit(f"--only: no such variant; there are: {', '.join(variant.name for variant in VARIANTS)}")
    with link() as way:
        result = run(way, options.rtt, rows, rounds, wanted)
    text = f"{described(result)}\nGeometric means [quartiles] of {rounds} rounds; every row was counted in the log."
    conclude({"rounds": rounds, **asdict(result)}, text, result.bars, options.json, options.check)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--rtt", type=float, default=0.0, metavar="MS", help="round trip to make (default: 0, none)")
    parser.add_argument("--quick", action="store_true", help=f"3 rounds of {QUICK_ROWS} rows: no gate")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--rounds", type=int, help="rounds to measure (default: 9)")
    parser.add_argument("--rows", type=int, help=f"a write (default: {NEAR_ROWS}, {FAR_ROWS} on a long link)")
    parser.add_argument("--only", metavar="TEXT", nargs="+", help="only variants whose name contains one of these")
    return parser.parse_args()


def run(way: Link, rtt: float, rows: int, rounds: int, variants: Sequence[Variant]) -> Result:
    measured = way.set_rtt(rtt) if rtt else 0.0
    topics = {variant.name: f"spark-{number}" for number, variant in enumerate(variants)}
    for topic in topics.values():
        way.create_topic(topic, PARTITIONS)
    settings = {
        "bootstrap": way.bootstrap if rtt else way.direct_bootstrap,  # the tap takes time of its own
        "direct_bootstrap": way.direct_bootstrap,
        "topics": topics,
        "rows": rows,
        "rounds": rounds,
        "warm_up": WARM_UP,
        "partitions": PARTITIONS,
    }
    bystanders = Bystanders()
    found = session(settings)
    return evaluated(rtt, measured, rows, bystanders.share(), found)


def session(settings: dict[str, object]) -> Rounds:
    print(f"Spark: {settings['rounds']} rounds", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        (scratch / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        path = os.pathsep.join(filter(None, (str(SESSION.parents[1]), os.environ.get("PYTHONPATH"))))
        done = run_script(
            SESSION,
            [str(scratch / "settings.json")],
            scratch,
            memory="3g",
            jvm=(),
            conf={"spark.jars": ",".join(map(str, classpath(of=CONNECTOR)))},
            environment={"PYTHONPATH": path},
            timeout=PATIENCE,
        )
    if done.returncode:
        raise VoidError(f"the session ended with {done.returncode}:\n{done.stderr[-4000:]}")
    rounds: dict[int, dict[str, Run]] = {}
    for line in done.tasks:
        if line["found"] != settings["rows"]:
            raise VoidError(f"{line['name']}: {settings['rows']} rows written, the log got {line['found']} more")
        if line["round"] >= 0:
            figures = (line[name] for name in ("seconds", "jvm", "librdkafka", "python"))
            rounds.setdefault(line["round"], {})[line["name"]] = Run(*figures)
    return [rounds[number] for number in sorted(rounds)]


def evaluated(rtt: float, measured: float, rows: int, disturbance: float, rounds: Rounds) -> Result:
    speeds = [speed(name, rows, [found[name] for found in rounds]) for name in rounds[0]]
    ratios, bars = [], []
    for comparison in COMPARISONS:
        names = comparison.variant.name, comparison.against.name
        if not rounds[0].keys() >= set(names):
            continue
        row = Row(
            " / ".join(names), spread(rounds, *names, lambda one: 1 / one.seconds), spread(rounds, *names, Run.cpu.fget)
        )
        ratios.append(row)
        bars += judged(comparison, row, rtt)
    return Result(rtt, measured, rows, disturbance, sorted(speeds, key=lambda one: one.name), ratios, bars)


def speed(name: str, rows: int, runs: Sequence[Run]) -> Speed:
    def each(figure: Callable[[Run], float]) -> float:
        return statistics.fmean(figure(run) for run in runs) / rows * 1e6

    rate = Spread.of([rows / run.seconds for run in runs])
    return Speed(name, rate, each(lambda run: run.jvm), each(lambda run: run.librdkafka), each(lambda run: run.python))


def spread(rounds: Rounds, name: str, against: str, figure: Callable[[Run], float]) -> Spread:
    """The geometric mean of the ratios within each round, between their quartiles."""
    ratios = [figure(found[name]) / figure(found[against]) for found in rounds]
    quartiles = Spread.of(ratios)
    return Spread(quartiles.low, statistics.geometric_mean(ratios), quartiles.high)


def judged(comparison: Comparison, row: Row, rtt: float) -> list[Bar]:
    least, most = comparison.far if rtt >= FAR else comparison.near
    what = f"RTT {rtt:g} ms, {row.title}"
    bars = []
    if least is not None:
        bars.append(Bar(f"{what}: throughput", row.throughput.median, least, at_least=True))
    if most is not None:
        bars.append(Bar(f"{what}: CPU", row.cpu.median, most, at_least=False))
    return bars


def described(result: Result) -> str:
    heads = ("", "rows/s", "us of CPU a row", "JVM", "librdkafka", "Python")
    speeds = [
        (
            one.name,
            f"{one.rate.median:,.0f} [{one.rate.low:,.0f}-{one.rate.high:,.0f}]",
            f"{one.jvm + one.librdkafka + one.python:.2f}",
            *(f"{part:.2f}" for part in (one.jvm, one.librdkafka, one.python)),
        )
        for one in result.speeds
    ]
    ratios = [(row.title, shown(row.throughput), shown(row.cpu)) for row in result.ratios]
    distance = f"round trip {result.measured_rtt:.1f} ms" if result.rtt else "beside the broker"
    return (
        f"{result.rows:,} rows a write, {distance}; {disturbed(result.disturbance)}\n"
        f"{table(heads, speeds)}\n\n{table(('ratio', 'throughput', 'CPU'), ratios)}\n"
    )


def shown(one: Spread) -> str:
    return f"{one.median:.2f} [{one.low:.2f}-{one.high:.2f}]"


if __name__ == "__main__":
    main()
