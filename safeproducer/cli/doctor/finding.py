"""The result of a check."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


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
