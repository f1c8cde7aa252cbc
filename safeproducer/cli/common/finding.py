"""The result of a check, and how a person sees it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
