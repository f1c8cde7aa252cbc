"""The rows of one attempt that failed: how many, why, and which the first ones are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from safeproducer.kafka.native import KafkaError, Message
from safeproducer.pipeline.reports.purged_reports import PURGED
from safeproducer.policy.outcome import Outcome
from safeproducer.spark.errors import MOST_BAD_ROWS, BadRow
from safeproducer.spark.row_checks import Found
from safeproducer.spark.sent_batch import SentBatch

REFUSED_TOGETHER = frozenset(
    {
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
        "MSG_SIZE_TOO_LARGE",
        "POLICY_VIOLATION",
        "RECORD_LIST_TOO_LARGE",
        "_INVALID_DIFFERENT_RECORD",
    }
)
"""A broker refuses a whole batch with these for one record in it, so that most of the rows are good."""


TOO_LARGE = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"})
"""Of them, those that the size of the whole batch may be the reason for."""


class Refused(NamedTuple):
    """A row of a batch that a broker refused; it may be good. `row` counts from the first of its Arrow batch."""

    batch: SentBatch
    row: int
    message: Message
    error: KafkaError


class FailedRows:
    """`report()` is the callback of a delivery report with an error; on the task's thread, as all of it.

    - `refused`: rows of refused batches, to be sent again by themselves.
    - `ended_by`: the code of what ended the attempt; it is the cause of the rows that were purged because of it.
    """

    def __init__(self, partition: int) -> None:
        self.codes: Counter[str] = Counter()
        self.unknown = 0
        self.bad_rows: list[BadRow] = []
        self.refused: list[Refused] = []
        self.ended_by: str | None = None
        self._partition = partition

    def __bool__(self) -> bool:
        return bool(self.codes)

    def report(self, batch: SentBatch, error: KafkaError, message: Message, row: int | None = None) -> None:
        """A row of `batch` failed; `row` counts from its first and is found out when it is None."""
        refused = error.name() in REFUSED_TOGETHER
        if row is None and (refused or len(self.bad_rows) < MOST_BAD_ROWS):
            row = batch.row_of(message)
        if refused and row is not None:
            self.refused.append(Refused(batch, row, message, error))
        else:
            self.add(batch, row, message, error)

    def add(self, batch: SentBatch, row: int | None, message: Message, error: KafkaError) -> None:
        """This row is bad, and by itself."""
        cause = error.name() if self.ended_by is None or error.code() not in PURGED else self.ended_by
        self.codes[cause] += 1
        self.unknown += getattr(error, "outcome", Outcome.NOT_WRITTEN) == Outcome.UNKNOWN
        if len(self.bad_rows) < MOST_BAD_ROWS:
            size = len(message.key() or b"") + len(message.value() or b"")
            sized = size if cause == "MSG_SIZE_TOO_LARGE" else None
            number = None if row is None else batch.first_row + row
            self.bad_rows.append(
                BadRow(self._partition, number, message.topic(), message.partition(), sized, None, cause)
            )

    def found(self, rows: Iterable[Found], first_row: int) -> None:
        """Rows that are not to be sent, of a batch whose first row has this number."""
        for row in rows:
            self.codes[row.cause] += 1
            if len(self.bad_rows) < MOST_BAD_ROWS:
                self.bad_rows.append(BadRow(self._partition, first_row + row.row, *row[1:]))

    def count(self, code: str) -> None:
        """An error of the producer itself, of no row."""
        self.codes[code] += 1

    def give_up_refused(self) -> None:
        """There is no time to find out which of the refused rows are bad: none is named, and they count if no other
        row does."""
        refused, self.refused = self.refused, []
        if not self.codes:
            self.codes.update(failed.error.name() for failed in refused)


def by_partition(rows: Iterable[Refused]) -> dict[Hashable, list[Refused]]:
    """By topic and partition, each in its order."""
    found: dict[Hashable, list[Refused]] = {}
    for row in rows:
        found.setdefault((row.message.topic(), row.message.partition()), []).append(row)
    return found


def content(rows: Sequence[Refused]) -> int:
    """Bytes of their keys and values: less than they take in a batch."""
    return sum(len(row.message.key() or b"") + len(row.message.value() or b"") for row in rows)
