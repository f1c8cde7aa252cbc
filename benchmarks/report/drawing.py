"""Plots of figures beside a peer's, as SVG: a dot for the median, a line for the range, on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from xml.sax.saxutils import escape

from benchmarks.report.figures import Figure

WIDTH, SHOWN, LETTERS = 480, 600, 66
"""Of a plot, as it is drawn and as it is shown where there is room; letters of a line of a label."""
LEFT, RIGHT, LINE, TOP = 14, 420, 16, 30
TICKS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
FINE = (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.4, 1.7, 2)
"""Where all figures are near to 1."""


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
            f".ahead{{fill:{self.ahead}}}path.ahead,circle.ahead{{stroke:{self.ahead}}}"
            f".behind{{fill:{self.behind}}}path.behind,circle.behind{{stroke:{self.behind}}}"
            f"circle.behind{{fill:{self.ground};stroke-width:2}}"
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
        return LEFT + (math.log(value) - low) / (high - low) * (RIGHT - LEFT)

    rows, bottom = [], TOP
    for each in figures:
        side, lines = "behind" if each.peer_is_better else "ahead", wrap(each.label, LETTERS)
        rows += [
            f'<text x="8" y="{bottom + LINE * number}">{escape(line)}</text>' for number, line in enumerate(lines, 1)
        ]
        y = bottom + LINE * len(lines) + 12
        if each.low and each.high:
            line = f"M{at(each.low):.1f} {y}H{at(each.high):.1f}"
            rows.append(f'<path d="{line}" class="{side}" stroke-width="3" stroke-opacity=".55"/>')
        rows.append(f'<circle cx="{at(each.value):.1f}" cy="{y}" r="5" class="{side}"/>')
        rows.append(f'<text x="{WIDTH - 8}" y="{y + 4}" text-anchor="end" class="{side}">{each.text}</text>')
        bottom = y + 10
    height = bottom + 2 * LINE + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{SHOWN}" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-labelledby="t d" font-family="sans-serif" font-size="13">',
        f"<style>{LIGHT.style}@media(prefers-color-scheme:dark){{{DARK.style}}}</style>",
        f'<title id="t">{escape(title)}</title><desc id="d">{escape(described(figures))}</desc>',
        f'<rect width="{WIDTH}" height="{height}"/>',
        f'<text x="8" y="20" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    for tick in (tick for tick in (FINE if high - low < math.log(4) else TICKS) if low <= math.log(tick) <= high):
        x = f"{at(tick):.1f}"
        parts.append(f'<path d="M{x} {TOP}V{bottom}" stroke-width="{2 if tick == 1 else 1}"/>')
        parts.append(f'<text x="{x}" y="{bottom + LINE}" text-anchor="middle">{tick:g}</text>')
    said = "1: as the peer. Full: not behind it. Ring: behind it."
    return "\n".join([*parts, *rows, f'<text x="8" y="{bottom + 2 * LINE}">{said}</text>', "</svg>", ""])
