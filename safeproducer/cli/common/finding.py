"""Checks return findings; here numbers become words of a person, too. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import groupby
from typing import Any

from safeproducer.cli.common.screen import Screen

_MOST = 10


class Severity(StrEnum):
    """How bad a finding is. All but INFO make the command exit with 1."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """`code` is stable, `message` and `cure` are sentences; `topic`, `partition` and `broker` where they apply."""

    severity: Severity
    code: str
    message: str
    cure: str
    topic: str | None = None
    partition: int | None = None
    broker: int | None = None

    def document(self) -> dict[str, Any]:
        """Return the JSON form, without what does not apply."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 1 if one of them is a warning or an error, else 0."""
    return int(any(finding.severity is not Severity.INFO for finding in findings))


_STYLES = {Severity.INFO: "dim", Severity.WARNING: "yellow", Severity.ERROR: "bold red"}


def draw_findings(screen: Screen, findings: Sequence[Finding], *, failed: bool) -> None:
    """Draw the first of each kind."""
    from rich.text import Text  # noqa: PLC0415 - rich is an extra

    for (severity, code), same in groupby(findings, key=lambda finding: (finding.severity, finding.code)):
        found = list(same)
        for finding in found[:_MOST]:
            text = Text(f"{severity.value}: ", style=_STYLES[severity])
            screen.result(text.append(f"{code}: {finding.message}\n  {finding.cure}", style="default"))
        if len(found) > _MOST:
            screen.result(f"{len(found) - _MOST:,} more of {code}: --json shows all")
    if not findings and not failed:
        screen.result("Nothing was found.")


_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def span(seconds: float) -> str:
    """A time in its largest unit: 45 s, 12 min, 3.5 h, 2 d."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.0f} s"


def moment(seconds: float) -> str:
    """A time since 1970 in UTC, to the minute."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def some(names: list[str], most: int = 3) -> str:
    """The first of these names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
