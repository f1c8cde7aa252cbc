"""A command writes by this module: results to stdout, messages and progress to stderr, no secret to either."""

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TextIO

from safeproducer.cli.common.stop import Failure
from safeproducer.kafka.properties import is_sensitive

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

REDACTED = "[redacted]"
# Wide enough for every table here; rich would take 80 columns when the output is a file or a pipe.
_WIDTH_WITHOUT_TERMINAL = 120
_MOST_ROWS = 20


class Redactor:
    """Replaces secret values in text, also of settings whose name is misspelt."""

    def __init__(self, settings: Mapping[str, object] = MappingProxyType({})) -> None:
        """Longer secrets are replaced first, so none shows through another."""
        found = (value for name, value in settings.items() if isinstance(value, str) and value and is_sensitive(name))
        self._secrets = sorted(found, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """Return the text without any secret that is known by now."""
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return text

    def tree(self, value: object) -> object:
        """Return a JSON-like value whose strings, at any depth, hold no secret."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, dict):
            return {name: self.tree(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.tree(item) for item in value]
        return value


class Screen:
    """The two output streams of one command.

    ``quiet`` drops notes and progress, never errors or results. rich colours terminals only, and none when
    NO_COLOR is set. A reader that closed its end (``| head``) is no error.
    """

    def __init__(self, *, json_output: bool, quiet: bool) -> None:
        self.json_output = json_output
        self.quiet = quiet
        self.redact = Redactor()

    def require_rich(self) -> None:
        """Raise Failure if tables are wanted and the package that draws them is missing."""
        if not self.json_output and not _find_rich():
            sentence = "The package rich, which draws tables and progress, is not installed"
            raise Failure(f"{sentence}: pip install 'safeproducer[cli]', or use --json.", code="missing-rich")

    def note(self, text: str) -> None:
        if not self.quiet:
            self._message("", text, style="dim")

    def warn(self, text: str) -> None:
        """Tell a person of something that went wrong while the command goes on."""
        self._message("warning: ", text, style="yellow")

    def error(self, text: str) -> None:
        self._message("error: ", text, style="bold red")

    def debug(self, text: str) -> None:
        """Write a traceback, without the secrets it may hold."""
        with _reader_may_leave(sys.stderr):
            print(self.redact(text), file=sys.stderr, flush=True)  # noqa: T201

    def result(self, renderable: "RenderableType") -> None:
        # rich itself would end the process if the reader of stdout has left.
        with self.out.capture() as drawn:
            self.out.print(renderable)
        with _reader_may_leave(sys.stdout):
            sys.stdout.write(self.redact(drawn.get()))
            sys.stdout.flush()

    def can_ask(self) -> bool:
        """Tell whether a person reads this at a terminal, and can answer."""
        return not self.json_output and _is_terminal(sys.stdin)

    def confirm(self, question: str) -> bool:
        """Ask a person. Only y and yes agree."""
        self._message("", f"{question} [y/N]", style="bold")
        return sys.stdin.readline().strip().lower() in {"y", "yes"}

    def table(
        self, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], most: int | None = _MOST_ROWS
    ) -> None:
        """Draw the first rows, and say how many more there are; without rows nothing."""
        from rich.table import Table  # noqa: PLC0415 - rich is an extra

        shown = list(rows)
        if not shown:
            return
        drawn: Any = Table(title=title, title_justify="left")
        for number, column in enumerate(columns):
            drawn.add_column(column, justify="left" if number == 0 else "right", overflow="fold")
        for row in shown[:most]:
            drawn.add_row(*row)
        self.result(drawn)
        if most is not None and len(shown) > most:
            self.note(f"{len(shown) - most:,} more rows: --json shows all")

    def result_json(self, document: Mapping[str, object]) -> None:
        with _reader_may_leave(sys.stdout):
            print(json.dumps(self.redact.tree(document), indent=2), file=sys.stdout, flush=True)  # noqa: T201

    @cached_property
    def out(self) -> "Console":
        return _console(sys.stdout)

    @cached_property
    def err(self) -> "Console":
        """rich's console on stderr; progress bars must share it with messages or they overwrite each other."""
        return _console(sys.stderr)

    def _message(self, label: str, text: str, *, style: str) -> None:
        line = f"safeproducer: {label}{self.redact(text)}"
        with _reader_may_leave(sys.stderr):
            if _is_terminal(sys.stderr) and _find_rich():
                self.err.print(line, style=style, soft_wrap=True)
            elif sys.stderr is not None:
                print(line, file=sys.stderr, flush=True)  # noqa: T201


def _find_rich() -> bool:
    try:
        importlib.import_module("rich.console")
    except ImportError:
        return False
    return True


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def _console(stream: TextIO) -> "Console":
    from rich.console import Console  # noqa: PLC0415 - rich is an extra

    width = None if _is_terminal(stream) else _WIDTH_WITHOUT_TERMINAL
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


@contextlib.contextmanager
def _reader_may_leave(stream: TextIO | None) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        # Point the descriptor elsewhere, or the interpreter's own flush at exit fails once more.
        if stream is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextlib.contextmanager
def progress(screen: Screen, title: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """A bar on stderr; what it yields is told how much is done, as often as is convenient."""
    if screen.quiet or not (_is_terminal(sys.stderr) and _find_rich()):
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - rich is an extra

    columns = TextColumn("{task.description}"), BarColumn(), TextColumn(f"{{task.completed:,}} {unit}")
    with Progress(*columns, TimeElapsedColumn(), console=screen.err) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)
