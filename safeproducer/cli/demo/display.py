"""Where the steps are shown: a table that moves on a terminal, plain lines anywhere else."""

import textwrap
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from safeproducer.cli.common.screen import Screen
from safeproducer.cli.demo.timeline import timeline

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

_REFRESHES = 10
_HISTORY = 48


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        """Draw how things are now."""
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
        table.add_column("now", min_width=_HISTORY)
        table.add_column("waits here", justify="right", min_width=10)
        for view in partitions:
            picture = timeline(self._history[view.partition], largest, ascii_only=plain)
            waits = Text(f"{view.held:,}" if view.held else "", style="bold yellow")
            style = "yellow" if view.held else "cyan"
            row = (str(view.partition), str(view.leader), f"{view.delivered:,}")
            table.add_row(*row, Text(picture, style=style), waits)
        return table


def _live(screen: Screen) -> "Live":
    from rich.live import Live  # noqa: PLC0415 - rich is an extra

    return Live(console=screen.out, refresh_per_second=_REFRESHES, transient=True)
