"""What clients asked and what became of it, kept for tests to read."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["JournalBatch", "JournalEntry", "Outcome"]

Outcome = Literal["answered", "failed", "lost", "unanswered", "unsupported", "malformed"]
"""``failed``: by ``fail_next``. ``lost``: done, but the answer was dropped. ``unanswered``: acks=0."""


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
    """One request. ``time`` is that of arrival, in seconds since the Unix epoch; ``note`` says what was wrong."""

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
