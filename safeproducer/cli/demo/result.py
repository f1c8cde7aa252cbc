"""This module tells how a demonstration ended: exit status, sentence, JSON, or a table and pictures for a person."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.stop import NOT_ALL_DELIVERED
from safeproducer.cli.demo.experiment import COLUMNS, FLAWS, Experiment, compare, flawless, total_of
from safeproducer.cli.demo.steps import Step

_MOST = ("accepted", "delivered", "not_written", "unknown", "lost", "duplicated", "reordered")
_TOLD = _MOST[-3:]
"""Told where they are 0, too."""
# Shown only where there is something to show; the JSON has all.
_RARE = ("refused", "unexpected", "contradicted", "unconfirmed")
_WIDE = 120
"""Columns of a terminal that has room for the whole table."""
_BAR_WIDTH = 24
_LEAST_BAR = 8
_SPARK_WIDTH = 48
_TIMELINE_WIDTH = 80


class Result:
    """The comparison of an experiment with the log that was read back, and what a person needs around it."""

    def __init__(
        self, experiment: Experiment, steps: Sequence[Step], log: Sequence[tuple[int, bytes]], seconds_to_read: float
    ) -> None:
        self.experiment = experiment
        self.steps = dict(enumerate(steps, start=1))
        self.partitions = compare(experiment.records, log)
        self.by_step = compare(experiment.records, log, by_step=True) if steps else {}
        self.total = total_of(self.partitions)
        self.seconds_to_read = seconds_to_read
        self.not_shown = [number for number, step in self.steps.items() if not step.proof.shown]
        good = flawless(self.total) and not self.not_shown
        self.exit_code = experiment.stop.exit_code or (0 if good else NOT_ALL_DELIVERED)
        self.verdict = verdict(self.total, in_steps=bool(steps))
        delivered = [record for record in experiment.records if record.fate == "delivered"]
        self.bytes = sum(len(record.value) + len(record.key) for record in delivered)
        self.rate = len(delivered) / experiment.seconds if delivered else 0.0
        self.latencies = [(record.reported_at - record.accepted_at) * 1000 for record in delivered]

    def percentile(self, percent: int) -> float | None:
        """The nearest-rank percentile of milliseconds from ``produce()`` to the report."""
        ranked = sorted(self.latencies)
        return round(ranked[math.ceil(len(ranked) * percent / 100) - 1], 3) if ranked else None

    def document(self, cluster: str, limits: Sequence[str]) -> dict[str, Any]:
        experiment, stopped_by = self.experiment, self.experiment.stop.signal
        return {
            "command": "demo",
            "cluster": cluster,
            "topic": experiment.topic,
            "files": len({record.key for record in experiment.records}),
            "steps": [
                {"step": number, "name": step.name, "title": step.title, **step.proof._asdict()}
                | _all(self.by_step.get(number, Counter()))
                for number, step in self.steps.items()
            ],
            "partitions": [{"partition": number, **_all(row)} for number, row in self.partitions.items()],
            "total": _all(self.total),
            "bytes": self.bytes,
            "seconds": round(experiment.seconds, 3),
            "seconds_to_read_back": round(self.seconds_to_read, 3),
            "records_per_second": round(self.rate, 1),
            "latency_ms": {f"p{percent}": self.percentile(percent) for percent in (50, 95)},
            "errors": [
                {"code": code, "count": count, "advice": experiment.advised[code]}
                for code, count in experiment.failures.most_common()
            ],
            "limits": list(limits),
            "stopped_by": None if stopped_by is None else stopped_by.name,
            "verdict": self.verdict,
            "exit_code": self.exit_code,
        }

    def show(self, screen: Screen, cluster: str, limits: Sequence[str]) -> None:
        """Write the result to stdout and what went wrong to stderr. ``limits`` say what this cluster cannot show."""
        experiment = self.experiment
        for code, count in experiment.failures.most_common():
            screen.error(f"{count:,} failed with {code}: {experiment.advised[code]}")
        if experiment.why_left is not None:
            screen.error(f"{experiment.left:,} left without acknowledgement. {experiment.why_left}")
        if experiment.stop.signal is not None:
            screen.warn(f"Stopped by {experiment.stop.signal.name}; what was sent until then has been compared.")
        elif self.not_shown:
            steps = ", ".join(map(str, self.not_shown))
            screen.error(f"No proof by step {steps}: what it was to show did not happen.")
        if screen.json_output:
            screen.result_json(self.document(cluster, limits))
            return
        _draw(self, screen, cluster, limits)
        if not flawless(self.total):
            screen.error(self.verdict)


def verdict(total: Counter[str], *, in_steps: bool) -> str:
    """The outcome in one sentence."""
    if not flawless(total):
        flaws = ", ".join(f"{total[name]:,} {_words(name)}" for name in FLAWS if total[name] or name in _TOLD)
        return f"Of {total['accepted'] + total['refused']:,} records {total['delivered']:,} were delivered: {flaws}."
    order = "each partition in the order of produce()" if in_steps else "each file's lines in order"
    told = ", ".join(f"{total[name]:,} {name}" for name in _TOLD)
    exact = f"the log holds each of them exactly once and {order}"
    return f"All {total['accepted']:,} records were delivered, {told}; {exact}."


def picture(values: Iterable[float], largest: float, *, plain: bool) -> str:
    """One character for each value; the first one is for none at all.

    Heights go by the square root, or a burst would make everything else look flat.
    """
    glyphs = " .:-=+*#@" if plain else "·▁▂▃▄▅▆▇█"
    scale = (len(glyphs) - 1) / math.sqrt(largest) if largest > 0 else 0.0
    return "".join(glyphs[min(len(glyphs) - 1, math.ceil(math.sqrt(value) * scale))] for value in values)


def _all(row: Counter[str]) -> dict[str, int]:
    return {name: row[name] for name in COLUMNS}


def _words(column: str) -> str:
    """A column's name for a person."""
    return column.replace("_", " ")


def _draw(result: Result, screen: Screen, cluster: str, limits: Sequence[str]) -> None:
    from rich.text import Text  # noqa: PLC0415 - rich is an extra

    plain, latencies = not screen.out.encoding.lower().startswith("utf"), result.latencies
    _draw_table(result, screen, cluster, plain)
    if result.steps and result.experiment.records:
        _draw_timeline(result.experiment, screen, plain)
    if latencies:
        screen.result(
            f"throughput  {result.rate:,.0f} records/s, {result.bytes:,} bytes in {result.experiment.seconds:.2f} s; "
            f"read back in {result.seconds_to_read:.2f} s\n"
            f"latency     p50 {result.percentile(50):.1f} ms, p95 {result.percentile(95):.1f} ms from produce() to "
            f"report; peaks during the run:"
        )
        step = math.ceil(len(latencies) / min(_SPARK_WIDTH, screen.out.width - 12))
        peaks = [max(latencies[start : start + step]) for start in range(0, len(latencies), step)]
        screen.result(f"            {picture(peaks, max(peaks), plain=plain)}")
    if flawless(result.total):
        screen.result(Text(result.verdict, style="green"))
    for limit in limits:
        screen.result(Text(limit, style="dim"))


def _draw_table(result: Result, screen: Screen, cluster: str, plain: bool) -> None:
    """A row for each step, or for each partition, with a bar where there is room for it."""
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    # A narrow terminal has columns of flaws only where there are some.
    always = _MOST if screen.out.width >= _WIDE else _MOST[:2]
    names = tuple(dict.fromkeys((*always, *(name for name in (*_MOST, *_RARE) if result.total[name]))))
    styles = {"accepted": "", "delivered": "green"}

    def cell(row: Counter[str], name: str) -> Text:
        return Text(f"{row[name]:,}", style=styles.get(name, "bold red") if row[name] else "")

    title = f"{len({record.key for record in result.experiment.records}):,} files to {cluster}"
    table = Table(title=f"{title}, topic {result.experiment.topic}", title_justify="left", show_footer=True)
    table.add_column("step" if result.steps else "partition", "total")
    for name in names:
        table.add_column(_words(name), cell(result.total, name), justify="right", no_wrap=True)
    room = screen.out.width - sum(len(_words(name)) + 3 for name in ("partition", *names)) - 4
    rows, width = result.by_step or result.partitions, min(_BAR_WIDTH, room)
    largest = max((row["in_log"] for row in rows.values()), default=0)
    barred = not result.steps and width >= _LEAST_BAR and largest > 0
    if barred:
        table.add_column("records in the log", style="cyan")
    for number, row in rows.items():
        label = "none" if number is None else f"{number} {result.steps[number].name}" if result.steps else str(number)
        bar = [("#" if plain else "█") * round(width * row["in_log"] / largest)] if barred else []
        table.add_row(label, *(cell(row, name) for name in names), *bar)
    screen.result(table)


def _draw_timeline(experiment: Experiment, screen: Screen, plain: bool) -> None:
    """A line for each partition: when its records were acknowledged. Above it, where each step began."""
    start, width = experiment.records[0].accepted_at, min(_TIMELINE_WIDTH, screen.out.width - 3)
    marks, counts = [" "] * width, defaultdict[int, Counter[int]](Counter)

    def column(moment: float) -> int:
        return min(width - 1, int((moment - start) / max(experiment.seconds, 1e-9) * width))

    for first in {record.step: record for record in reversed(experiment.records)}.values():
        marks[column(first.accepted_at)] = str(first.step)
    for record in experiment.records:
        if record.partition is not None:
            counts[record.partition][column(record.reported_at)] += 1
    largest = max((max(row.values()) for row in counts.values()), default=0)
    screen.result(f"acknowledged during the {experiment.seconds:.1f} s, by partition; above, where each step begins")
    screen.result(f"   {''.join(marks).rstrip()}")
    for partition, row in sorted(counts.items()):
        screen.result(f"{partition:>2} {picture(map(row.__getitem__, range(width)), largest, plain=plain)}")
