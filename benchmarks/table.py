"""Plain text tables and the bars' verdicts."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.interleaved import Spread

BUSY = 0.2
"""Above this share of the machine used by others, throughput tells more about them than about the producers."""


@dataclass(frozen=True)
class Bar:
    """The value that a median must reach."""

    what: str
    measured: float
    limit: float
    at_least: bool

    @property
    def passed(self) -> bool:
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        return f"{'pass' if self.passed else 'FAIL'}  {self.what}: {self.measured:.3f} (bar: {sign} {self.limit:.2f})"


def conclude(facts: Mapping[str, Any], text: str, bars: Sequence[Bar], as_json: bool, check: bool) -> None:
    """Print `text` and the verdicts, or `facts` with them as one JSON object; exit with 1 when a bar is missed and that
    is to be checked.
    """
    if as_json:
        told = [{**asdict(bar), "passed": bar.passed} for bar in bars]
        print(json.dumps({**facts, "bars": told}, indent=2))
    else:
        print(text, end="\n\n")
        print("\n".join(map(str, bars)))
    if check and not all(bar.passed for bar in bars):
        sys.exit(1)


def ratio(spread: Spread) -> str:
    """`median [low quartile-high quartile]`"""
    return f"{spread.median:.2f} [{spread.low:.2f}-{spread.high:.2f}]"


def disturbed(share: float) -> str:
    """Say how far the share of CPU of other programs disturbs the figures."""
    told = f"other programs used {share:.0%} of the machine"
    return told if share < BUSY else f"{told}: TOO BUSY for the throughput figures, only the CPU ratios count"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (heads, *rows)
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
