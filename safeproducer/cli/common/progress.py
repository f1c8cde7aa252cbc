"""A progress bar on a terminal, and nothing anywhere else."""

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from safeproducer.cli.common.screen import Screen

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

_REDRAW_EVERY = 0.1
_RECORDS = "{task.fields[delivered]:,} delivered, {task.fields[rate]:,.0f} records/s"


class Progress:
    """Shows how far a run is, on stderr; ``update`` may be called as often as is convenient.

    ``total`` is the number of steps (bytes or records), None if it cannot be known, as for a pipe. ``unit`` names what
    is counted where that is no records.
    """

    def __init__(self, screen: Screen, title: str, total: int | None, *, unit: str | None = None) -> None:
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None
        self._next = 0.0
        if screen.shows_progress():
            self._bar = _bar(screen, _RECORDS if unit is None else f"{{task.fields[delivered]:,}} {unit}")
            self._task = self._bar.add_task(title, total=total, delivered=0, rate=0.0)
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, delivered: int, *, title: str | None = None, last: bool = False) -> None:
        """Show ``done`` steps and the number of delivered records with their mean rate."""
        now = time.monotonic()
        if self._bar is None or self._task is None or (now < self._next and title is None and not last):
            return
        self._next = now + _REDRAW_EVERY
        rate = delivered / max(now - self._started, 1e-9)
        self._bar.update(self._task, completed=done, delivered=delivered, rate=rate)
        if title is not None:
            self._bar.update(self._task, description=title)


def _bar(screen: Screen, text: str) -> "RichProgress":
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
    from rich.progress import Progress as RichProgress  # noqa: PLC0415

    return RichProgress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn(text, markup=False),
        TimeElapsedColumn(),
        console=screen.err,
    )
