"""Plots of figures beside a peer's, as SVG: a dot for the median, a line for the range, on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from benchmarks.report.figures import Figure

LEFT, WIDTH, ROW, TOP = 560, 1000, 26, 34
TICKS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
LETTERS = 88
"""Of a label; the table has the whole one."""


@dataclass(frozen=True)
class Theme:
    """Colours; on the ground each text has a contrast of 4.5 at least."""

    ground: str
    text: str
    line: str
    ahead: str
    behind: str

    @property
    def style(self) -> str:
        """As CSS."""
        return (
            f"rect{{fill:{self.ground}}}text{{fill:{self.text}}}path{{stroke:{self.line}}}"
            f"text.ahead,circle.ahead{{fill:{self.ahead}}}path.ahead{{stroke:{self.ahead}}}"
            f"text.behind,circle.behind{{fill:{self.behind}}}path.behind{{stroke:{self.behind}}}"
        )


LIGHT = Theme("#ffffff", "#1f2328", "#c9ced4", "#0a6640", "#a4341f")
DARK = Theme("#0d1117", "#e6edf3", "#3d444d", "#4bc98d", "#ff9a85")


def described(figures: Sequence[Figure]) -> str:
    """The alternative text."""
    return "; ".join(f"{each.label}: {each.text} times" for each in figures)


def plot(title: str, figures: Sequence[Figure]) -> str:
    """A picture of those that have a peer, dark where the reader's system is."""
    ends = [value for each in figures for value in (each.value, each.low, each.high) if value]
    low, high = math.log(min(*ends, 0.8)), math.log(max(*ends, 1.25))

    def at(value: float) -> float:
        return LEFT + 14 + (math.log(value) - low) / (high - low) * (WIDTH - LEFT - 74)

    bottom = TOP + ROW * len(figures)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 24}" role="img" '
        f'aria-labelledby="t d" font-family="sans-serif" font-size="12">',
        f"<style>{LIGHT.style}@media(prefers-color-scheme:dark){{{DARK.style}}}</style>",
        f'<title id="t">{escape(title)}</title><desc id="d">{escape(described(figures))}</desc>',
        f'<rect width="{WIDTH}" height="{bottom + 24}"/>',
        f'<text x="8" y="18" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    for tick in (tick for tick in TICKS if low <= math.log(tick) <= high):
        wide = 2 if tick == 1 else 1
        x = f"{at(tick):.1f}"
        parts.append(f'<path d="M{x} {TOP - 6}V{bottom}" stroke-width="{wide}"/>')
        parts.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{tick:g}</text>')
    for number, each in enumerate(figures):
        y, side = TOP + ROW * number + 10, "behind" if each.peer_is_better else "ahead"
        label = each.label if len(each.label) <= LETTERS else f"{each.label[: LETTERS - 3]}..."
        parts.append(f'<text x="{LEFT}" y="{y + 4}" text-anchor="end">{escape(label)}</text>')
        if each.low and each.high:
            line = f"M{at(each.low):.1f} {y}H{at(each.high):.1f}"
            parts.append(f'<path d="{line}" class="{side}" stroke-width="3" stroke-opacity=".55"/>')
        parts.append(f'<circle cx="{at(each.value):.1f}" cy="{y}" r="5" class="{side}"/>')
        parts.append(f'<text x="{WIDTH - 8}" y="{y + 4}" text-anchor="end" class="{side}">{each.text}</text>')
    return "\n".join([*parts, "</svg>", ""])
