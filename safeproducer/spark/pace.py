"""How many rows one attempt of a task may have under way, and how long it waits for their reports.

The deadline of a row begins when the producer accepts it, and its buffer takes 100 000 rows at once: throttled brokers
may need minutes for them.
"""

from __future__ import annotations

from enum import Enum

AT_ONCE = 4 << 20
"""Bytes of keys and values that may be under way whatever brokers take, and that are sent without a look at it."""
_LOOK_EVERY = AT_ONCE // 2
_BURST, _BURST_SECONDS, _BURST_DEADLINE = 4, 1.0, 15.0
"""The first second takes 4 times as much, once for each 15 s of the deadline at most: how much brokers take shows
only then, and quick ones must not wait for it."""
_PART_OF_DEADLINE = 0.125
"""One broker of several may take less than its share, and serve its partitions one after the other."""
ASK_AFTER = 10.0
"""Seconds without a report, or since the last question, after which a task asks for the topic, and who answers."""
UNREACHABLE_AFTER = 20.0
"""Seconds without a report and without any broker after which a task ends; what is left of its 30 s is for asking."""
_SILENT = 2
"""Questions without an answer after which brokers that nobody throttles count as gone."""


def most_rows(rows: int, size: int) -> int:
    """How many of `rows` with `size` bytes to send without a look."""
    return rows if size <= AT_ONCE else max(1, rows * AT_ONCE // size)


class Pace:
    """The pace of one attempt, which began at `now`. `deadline`: seconds of a row."""

    def __init__(self, deadline: float, now: float) -> None:
        self._within = deadline * _PART_OF_DEADLINE
        self._burst = max(1.0, min(_BURST, deadline / _BURST_DEADLINE))
        self._began = now
        self._rows = self._bytes = self._unseen = 0

    def sent(self, rows: int, size: int) -> None:
        self._rows += rows
        self._bytes += size
        self._unseen += size

    def is_to_look(self) -> bool:
        """Whether enough was sent since the last look: to count what is under way costs more than a row."""
        return self._unseen >= _LOOK_EVERY

    def is_ahead(self, under_way: int, now: float) -> bool:
        """Whether more rows are under way than brokers take in a part of the deadline, at the rate of the attempt so
        far. No more than they have taken so far: a quota lets a burst pass before it throttles."""
        size = self._bytes / max(1, self._rows)
        at_once = AT_ONCE * self._burst if now < self._began + _BURST_SECONDS else AT_ONCE
        taken = (self._rows - under_way) * min(1.0, self._within / max(1e-3, now - self._began))
        ahead = under_way * size > max(at_once, taken * size)
        self._unseen = self._unseen if ahead else 0  # look again until it is not
        return ahead


class PaceStep(Enum):
    """`ASK`: is anybody there? `UNREACHABLE`, `TOO_LATE`: the task has to end."""

    WAIT = "wait"
    ASK = "ask"
    UNREACHABLE = "unreachable"
    TOO_LATE = "too_late"


class TaskPatience:
    """While rows are on their way, `deadline` seconds at most without progress. `now`: of any clock; `since`: of the
    last progress."""

    def __init__(self, deadline: float, resolved: int, now: float) -> None:
        self._deadline = deadline
        self._resolved = resolved
        self.since = self._asked_at = now
        self._unanswered = 0

    def look(self, resolved: int, all_down: bool, now: float) -> PaceStep:
        """`resolved`: reports so far; `all_down`: no broker can be reached, as far as is known."""
        if resolved != self._resolved:
            self._resolved, self.since, self._asked_at, self._unanswered = resolved, now, now, 0
        quiet = now - self.since
        if quiet >= UNREACHABLE_AFTER and (all_down or self._unanswered >= _SILENT):
            return PaceStep.UNREACHABLE
        if quiet >= self._deadline:
            return PaceStep.TOO_LATE
        if now - self._asked_at >= ASK_AFTER:
            self._asked_at = now
            return PaceStep.ASK
        return PaceStep.WAIT

    def asked(self, answered: bool) -> None:
        """How the question ended that ASK was for."""
        self._unanswered = 0 if answered else self._unanswered + 1
