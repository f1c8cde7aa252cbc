"""How a demonstration ended: exit status, table with a picture, JSON."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from safeproducer.cli.comparison import Counts
from safeproducer.cli.experiment import Experiment
from safeproducer.cli.failure import NOT_ALL_DELIVERED
from safeproducer.cli.latency import bar
from safeproducer.cli.screen import Screen
from safeproducer.cli.stop import StopRequest

_COLUMNS = ("sent", "delivered", "lost", "duplicated", "reordered")
# Shown only where there is something to show; the JSON has all.
_RARE = ("failed", "left", "unexpected", "unconfirmed")
_BAR_WIDTH = 24
_SPARK_WIDTH = 48


@dataclass(frozen=True, slots=True)
class Verdict:
    """The comparison with what a person needs around it. ``limits`` are sentences about what it cannot show."""

    cluster: str
    topic: str
    rows: Mapping[int | None, Counts]
    total: Counts
    experiment: Experiment
    seconds_to_read: float
    limits: tuple[str, ...]
    stop: StopRequest

    @property
    def exit_code(self) -> int:
        """0 only if nothing is wrong; 128 + signal when stopped by one."""
        if self.stop:
            return self.stop.exit_code
        return 0 if self.total.flawless else NOT_ALL_DELIVERED

    @property
    def rate(self) -> float:
        """Delivered records per second, from the first produce() to the last report."""
        return self.total.delivered / self.experiment.seconds if self.experiment.seconds > 0 else 0.0

    def sentence(self) -> str:
        """Say the result."""
        total = self.total
        if total.flawless:
            return (
                f"All {total.sent:,} records were delivered; the log holds each of them exactly once and each "
                "file's lines in order."
            )
        flaws = [
            f"{getattr(total, name):,} {name}"
            for name in ("failed", "left", "lost", "duplicated", "reordered", "unexpected")
            if getattr(total, name)
        ]
        return f"Of {total.sent:,} records {total.delivered:,} were delivered: {', '.join(flaws) or 'none failed'}."

    def show(self, screen: Screen) -> None:
        """Write the result to stdout and what went wrong to stderr."""
        for error in self.experiment.tally.ranked_errors():
            screen.error(f"{error.count:,} failed with {error.code}: {error.sentence}")
        if self.experiment.why_left is not None:
            screen.error(f"{self.total.left:,} left without acknowledgement. {self.experiment.why_left}")
        if self.stop.signal is not None:
            screen.warn(f"Stopped by {self.stop.signal.name}; what was sent until then has been compared.")
        if screen.json_output:
            screen.result_json(self.document())
        else:
            self._draw(screen)
            if not self.total.flawless:
                screen.error(self.sentence())

    def document(self) -> dict[str, Any]:
        """Return the JSON form."""
        latencies = self.experiment.latencies
        return {
            "command": "demo",
            "cluster": self.cluster,
            "topic": self.topic,
            "files": len(self.experiment.names),
            "partitions": [{"partition": number} | asdict(row) for number, row in self._ordered()],
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

    def _ordered(self) -> list[tuple[int | None, Counts]]:
        return sorted(self.rows.items(), key=lambda item: math.inf if item[0] is None else item[0])

    def _draw(self, screen: Screen) -> None:
        from rich.table import Table  # noqa: PLC0415 - rich is an extra
        from rich.text import Text  # noqa: PLC0415

        plain = not screen.out.encoding.lower().startswith("utf")
        rare = [name for name in _RARE if getattr(self.total, name)]
        table = Table(
            title=f"{len(self.experiment.names):,} files to {self.cluster}, topic {self.topic}",
            title_justify="left",
            show_footer=True,
        )
        table.add_column("partition", "total")
        for name in (*_COLUMNS, *rare):
            count = getattr(self.total, name)
            table.add_column(name, Text(f"{count:,}", style=_style(name, count)), justify="right")
        table.add_column("records in the log")
        largest = max((row.in_log for row in self.rows.values()), default=0)
        for number, row in self._ordered():
            cells = [
                Text(f"{getattr(row, name):,}", style=_style(name, getattr(row, name))) for name in (*_COLUMNS, *rare)
            ]
            picture = bar(row.in_log, largest, _BAR_WIDTH, ascii_only=plain)
            table.add_row("none" if number is None else str(number), *cells, Text(picture, style="cyan"))
        screen.result(table)

        latencies = self.experiment.latencies
        if len(latencies):
            screen.result(
                f"throughput  {self.rate:,.0f} records/s, {self.experiment.tally.bytes_delivered:,} bytes "
                f"in {self.experiment.seconds:.2f} s; read back in {self.seconds_to_read:.2f} s"
            )
            p50, p95 = latencies.percentile(50) * 1000, latencies.percentile(95) * 1000
            screen.result(
                f"latency     p50 {p50:.1f} ms, p95 {p95:.1f} ms from produce() to report; peaks during the run:"
            )
            screen.result(f"            {latencies.sparkline(_SPARK_WIDTH, ascii_only=plain)}")
        if self.total.flawless:
            screen.result(Text(self.sentence(), style="green"))
        for limit in self.limits:
            screen.result(Text(limit, style="dim"))


def _style(name: str, count: int) -> str:
    if not count or name == "sent":
        return ""
    return "green" if name == "delivered" else "bold red"


def _milliseconds(seconds: float) -> float | None:
    return None if math.isnan(seconds) else round(seconds * 1000, 3)
