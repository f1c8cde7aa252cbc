"""Plain text tables and the bars' verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.interleaved import Spread

BUSY = 0.2
"""Above this share of the machine used by others, throughput tells more about them than about the producers."""


@dataclass(frozen=True)
class Bar:
    """What a median must reach."""

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


def ratio(spread: Spread) -> str:
    """`median [low quartile-high quartile]`"""
    return f"{spread.median:.2f} [{spread.low:.2f}-{spread.high:.2f}]"


def disturbed(share: float) -> str:
    """What the share of CPU used by other programs means for the figures."""
    told = f"other programs used {share:.0%} of the machine"
    return told if share < BUSY else f"{told}: TOO BUSY for the throughput figures, only the CPU ratios count"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (heads, *rows)
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
