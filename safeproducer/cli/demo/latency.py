"""Delivery latencies of a run: percentiles and a small picture."""

import math
from array import array

_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = "._-:=+*#"


class Latencies:
    """Seconds from ``produce()`` to the delivery report, in the order of the reports."""

    def __init__(self) -> None:
        self._seconds = array("d")

    def add(self, seconds: float) -> None:
        self._seconds.append(seconds)

    def __len__(self) -> int:
        return len(self._seconds)

    def percentile(self, percent: float) -> float:
        """Return the nearest-rank percentile in seconds, NaN if there is none."""
        if not self._seconds:
            return math.nan
        ranked = sorted(self._seconds)
        return ranked[max(0, math.ceil(len(ranked) * percent / 100) - 1)]

    def sparkline(self, width: int, *, ascii_only: bool) -> str:
        """Draw the largest latency of each stretch of the run, from first to last report."""
        if not self._seconds:
            return ""
        step = max(1, math.ceil(len(self._seconds) / width))
        peaks = [max(self._seconds[start : start + step]) for start in range(0, len(self._seconds), step)]
        return "".join(_glyphs(peaks, _ASCII_BARS if ascii_only else _BARS))


def bar(value: float, largest: float, width: int, *, ascii_only: bool) -> str:
    """Draw one horizontal bar."""
    return ("#" if ascii_only else "█") * (round(width * value / largest) if largest > 0 else 0)


def _glyphs(values: list[float], glyphs: str) -> list[str]:
    top = max(values)
    return [glyphs[min(len(glyphs) - 1, int(len(glyphs) * value / top))] if top > 0 else glyphs[0] for value in values]
