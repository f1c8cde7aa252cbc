"""How a run of ``produce`` ended: exit status, sentences for a person, table, JSON."""

from dataclasses import dataclass
from typing import Any

from safeproducer.cli.common.failure import NOT_ALL_DELIVERED
from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.stop import StopRequest
from safeproducer.cli.common.tally import ErrorCount, Tally


@dataclass(frozen=True, slots=True)
class Summary:
    """The end of a run. ``problem`` and ``why_left`` are sentences or None."""

    topic: str
    tally: Tally
    seconds: float
    stop: StopRequest
    problem: str | None
    why_left: str | None

    @property
    def exit_code(self) -> int:
        """0 all delivered, 1 not all, 128 + signal when stopped by one."""
        if self.stop:
            return self.stop.exit_code
        complete = not (self.tally.failed or self.tally.left or self.problem)
        return 0 if complete else NOT_ALL_DELIVERED

    @property
    def rate(self) -> float:
        """Delivered records per second."""
        return self.tally.delivered / self.seconds if self.seconds > 0 else 0.0

    def show(self, screen: Screen) -> None:
        """Write the sentences to stderr, then the table or JSON to stdout."""
        for error in self.tally.ranked_errors():
            screen.error(f"{_records(error.count)} failed with {error.code} ({_where(error)}): {error.sentence}")
        if self.problem is not None:
            screen.error(self.problem)
        if self.tally.left:
            screen.error(
                f"{_records(self.tally.left)} left without acknowledgement, each of which may or may not be in the "
                f"log. {self.why_left or ''}".rstrip()
            )
        if self.stop.signal is not None:
            screen.warn(f"Stopped by {self.stop.signal.name} after line {self.tally.last_line}.")
        if self.exit_code:
            screen.warn(self._resume())
        if screen.json_output:
            screen.result_json(self.document())
        elif not screen.quiet:
            screen.result(self._table(screen))

    def _resume(self) -> str:
        through = self.tally.delivered_through()
        later = self.tally.delivered - through
        start = f"Every line up to line {through} is delivered" if through else "Line 1 is not delivered"
        repeats = f", and would repeat {later:,} delivered after it" if later else ""
        return f"{start}: a run that begins at line {through + 1} misses nothing{repeats}."

    def document(self) -> dict[str, Any]:
        """Return the JSON form."""
        tally = self.tally
        return {
            "command": "produce",
            "topic": self.topic,
            "sent": tally.sent,
            "delivered": tally.delivered,
            "failed": tally.failed,
            "left": tally.left,
            "bytes": tally.bytes_delivered,
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.rate, 1),
            "last_line": tally.last_line,
            "delivered_through_line": tally.delivered_through(),
            "errors": [
                {"code": kind.code, "count": kind.count, "first_lines": kind.lines, "advice": kind.sentence}
                for kind in tally.ranked_errors()
            ],
            "problem": self.problem,
            "stopped_by": self.stop.signal.name if self.stop.signal is not None else None,
            "exit_code": self.exit_code,
        }

    def _table(self, screen: Screen) -> Any:
        from rich.table import Table  # noqa: PLC0415 - rich is an extra

        tally = self.tally
        table = Table(title=f"topic {self.topic}", title_justify="left", show_header=False)
        table.add_column(style="dim")
        table.add_column(justify="right")
        table.add_row("sent", f"{tally.sent:,}")
        table.add_row("delivered", f"{tally.delivered:,}", style="green" if tally.delivered else None)
        table.add_row("failed", f"{tally.failed:,}", style="red" if tally.failed else None)
        for kind in tally.ranked_errors():
            table.add_row(f"  {screen.redact(kind.code)}", f"{kind.count:,}")
        table.add_row("left without acknowledgement", f"{tally.left:,}", style="red" if tally.left else None)
        table.add_row("bytes delivered", f"{tally.bytes_delivered:,}")
        table.add_row("seconds", f"{self.seconds:,.2f}")
        table.add_row("records/s", f"{self.rate:,.0f}")
        return table


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count:,} records"


def _where(error: ErrorCount) -> str:
    lines = ", ".join(str(line) for line in error.lines)
    more = ", ..." if error.count > len(error.lines) else ""
    return f"line {lines}" if error.count == 1 else f"lines {lines}{more}"
