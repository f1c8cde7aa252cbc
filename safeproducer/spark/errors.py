"""The error of a task whose rows are not all in Kafka. Knows neither Arrow nor Spark: drivers read it, too."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

MOST_BAD_ROWS = 10
"""How many an error names at most."""

NULL_TOPIC = "null_topic"
NO_SUCH_PARTITION = "no_such_partition"
HEADER_WITHOUT_NAME = "header_without_name"
HEADER_NAME_WITH_NUL = "header_name_with_nul"
TIMESTAMP_TOO_OLD = "timestamp_too_old"
ROW_TOO_LARGE = "row_too_large"
INVALID_TOPIC = "invalid_topic"
UNKNOWN_TOPIC = "unknown_topic"
INVALID_TIMESTAMP = "INVALID_TIMESTAMP"
INVALID_RECORD = "INVALID_RECORD"
UNREACHABLE = "unreachable"

CURES: Mapping[str, str] = MappingProxyType(
    {
        NULL_TOPIC: "the topic is null, empty or no UTF-8; set the option 'topic', or fill the column",
        NO_SUCH_PARTITION: "the topic has no such partition; correct the column 'partition', or make it null",
        HEADER_WITHOUT_NAME: "a header has no name, or one that is no UTF-8; name it, or leave it out",
        HEADER_NAME_WITH_NUL: "a header's name holds a NUL character, where librdkafka would cut it off; rename it",
        TIMESTAMP_TOO_OLD: "the timestamp is 1970-01-01 or before, which Kafka has no number for; correct it",
        ROW_TOO_LARGE: "larger than the limit; raise kafka.max.request.size and the topic's max.message.bytes",
        INVALID_TOPIC: "no name of a topic: it has other signs than letters, digits, '.', '_' and '-', or too many",
        UNKNOWN_TOPIC: "there is no such topic, or this user may not know of it; create it, or correct the column",
        "TOPIC_AUTHORIZATION_FAILED": "this user may not write to the topic; allow it, or correct the column",
        "MSG_SIZE_TOO_LARGE": "too large; raise the topic's max.message.bytes, or set kafka.batch.size below it",
        INVALID_TIMESTAMP: "the topic takes no such timestamp; see its message.timestamp.after.max.ms",
        INVALID_RECORD: "the topic does not take it; a compacted topic takes no null keys",
    }
)
"""By cause, what is wrong with a row and what to do. The causes in capitals are Kafka's own names."""


@dataclass(frozen=True)
class BadRow:
    """One row that is not in Kafka, or several that a broker rejected together.

    - `partition`: of Spark; `row`: its number there, counted from 0 over all Arrow batches of the task, None when it
      could not be told apart. `last`: of rows that a broker rejected together, the last one; then `row` is the first.
    - `topic` and `target_partition`: where it was to go; None where nobody had chosen yet.
    - `size`: bytes that it takes in a request, or of key and value where only the broker refused; `limit`: what it is
      above. Both None where the cause has nothing to do with its size.
    - `cause`: one of CURES, or the name of Kafka's error code.
    """

    partition: int
    row: int | None
    topic: str | None
    target_partition: int | None
    size: int | None
    limit: int | None
    cause: str
    last: int | None = None

    def __str__(self) -> str:
        rows = "row of unknown number" if self.row is None else f"row {self.row}"
        if self.last is not None:
            rows = f"one or more of the rows {self.row} to {self.last}"
        target = f"topic {self.topic}" if self.topic is not None else "no topic"
        if self.target_partition is not None:
            target += f" partition {self.target_partition}"
        size = "" if self.size is None else f", {self.size} bytes"
        limit = "" if self.limit is None else f" (limit {self.limit})"
        cure = CURES.get(self.cause)
        return (
            f"{rows} of Spark partition {self.partition} for {target}{size}{limit}: {self.cause}"
            f"{f': {cure}' if cure else ''}"
        )


@dataclass(frozen=True)
class WhoWrote:
    """One attempt of Spark's task of that partition, counted from 0; and where it ran."""

    partition: int
    attempt: int
    host: str = field(default_factory=socket.gethostname)
    process: int = field(default_factory=os.getpid)


@dataclass(frozen=True)
class Failure(WhoWrote):
    """The content of a KafkaWriteError. Counts are rows of one attempt of one task.

    - `rows`: read from Spark until it ended; what came behind them was not read.
    - `delivered`: acknowledged; `not_written`: certainly not in Kafka; `unknown`: they may be there or not.
    - `codes`: rows by cause; see BadRow.
    - `bad_rows`: the first ten at most.
    - `reason`: why the task ended, as for brokers out of reach or a missing topic; None when it was for its rows.
    """

    rows: int = 0
    delivered: int = 0
    not_written: int = 0
    unknown: int = 0
    codes: Mapping[str, int] = field(default_factory=dict)
    bad_rows: tuple[BadRow, ...] = ()
    reason: str | None = None


class KafkaWriteError(RuntimeError):
    """A row of a task was not acknowledged, so the task fails and Spark repeats it.

    `failure` says what is known. Holds counts and names; no payload, no configuration and no secret. Can be pickled.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure

    def __str__(self) -> str:
        found = self.failure
        why = f"{found.reason.rstrip('.')}. " if found.reason else ""
        causes = ", ".join(f"{count} x {code}" for code, count in sorted(found.codes.items())) or "none"
        told = (
            f"task of Spark partition {found.partition} (attempt {found.attempt}) on {found.host} failed to write all "
            f"its rows: {why}Of {found.rows} rows read, {found.delivered} delivered, {found.not_written} not written, "
            f"{found.unknown} of unknown outcome; causes: {causes}"
        )
        return told + "".join(f"\n- {row}" for row in found.bad_rows)


class NonDeterministicReplay(RuntimeError):  # noqa: N818 - as Spark says it
    """The rows of a micro-batch that a slot has committed are others now: the query gives others for the same number.

    `rows_before`: that were committed; `rows`: of now, which may be as many. Nothing of this attempt was sent.
    """

    def __init__(self, slot: int, batch: int, rows_before: int, rows: int) -> None:
        super().__init__(slot, batch, rows_before, rows)
        self.slot, self.batch, self.rows_before, self.rows = slot, batch, rows_before, rows

    def __str__(self) -> str:
        return (
            f"slot {self.slot} has committed {self.rows_before} rows of micro-batch {self.batch}, and the query gives "
            f"{self.rows} rows now{' with another content' * (self.rows == self.rows_before)}: it must give the same "
            "rows for the same micro-batch. Take rand(), current_timestamp() and the like out of it, and undo changes "
            "of it until this micro-batch is written"
        )
