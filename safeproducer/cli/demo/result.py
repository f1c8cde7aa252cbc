"""This module tells how a demonstration ended: exit status, sentence, JSON, or a table and a time line for a person."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.stop import NOT_ALL_DELIVERED
from safeproducer.cli.demo.experiment import COLUMNS, FLAWS, Experiment, compare, flawless, total_of
from safeproducer.cli.demo.steps import Step

_TOLD = ("lost", "duplicated", "reordered")
"""Told where they are 0, too."""
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
        self._latencies = sorted((record.reported_at - record.accepted_at) * 1000 for record in delivered)

    def percentile(self, percent: int) -> float | None:
        """The nearest-rank percentile of milliseconds from produce() to the report."""
        ranked = self._latencies
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
        """Write the result to stdout and what went wrong to stderr. `limits` say what this cluster cannot show."""
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
        self._draw(screen, cluster)
        for text in (*([self.verdict] if flawless(self.total) else []), *limits):
            screen.result(text)
        if not flawless(self.total):
            screen.error(self.verdict)

    def _draw(self, screen: Screen, cluster: str) -> None:
        """A table with a row for each step, or for each partition, and the time line of the steps."""
        # On a narrow terminal every column has to fit: those of flaws are there where something is in them.
        names = [name for name in COLUMNS if name in ("accepted", "delivered") or name in _TOLD or self.total[name]]
        if screen.out.width < 100:
            names = [name for name in names if self.total[name] or name == "delivered"]
        rows = {"none" if number is None else str(number): row for number, row in self.partitions.items()}
        if self.steps:
            rows = {f"{number} {step.name}": self.by_step.get(number, Counter()) for number, step in self.steps.items()}
        rows |= {"total": self.total}
        columns = ["step" if self.steps else "partition", *(name.replace("_", " ") for name in names)]
        cells = [[label, *(f"{row[name]:,}" for name in names)] for label, row in rows.items()]
        files = len({record.key for record in self.experiment.records})
        screen.table(f"{files:,} files to {cluster}, topic {self.experiment.topic}", columns, cells, None)
        if self.steps and self.experiment.records:
            _draw_timeline(self.experiment, screen)
        if self.rate:
            screen.result(
                f"throughput  {self.rate:,.0f} records/s, {self.bytes:,} bytes in {self.experiment.seconds:.2f} s; "
                f"read back in {self.seconds_to_read:.2f} s\n"
                f"latency     p50 {self.percentile(50):.1f} ms, p95 {self.percentile(95):.1f} ms to the report"
            )


def verdict(total: Counter[str], *, in_steps: bool) -> str:
    """The outcome in one sentence."""
    if not flawless(total):
        flaws = ", ".join(f"{total[it]:,} {it.replace('_', ' ')}" for it in FLAWS if total[it] or it in _TOLD)
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


def _draw_timeline(experiment: Experiment, screen: Screen) -> None:
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
    plain = not screen.out.encoding.lower().startswith("utf")
    screen.result(f"acknowledged during the {experiment.seconds:.1f} s, by partition; above, where each step begins")
    screen.result(f"   {''.join(marks).rstrip()}")
    for partition, row in sorted(counts.items()):
        screen.result(f"{partition:>2} {picture(map(row.__getitem__, range(width)), largest, plain=plain)}")
