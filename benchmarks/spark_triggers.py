"""Micro-batches of 100 rows: how long a trigger takes by each door, beside a no-op sink by the same door."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.interleaved import Spread
from benchmarks.load import VoidError
from benchmarks.spark_variants import DOORS, MEDIAN_AT_MOST, P90_AT_MOST
from benchmarks.spark_writes import SESSION, geometric, session
from benchmarks.table import Bar, ratio, table

ROWS = 100
"""A micro-batch."""
WARM_UP = 5
"""Micro-batches of each query that do not count."""


@dataclass(frozen=True)
class Block:
    """One query: milliseconds of its first trigger, with new workers, and of the later ones."""

    first: float
    later: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.later)

    @property
    def p90(self) -> float:
        return statistics.quantiles(self.later, n=10, method="inclusive")[-1]


Rounds = list[dict[str, Block]]


@dataclass(frozen=True)
class Trigger:
    """Milliseconds of a trigger by one door, over the rounds; ratios to the no-op sink, None where there is none."""

    name: str
    first: Spread
    median: Spread
    p90: Spread
    to_idle: Spread | None
    p90_to_idle: Spread | None


def measured(settings: Mapping[str, Any]) -> tuple[Rounds, float]:
    """The rounds of a session that ran a query by each door, and the share of the machine that strangers used.

    Raises VoidError when the log lacks rows.
    """
    rounds: dict[int, dict[str, Block]] = {}
    lines, strangers = session(SESSION / "triggers.py", settings)
    for line in lines:
        took, found = line["milliseconds"], line["found"]
        if found is not None and found < len(took) * ROWS:
            raise VoidError(f"{line['name']}: {len(took)} micro-batches of {ROWS} rows, the log got {found} more")
        rounds.setdefault(line["round"], {})[line["name"]] = Block(took[0], took[WARM_UP:])
    return [rounds[number] for number in sorted(rounds)], strangers


def evaluated(rounds: Rounds) -> tuple[list[Trigger], list[Bar]]:
    triggers, bars = [], []
    for door in DOORS:
        if door.name not in rounds[0]:
            continue
        blocks = [found[door.name] for found in rounds]
        to_idle = p90_to_idle = None
        if door.idle in rounds[0]:
            idle = [found[door.idle] for found in rounds]
            to_idle = geometric([one.median / other.median for one, other in zip(blocks, idle, strict=True)])
            p90_to_idle = geometric([one.p90 / other.p90 for one, other in zip(blocks, idle, strict=True)])
            what = f"micro-batches of {ROWS} rows, {door.name} / {door.idle}"
            bars.append(Bar(f"{what}: median", to_idle.median, MEDIAN_AT_MOST, at_least=False))
            bars.append(Bar(f"{what}: p90", p90_to_idle.median, P90_AT_MOST, at_least=False))
        first, median, p90 = (
            Spread.of([getattr(one, figure) for one in blocks]) for figure in ("first", "median", "p90")
        )
        triggers.append(Trigger(door.name, first, median, p90, to_idle, p90_to_idle))
    return triggers, bars


def described(triggers: Sequence[Trigger]) -> str:
    heads = (f"micro-batches of {ROWS} rows", "first, ms", "median", "p90", "median / no-op", "p90 / no-op")
    each = [
        (
            one.name,
            f"{one.first.median:,.0f}",
            f"{one.median.median:.0f}",
            f"{one.p90.median:.0f}",
            *("" if spread is None else ratio(spread) for spread in (one.to_idle, one.p90_to_idle)),
        )
        for one in triggers
    ]
    return table(heads, each)
