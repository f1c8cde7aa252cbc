"""A picture of the dashboard, of what Prometheus answers to its queries over a time."""

from collections.abc import Sequence
from html import escape

from tests.telemetry.dashboard import Panel

Line = tuple[str, list[tuple[float, float]]]
"""(its name, the points: time and value)."""
WIDTH, HEIGHT, ACROSS = 310, 180, 4
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b")


def svg(panels: Sequence[tuple[Panel, Sequence[Line]]], seconds: float) -> str:
    """Of panels with their lines, which begin at 0 seconds."""
    width, height = ACROSS * WIDTH, -(-len(panels) // ACROSS) * HEIGHT
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"'
    parts = [f'{head} font-size="11">\n<rect width="{width}" height="{height}" fill="#f4f5f5"/>']
    for number, (panel, of_panel) in enumerate(panels):
        left, top = number % ACROSS * WIDTH + 4, number // ACROSS * HEIGHT + 4
        highest = max((value for _, points in of_panel for _, value in points), default=0) or 1
        shown = f"{highest * 100:.3g} %" if panel.unit == "percentunit" else f"{highest:.3g}"
        shown += {"cps": "/s", "s": " s"}.get(panel.unit, "")
        parts += [
            f'<g transform="translate({left} {top})"><rect width="{WIDTH - 8}" height="{HEIGHT - 8}" fill="#fff"/>',
            f'<text x="8" y="16" font-weight="bold">{escape(panel.title)}</text>',
            f'<text x="8" y="34" fill="#777">{shown}</text><path d="M50 38H294M50 126H294" stroke="#ddd"/>',
        ]
        for place, (name, points) in enumerate(of_panel[: len(COLOURS)]):
            path = " ".join(f"{50 + 244 * at / seconds:.0f},{126 - 88 * value / highest:.0f}" for at, value in points)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[place]}" stroke-width="1.5"/>')
            x, y = 8 + place % 2 * 146, 141 + place // 2 * 14
            parts.append(f'<text x="{x}" y="{y}" fill="{COLOURS[place]}">{escape(name)}</text>')
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])
