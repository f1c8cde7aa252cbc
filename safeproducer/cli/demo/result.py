"""This module tells how a demonstration ended: exit status, sentence, JSON, or a table and a picture for a person."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.stop import NOT_ALL_DELIVERED, StopRequest
from safeproducer.cli.demo.display import bar, column, histogram, timeline
from safeproducer.cli.demo.experiment import Experiment
from safeproducer.cli.demo.proof import FLAWS, Counts, Row
from safeproducer.cli.demo.steps import Step


@dataclass(frozen=True, slots=True)
class Result:
    """The comparison with what a person needs around it.

    ``partitions`` are rows of the comparison by partition. ``steps`` is empty for a run without any,
    and ``step_rows`` the same comparison by their numbers, from 1. ``limits`` are sentences about what it cannot show.
    """

    cluster: str
    topic: str
    partitions: Mapping[Row, Counts]
    total: Counts
    experiment: Experiment
    seconds_to_read: float
    limits: tuple[str, ...]
    stop: StopRequest
    steps: Sequence[Step] = ()
    step_rows: Mapping[Row, Counts] | None = None

    @property
    def exit_code(self) -> int:
        """0 only if nothing is wrong and every step was shown; 128 + signal when stopped by one."""
        if self.stop:
            return self.stop.exit_code
        return 0 if self.total.flawless and not self.not_shown else NOT_ALL_DELIVERED

    @property
    def not_shown(self) -> list[int]:
        """The numbers of the steps whose fault had no effect: they prove nothing."""
        return [number for number, step in enumerate(self.steps, start=1) if not step.proof.shown]

    @property
    def rate(self) -> float:
        """Delivered records per second, from the first produce() to the last report."""
        return self.total.delivered / self.experiment.seconds if self.experiment.seconds > 0 else 0.0

    def sentence(self) -> str:
        total = self.total
        if total.flawless:
            order = "each partition in the order of produce()" if self.steps else "each file's lines in order"
            return (
                f"All {total.accepted:,} records were delivered, {_counted(total)}; the log holds each of them exactly "
                f"once and {order}."
            )
        flaws = [f"{getattr(total, name):,} {words(name)}" for name in FLAWS if getattr(total, name) or name in _TOLD]
        given = total.accepted + total.refused
        return f"Of {given:,} records {total.delivered:,} were delivered: {', '.join(flaws)}."

    def document(self) -> dict[str, Any]:
        latencies = self.experiment.latencies
        rows = self.step_rows or {}
        return {
            "command": "demo",
            "cluster": self.cluster,
            "topic": self.topic,
            "files": len(self.experiment.names),
            "steps": [
                {
                    "step": number,
                    "name": step.name,
                    "title": step.title,
                    "shown": step.proof.shown,
                    "evidence": step.proof.sentence,
                    "facts": dict(step.proof.facts),
                    **asdict(rows.get(number, Counts())),
                }
                for number, step in enumerate(self.steps, start=1)
            ],
            "partitions": [{"partition": number} | asdict(row) for number, row in ordered(self.partitions)],
            "total": asdict(self.total),
            "bytes": self.experiment.tally.bytes_delivered,
            "seconds": round(self.experiment.seconds, 3),
            "seconds_to_read_back": round(self.seconds_to_read, 3),
            "records_per_second": round(self.rate, 1),
            "latency_ms": {f"p{percent}": _milliseconds(latencies.percentile(percent)) for percent in (50, 95)},
            "errors": [
                {"code": kind.code, "count": kind.count, "advice": kind.sentence}
                for kind in self.experiment.tally.ranked_errors()
            ],
            "limits": list(self.limits),
            "stopped_by": self.stop.signal.name if self.stop.signal is not None else None,
            "verdict": self.sentence(),
            "exit_code": self.exit_code,
        }


def ordered(rows: Mapping[Row, Counts]) -> list[tuple[Row, Counts]]:
    """By number; what belongs nowhere comes last."""
    return sorted(rows.items(), key=lambda item: math.inf if item[0] is None else item[0])


def words(column: str) -> str:
    """A column's name for a person."""
    return column.replace("_", " ")


def _counted(total: Counts) -> str:
    return ", ".join(f"{getattr(total, name):,} {name}" for name in _TOLD)


def _milliseconds(seconds: float) -> float | None:
    return None if math.isnan(seconds) else round(seconds * 1000, 3)


_COLUMNS = ("accepted", "delivered", "not_written", "unknown", "lost", "duplicated", "reordered")
_TOLD = _COLUMNS[-3:]
"""Told where they are 0, too."""
# Shown only where there is something to show; the JSON has all.
_RARE = ("refused", "unexpected", "contradicted", "unconfirmed")
_WIDE = 120
"""Columns of a terminal that has room for the whole table."""
_BAR_WIDTH = 24
_LEAST_BAR = 8
_SPARK_WIDTH = 48
_TIMELINE_WIDTH = 80


def show(result: Result, screen: Screen) -> None:
    """Write the result to stdout and what went wrong to stderr."""
    for error in result.experiment.tally.ranked_errors():
        screen.error(f"{error.count:,} failed with {error.code}: {error.sentence}")
    why_left = result.experiment.why_left
    if why_left is not None:
        screen.error(f"{result.experiment.tally.left:,} left without acknowledgement. {why_left}")
    if result.stop.signal is not None:
        screen.warn(f"Stopped by {result.stop.signal.name}; what was sent until then has been compared.")
    if result.not_shown and not result.stop:
        steps = ", ".join(map(str, result.not_shown))
        screen.error(f"No proof by step {steps}: what it was to show did not happen.")
    if screen.json_output:
        screen.result_json(result.document())
        return
    _draw(result, screen)
    if not result.total.flawless:
        screen.error(result.sentence())


def _draw(result: Result, screen: Screen) -> None:
    from rich.text import Text  # noqa: PLC0415 - rich is an extra

    plain = not screen.out.encoding.lower().startswith("utf")
    if result.steps:
        names = {number: f"{number} {step.name}" for number, step in enumerate(result.steps, start=1)}
        _table(result, screen, "step", {names.get(row or 0): n for row, n in ordered(result.step_rows or {})}, {})
        _draw_timeline(result, screen, plain)
    else:
        rows = {None if row is None else str(row): counts for row, counts in ordered(result.partitions)}
        largest = max((counts.in_log for counts in rows.values()), default=0)
        columns = [len(words(name)) for name in ("partition", *_names(result, screen))]
        width = min(_BAR_WIDTH, screen.out.width - sum(columns) - 3 * len(columns) - 4)
        pictures = {row: bar(counts.in_log, largest, width, ascii_only=plain) for row, counts in rows.items()}
        _table(result, screen, "partition", rows, pictures if width >= _LEAST_BAR else {})
    latencies = result.experiment.latencies
    if len(latencies):
        screen.result(
            f"throughput  {result.rate:,.0f} records/s, {result.experiment.tally.bytes_delivered:,} bytes "
            f"in {result.experiment.seconds:.2f} s; read back in {result.seconds_to_read:.2f} s"
        )
        p50, p95 = latencies.percentile(50) * 1000, latencies.percentile(95) * 1000
        screen.result(f"latency     p50 {p50:.1f} ms, p95 {p95:.1f} ms from produce() to report; peaks during the run:")
        width = min(_SPARK_WIDTH, screen.out.width - 12)
        screen.result(f"            {latencies.sparkline(width, ascii_only=plain)}")
    if result.total.flawless:
        screen.result(Text(result.sentence(), style="green"))
    for limit in result.limits:
        screen.result(Text(limit, style="dim"))


def _names(result: Result, screen: Screen) -> tuple[str, ...]:
    """The columns: on a narrow terminal those of flaws only where there are some."""
    found = tuple(name for name in (*_COLUMNS, *_RARE) if getattr(result.total, name))
    if screen.out.width < _WIDE:
        return tuple(dict.fromkeys((*_COLUMNS[:2], *found)))
    return tuple(dict.fromkeys((*_COLUMNS, *found)))


def _table(
    result: Result, screen: Screen, first: str, rows: Mapping[str | None, Counts], pictures: Mapping[str | None, str]
) -> None:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    names = _names(result, screen)
    table = Table(
        title=f"{len(result.experiment.names):,} files to {result.cluster}, topic {result.topic}",
        title_justify="left",
        show_footer=True,
    )
    table.add_column(first, "total")
    for name in names:
        count = getattr(result.total, name)
        table.add_column(words(name), Text(f"{count:,}", style=_style(name, count)), justify="right", no_wrap=True)
    if pictures:
        table.add_column("records in the log")
    for row, counts in rows.items():
        cells = [Text(f"{getattr(counts, name):,}", style=_style(name, getattr(counts, name))) for name in names]
        picture = [Text(pictures[row], style="cyan")] if pictures else []
        table.add_row("none" if row is None else row, *cells, *picture)
    screen.result(table)


def _draw_timeline(result: Result, screen: Screen, plain: bool) -> None:
    """A line for each partition: when its records were acknowledged. Above it, where each step began."""
    experiment = result.experiment
    if not experiment.values:
        return
    start, end = experiment.accepted_at[0], experiment.accepted_at[0] + experiment.seconds
    width = min(_TIMELINE_WIDTH, screen.out.width - 3)
    times: dict[int, list[float]] = {}
    for number in range(len(experiment.values)):
        fate = experiment.fate(number)
        if fate.partition is not None:
            times.setdefault(fate.partition, []).append(experiment.reported_at[number])
    counts = {place: histogram(found, start, end, width) for place, found in sorted(times.items())}
    largest = max((max(row) for row in counts.values()), default=0)
    marks = [" "] * width
    for number, step in enumerate(result.steps, start=1):
        if step.first < len(experiment.values):
            marks[column(experiment.accepted_at[step.first], start, end, width)] = str(number)
    screen.result(f"acknowledged during the {experiment.seconds:.1f} s, by partition; above, where each step begins")
    screen.result(f"   {''.join(marks).rstrip()}")
    for place, row in counts.items():
        screen.result(f"{place:>2} {timeline(row, largest, ascii_only=plain)}")


def _style(name: str, count: int) -> str:
    if not count or name == "accepted":
        return ""
    return "green" if name == "delivered" else "bold red"
