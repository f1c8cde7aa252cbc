"""Writes of many rows: what a session of Spark measured, and what it shows."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.interleaved import Row, Spread
from benchmarks.load import VoidError
from benchmarks.spark_session.parts import Cpu
from benchmarks.spark_variants import FAR, Comparison
from benchmarks.table import Bar, ratio, table
from integration.kafka.jars import CONNECTOR, classpath
from integration.spark import run_script

SESSION = Path(__file__).resolve().parent / "spark_session"
PATIENCE = 3600.0


@dataclass(frozen=True)
class Run:
    """One write of all rows: seconds of wall clock, and of CPU."""

    seconds: float
    cpu: Cpu


Rounds = list[dict[str, Run]]


@dataclass(frozen=True)
class Speed:
    """Rows/s, and microseconds of CPU a row, over the rounds."""

    name: str
    rate: Spread
    cpu: Cpu


@dataclass(frozen=True)
class Writes:
    """One suite."""

    title: str
    rows: int
    disturbance: float
    speeds: list[Speed]
    ratios: list[Row]


def session(script: Path, settings: Mapping[str, Any]) -> tuple[list[dict[str, Any]], float]:
    """The lines of JSON that the script of a session printed, and the share of the machine that strangers used."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        (scratch / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        path = os.pathsep.join(filter(None, (str(SESSION.parents[1]), os.environ.get("PYTHONPATH"))))
        done = run_script(
            script,
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
    *lines, last = done.tasks
    return lines, last["strangers"]


def written(settings: Mapping[str, Any]) -> tuple[Rounds, float]:
    """The rounds of a session in which each variant wrote all rows, and the share of the machine that strangers used.

    Raises VoidError when the log has others.
    """
    rounds: dict[int, dict[str, Run]] = {}
    lines, strangers = session(SESSION, settings)
    for line in lines:
        if line["found"] != settings["rows"]:
            raise VoidError(f"{line['name']}: {settings['rows']} rows written, the log got {line['found']} more")
        if line["round"] >= 0:
            cpu = Cpu(*(line[part] for part in ("jvm", "librdkafka", "python")))
            rounds.setdefault(line["round"], {})[line["name"]] = Run(line["seconds"], cpu)
    return [rounds[number] for number in sorted(rounds)], strangers


def compared(comparisons: Sequence[Comparison], rounds: Rounds, rtt: float, rows: int) -> tuple[list[Row], list[Bar]]:
    """Those whose variants were both run."""
    ratios: list[Row] = []
    bars: list[Bar] = []
    for comparison in comparisons:
        names = comparison.variant.name, comparison.against.name
        if not rounds[0].keys() >= set(names):
            continue
        row = Row(
            " / ".join(names),
            spread(rounds, *names, lambda one: 1 / one.seconds),
            spread(rounds, *names, lambda one: one.cpu.total),
        )
        ratios.append(row)
        bars += judged(comparison, row, rtt, rows)
    return ratios, bars


def speeds(rounds: Rounds, rows: int) -> list[Speed]:
    return [speed(name, rows, [found[name] for found in rounds]) for name in sorted(rounds[0])]


def speed(name: str, rows: int, runs: Sequence[Run]) -> Speed:
    parts = [
        statistics.fmean(used) / rows * 1e6
        for used in zip(*((run.cpu.jvm, run.cpu.librdkafka, run.cpu.python) for run in runs), strict=True)
    ]
    return Speed(name, Spread.of([rows / run.seconds for run in runs]), Cpu(*parts))


def spread(rounds: Rounds, name: str, against: str, figure: Callable[[Run], float]) -> Spread:
    """The geometric mean of the ratios within each round, between their quartiles."""
    return geometric([figure(found[name]) / figure(found[against]) for found in rounds])


def geometric(ratios: list[float]) -> Spread:
    """Their geometric mean, between their quartiles."""
    return replace(Spread.of(ratios), median=statistics.geometric_mean(ratios))


def judged(comparison: Comparison, row: Row, rtt: float, rows: int) -> list[Bar]:
    least, most = comparison.far if rtt >= FAR else comparison.near
    what = f"RTT {rtt:g} ms, {rows:,} rows, {row.title}"
    bars = []
    if least is not None:
        bars.append(Bar(f"{what}: throughput", row.throughput.median, least, at_least=True))
    if most is not None:
        bars.append(Bar(f"{what}: CPU", row.cpu.median, most, at_least=False))
    return bars


def described(writes: Writes) -> str:
    heads = (writes.title, "rows/s", "us of CPU a row", "JVM", "librdkafka", "Python")
    each = [
        (
            one.name,
            f"{one.rate.median:,.0f} [{one.rate.low:,.0f}-{one.rate.high:,.0f}]",
            *(f"{used:.2f}" for used in (one.cpu.total, one.cpu.jvm, one.cpu.librdkafka, one.cpu.python)),
        )
        for one in writes.speeds
    ]
    ratios = [(row.title, ratio(row.throughput), ratio(row.cpu)) for row in writes.ratios]
    return f"{table(heads, each)}\n\n{table(('ratio', 'throughput', 'CPU'), ratios)}"
