"""How long a task waits while nothing is acknowledged. Decides from its arguments."""

from __future__ import annotations

from enum import Enum

ASK_AFTER = 10.0
"""Seconds without a report after which a task asks whether the topic is there and whether brokers answer; and between
two questions."""
UNREACHABLE_AFTER = 20.0
"""Seconds without a report and without any broker after which a task ends; what is left of its 30 s is for asking."""
_SILENT = 2
"""Questions without an answer after which brokers that nobody throttles count as gone."""


class Verdict(Enum):
    """`ASK`: is anybody there? `UNREACHABLE`, `TOO_LATE`: the task has to end."""

    WAIT = "wait"
    ASK = "ask"
    UNREACHABLE = "unreachable"
    TOO_LATE = "too_late"


class Patience:
    """While rows are on their way, for at most `deadline` seconds without progress. `now`: seconds of any clock."""

    def __init__(self, deadline: float, resolved: int, now: float) -> None:
        self._deadline = deadline
        self._resolved = resolved
        self._since = self._asked_at = now
        self._unanswered = 0

    def look(self, resolved: int, all_down: bool, now: float) -> Verdict:
        """`resolved`: reports so far; `all_down`: no broker can be reached, as far as is known."""
        if resolved != self._resolved:
            self._resolved, self._since, self._asked_at, self._unanswered = resolved, now, now, 0
        quiet = now - self._since
        if quiet >= UNREACHABLE_AFTER and (all_down or self._unanswered >= _SILENT):
            return Verdict.UNREACHABLE
        if quiet >= self._deadline:
            return Verdict.TOO_LATE
        if now - self._asked_at >= ASK_AFTER:
            self._asked_at = now
            return Verdict.ASK
        return Verdict.WAIT

    def asked(self, answered: bool) -> None:
        """How the question ended that ASK was for."""
        self._unanswered = 0 if answered else self._unanswered + 1
