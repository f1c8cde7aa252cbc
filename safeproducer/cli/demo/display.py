"""This module shows the steps: in a table that moves on a terminal, in plain lines anywhere else.

It draws when each partition's records were acknowledged, and delivery latencies, in one line of characters each.
"""

import math
import textwrap
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

from safeproducer.cli.common.screen import Screen

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

_COUNT_BARS = "·▁▂▃▄▅▆▇█"
_ASCII_COUNT_BARS = " .:-=+*#@"


def timeline(counts: Sequence[int], largest: int, *, ascii_only: bool) -> str:
    """One character for each count; the first one is for none at all. Heights go by the square root, or a burst would
    make everything else look flat."""
    glyphs = _ASCII_COUNT_BARS if ascii_only else _COUNT_BARS
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


_REFRESHES = 10
_HISTORY = 48
_OTHER_COLUMNS = 54
"""Width of the table without its picture."""


class PartitionView(NamedTuple):
    """One partition at one moment; ``why`` its records wait in the producer."""

    partition: int
    leader: int
    delivered: int
    held: int
    why: str


class Display:
    """Shows the steps while it is entered. Says nothing with --json or --quiet."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._silent = screen.json_output or screen.quiet
        self._live = None if self._silent or not screen.out.is_terminal else _live(screen)
        self._history: dict[int, deque[int]] = {}
        self._delivered: dict[int, int] = {}

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, sentence: str, *, number: int | None = None, good: bool = True) -> None:
        """Tell the beginning of a step (with its number) or what came of it."""
        if self._silent:
            return
        from rich.text import Text  # noqa: PLC0415

        if number is not None:
            text, style = f"{number}  {sentence}", "bold"
        else:
            text, style = (f"   {sentence}", "") if good else (f"   NOT SHOWN: {sentence}", "bold red")
        lines = textwrap.wrap(text, self._screen.out.width, subsequent_indent="   ")
        told = Text("\n".join(lines), style=style)
        if self._live is not None:
            self._live.console.print(told)
        else:
            self._screen.result(told)

    def show(self, partitions: Sequence[PartitionView]) -> None:
        if self._live is None:
            return
        for view in partitions:
            history = self._history.setdefault(view.partition, deque([0] * _HISTORY, _HISTORY))
            history.append(view.delivered - self._delivered.get(view.partition, 0))
            self._delivered[view.partition] = view.delivered
        self._live.update(self._table(partitions))

    def _table(self, partitions: Sequence[PartitionView]) -> "Table":
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        plain = not self._screen.out.encoding.lower().startswith("utf")
        largest = max((max(history) for history in self._history.values()), default=0)
        table = Table()
        table.add_column("partition", justify="right")
        table.add_column("broker", justify="right")
        table.add_column("acknowledged", justify="right", min_width=13)
        width = max(1, min(_HISTORY, self._screen.out.width - _OTHER_COLUMNS))
        table.add_column("now", min_width=width)
        table.add_column("waits here", justify="right", min_width=10)
        for view in partitions:
            picture = timeline(tuple(self._history[view.partition])[-width:], largest, ascii_only=plain)
            waits = Text(f"{view.held:,}" if view.held else "", style="bold yellow")
            style = "yellow" if view.held else "cyan"
            row = (str(view.partition), str(view.leader), f"{view.delivered:,}")
            table.add_row(*row, Text(picture, style=style), waits)
        return table


def _live(screen: Screen) -> "Live":
    from rich.live import Live  # noqa: PLC0415 - rich is an extra

    return Live(console=screen.out, refresh_per_second=_REFRESHES, transient=True)


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
    return ("#" if ascii_only else "█") * (round(width * value / largest) if largest > 0 else 0)


def _glyphs(values: list[float], glyphs: str) -> list[str]:
    top = max(values)
    return [glyphs[min(len(glyphs) - 1, int(len(glyphs) * value / top))] if top > 0 else glyphs[0] for value in values]
