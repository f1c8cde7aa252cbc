"""Bad rows that do not fail their task: when there are too many, and the record that a dead-letter topic gets of each.

The headers of the record say what those of Kafka Connect's dead-letter queue say.
"""

from __future__ import annotations

from typing import Any

from safeproducer.kafka.callback_errors import PURGED
from safeproducer.kafka.native import KafkaError
from safeproducer.spark.bad_rows import FailedRows, Refused
from safeproducer.spark.columns import ANY_PARTITION, NOW, Columns, Header
from safeproducer.spark.errors import BadRow
from safeproducer.spark.options import BAD_ROWS_MAX, BadRows
from safeproducer.spark.report import Task
from safeproducer.spark.row_check import batch_bytes

BEFORE_A_SHARE_COUNTS = 1_000
"""This many rows may be bad before the end of a task: no share is known before."""
SMALLEST_LIMIT = 1_000_000
"""Bytes of a batch, for a topic whose limit is not known: less than Kafka's default."""
_LENGTHS = 20
"""Bytes that the lengths of key and value may take."""
_GROUP = 1_000
"""Rows that are sent again together at most."""


class Aside:
    """The bad rows of one attempt that do not fail it. `sent`: records for the dead-letter topic; `lost`: those that it
    did not get. `looked`: topics whose facts are of this attempt."""

    def __init__(self, policy: BadRows, task: Task) -> None:
        self.policy = policy
        self.rows = FailedRows(task.partition)
        self.codes = self.rows.codes
        self.sent = self.lost = 0
        self.last_error: KafkaError | None = None
        self.looked: set[str] = set()
        self._task = task

    def is_too_much(self, rows: int, at_the_end: bool) -> bool:
        """Whether more than allowed of the rows read so far are bad."""
        is_early = not (at_the_end or self.policy.is_number)
        least = max(self.policy.floor, is_early * BEFORE_A_SHARE_COUNTS)
        return self.codes.total() > max(self.policy.allowed(rows), least)

    def letter(self, row: Columns, bad: BadRow, limit: int) -> tuple[Any, ...]:
        """The record of the dead-letter topic for this row, as produce() takes it. `limit`: bytes of a batch there."""
        self.sent += 1
        marks = {
            "sp-error-code": bad.cause,
            "sp-error": bad,
            "sp-topic": bad.topic,
            "sp-query": self._task.query_id,
            "sp-batch": self._task.batch_id,
            "sp-partition": bad.partition,
            "sp-row": bad.row,
        }
        texts = [(name, None if mark is None else str(mark).encode()) for name, mark in marks.items()]
        key, value, headers = fitting(row, texts, limit)
        return self.policy.topic, value, key, ANY_PARTITION, self._report, None, NOW, headers

    def _report(self, error: KafkaError, _message: object) -> None:
        self.lost += 1
        self.last_error = self.last_error if error.code() in PURGED else error

    def reason(self, rows: int) -> str | None:
        """Why an attempt that has read so many rows fails for its bad rows, if it does."""
        if self.last_error is not None:
            return f"the dead-letter topic {self.policy.topic!r} cannot be written: {self.last_error.str()}"
        if self.is_too_much(rows, at_the_end=True):
            always = f", and {self.policy.floor} of a task always" if self.policy.floor else ""
            return f"{self.codes.total()} of {rows} rows are bad, and {BAD_ROWS_MAX} allows {self.policy}{always}"
        return None


def fitting(row: Columns, marks: list[Header], limit: int) -> tuple[bytes | None, bytes | None, list[Header]]:
    """Key, value and headers of one row, and `marks`: all of them, or what fits into a batch of `limit` bytes.

    The value is cut first; when all of it is gone the headers go, and then the key is cut. Names of headers become such
    as librdkafka takes.
    """
    key, value = row.keys()[0], row.values()[0]
    own = [((name or "").replace("\0", "\\0"), content) for name, content in next(row.all_headers()) or ()]
    room = limit - _LENGTHS - batch_bytes(key, None, [*own, *marks])
    if room < 0:
        own, room = [], limit - _LENGTHS - batch_bytes(key, None, marks)
    if key is not None and room < 0:
        key, room = key[: max(0, len(key) + room)], 0
    return key, None if value is None else value[:room], [*own, *marks]


def groups(refused: list[Refused], most: int = _GROUP) -> list[list[Refused]]:
    """Two at least, of which the last one has the first rows."""
    rows = sorted(refused, key=lambda one: one.bad.row or 0)
    size = min(most, (len(rows) + 1) // 2) or 1
    return [rows[first : first + size] for first in range(0, len(rows), size)][::-1]
