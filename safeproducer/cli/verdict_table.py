"""The result of a demonstration for a person: a table and a picture on stdout, what went wrong on stderr."""

from collections.abc import Mapping

from safeproducer.cli.comparison import Counts
from safeproducer.cli.latency import bar
from safeproducer.cli.screen import Screen
from safeproducer.cli.timeline import column, histogram, timeline
from safeproducer.cli.verdict import Verdict, ordered, words

_COLUMNS = ("accepted", "delivered", "not_written", "unknown", "lost", "duplicated", "reordered")
# Shown only where there is something to show; the JSON has all.
_RARE = ("refused", "unexpected", "contradicted", "unconfirmed")
_BAR_WIDTH = 24
_SPARK_WIDTH = 48
_TIMELINE_WIDTH = 80


def show(verdict: Verdict, screen: Screen) -> None:
    """Write the result to stdout and what went wrong to stderr."""
    for error in verdict.experiment.tally.ranked_errors():
        screen.error(f"{error.count:,} failed with {error.code}: {error.sentence}")
    why_left = verdict.experiment.why_left
    if why_left is not None:
        screen.error(f"{verdict.experiment.tally.left:,} left without acknowledgement. {why_left}")
    if verdict.stop.signal is not None:
        screen.warn(f"Stopped by {verdict.stop.signal.name}; what was sent until then has been compared.")
    if verdict.not_shown and not verdict.stop:
        steps = ", ".join(map(str, verdict.not_shown))
        screen.error(f"Nothing is proved by step {steps}: what it was to show did not happen.")
    if screen.json_output:
        screen.result_json(verdict.document())
        return
    _draw(verdict, screen)
    if not verdict.total.flawless:
        screen.error(verdict.sentence())


def _draw(verdict: Verdict, screen: Screen) -> None:
    from rich.text import Text  # noqa: PLC0415 - rich is an extra

    plain = not screen.out.encoding.lower().startswith("utf")
    if verdict.steps:
        names = {number: f"{number} {step.name}" for number, step in enumerate(verdict.steps, start=1)}
        _table(verdict, screen, "step", {names.get(row or 0): n for row, n in ordered(verdict.step_rows or {})}, {})
        _draw_timeline(verdict, screen, plain)
    else:
        rows = {None if row is None else str(row): counts for row, counts in ordered(verdict.partitions)}
        largest = max((counts.in_log for counts in rows.values()), default=0)
        pictures = {row: bar(counts.in_log, largest, _BAR_WIDTH, ascii_only=plain) for row, counts in rows.items()}
        _table(verdict, screen, "partition", rows, pictures)
    latencies = verdict.experiment.latencies
    if len(latencies):
        screen.result(
            f"throughput  {verdict.rate:,.0f} records/s, {verdict.experiment.tally.bytes_delivered:,} bytes "
            f"in {verdict.experiment.seconds:.2f} s; read back in {verdict.seconds_to_read:.2f} s"
        )
        p50, p95 = latencies.percentile(50) * 1000, latencies.percentile(95) * 1000
        screen.result(f"latency     p50 {p50:.1f} ms, p95 {p95:.1f} ms from produce() to report; peaks during the run:")
        screen.result(f"            {latencies.sparkline(_SPARK_WIDTH, ascii_only=plain)}")
    if verdict.total.flawless:
        screen.result(Text(verdict.sentence(), style="green"))
    for limit in verdict.limits:
        screen.result(Text(limit, style="dim"))


def _table(
    verdict: Verdict, screen: Screen, first: str, rows: Mapping[str | None, Counts], pictures: Mapping[str | None, str]
) -> None:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    names = (*_COLUMNS, *(name for name in _RARE if getattr(verdict.total, name)))
    table = Table(
        title=f"{len(verdict.experiment.names):,} files to {verdict.cluster}, topic {verdict.topic}",
        title_justify="left",
        show_footer=True,
    )
    table.add_column(first, "total")
    for name in names:
        count = getattr(verdict.total, name)
        table.add_column(words(name), Text(f"{count:,}", style=_style(name, count)), justify="right")
    if pictures:
        table.add_column("records in the log")
    for row, counts in rows.items():
        cells = [Text(f"{getattr(counts, name):,}", style=_style(name, getattr(counts, name))) for name in names]
        picture = [Text(pictures[row], style="cyan")] if pictures else []
        table.add_row("none" if row is None else row, *cells, *picture)
    screen.result(table)


def _draw_timeline(verdict: Verdict, screen: Screen, plain: bool) -> None:
    """A line for each partition: when its records were acknowledged. Above it, where each step began."""
    experiment = verdict.experiment
    if not experiment.values:
        return
    start, end = experiment.accepted_at[0], experiment.accepted_at[0] + experiment.seconds
    times: dict[int, list[float]] = {}
    for number in range(len(experiment.values)):
        fate = experiment.fate(number)
        if fate.partition is not None:
            times.setdefault(fate.partition, []).append(experiment.reported_at[number])
    counts = {place: histogram(found, start, end, _TIMELINE_WIDTH) for place, found in sorted(times.items())}
    largest = max((max(row) for row in counts.values()), default=0)
    marks = [" "] * _TIMELINE_WIDTH
    for number, step in enumerate(verdict.steps, start=1):
        if step.first < len(experiment.values):
            marks[column(experiment.accepted_at[step.first], start, end, _TIMELINE_WIDTH)] = str(number)
    screen.result(f"acknowledged during the {experiment.seconds:.1f} s, by partition; above, where each step begins")
    screen.result(f"   {''.join(marks).rstrip()}")
    for place, row in counts.items():
        screen.result(f"{place:>2} {timeline(row, largest, ascii_only=plain)}")


def _style(name: str, count: int) -> str:
    if not count or name == "accepted":
        return ""
    return "green" if name == "delivered" else "bold red"
