"""The requests of clients and their results, kept for tests to read."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["JournalBatch", "JournalEntry", "Outcome"]

Outcome = Literal["answered", "failed", "lost", "unanswered", "unsupported", "malformed", "unauthenticated"]
"""``failed``: by ``fail_next``. ``lost``: done, but the answer was dropped. ``unanswered``: acks=0.

``unauthenticated``: asked before, or instead of, a log-in that has to come first.
"""


@dataclass(frozen=True, slots=True)
class JournalBatch:
    """One batch of a Produce request and the broker's verdict; ``duplicate`` is a success without an append."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int
    records: int
    error_code: int
    offset: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One request. ``time`` is that of arrival, in real seconds since the Unix epoch; ``note`` says what was wrong.

    ``user`` is who is logged in. ``throttled_ms`` is how long a quota mutes the connection after the answer.
    """

    time: float
    broker: int
    connection: int
    client_id: str | None
    api: str
    version: int
    correlation_id: int
    outcome: Outcome
    batches: tuple[JournalBatch, ...] = ()
    note: str = ""
    user: str = "ANONYMOUS"
    throttled_ms: int = 0
