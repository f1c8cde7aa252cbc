"""When each partition's records were acknowledged, drawn as one line of characters."""

import math
from collections.abc import Iterable, Sequence

_BARS = "·▁▂▃▄▅▆▇█"
_ASCII_BARS = " .:-=+*#@"


def timeline(counts: Sequence[int], largest: int, *, ascii_only: bool) -> str:
    """One character for each count; the first one is for none at all. Heights go by the square root, or a burst would
    make everything else look flat."""
    glyphs = _ASCII_BARS if ascii_only else _BARS
    scale = (len(glyphs) - 1) / math.sqrt(largest) if largest else 0.0
    return "".join(glyphs[min(len(glyphs) - 1, math.ceil(math.sqrt(count) * scale))] for count in counts)


def histogram(times: Iterable[float], start: float, end: float, width: int) -> list[int]:
    """How many of the times fall into each of ``width`` equal stretches from start to end."""
    counts = [0] * width
    for moment in times:
        counts[column(moment, start, end, width)] += 1
    return counts


def column(moment: float, start: float, end: float, width: int) -> int:
    """The stretch that a moment falls into; what lies outside counts to the nearest."""
    return max(0, min(width - 1, int((moment - start) / max(end - start, 1e-9) * width)))
