"""The result of a task that has written all its rows, for the driver."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

SCHEMA = (
    "partition int, attempt int, host string, process long, producer string, producer_ids array<long>, ids_used int, "
    "rows long, delivered long, bytes long, "
    "topics array<struct<topic:string,rows:long,delivered:long,bytes:long>>, seconds double, "
    "seconds_without_room double, throttled array<struct<broker:int,seconds:double>>, client_errors long"
)
"""The row that a task yields, as Spark writes schemas. See TaskTotals for what the fields mean."""

_TOPIC = pa.struct([("topic", pa.string()), ("rows", pa.int64()), ("delivered", pa.int64()), ("bytes", pa.int64())])
_THROTTLED = pa.struct([("broker", pa.int32()), ("seconds", pa.float64())])
ARROW_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("attempt", pa.int32()),
        ("host", pa.string()),
        ("process", pa.int64()),
        ("producer", pa.string()),
        ("producer_ids", pa.list_(pa.int64())),
        ("ids_used", pa.int32()),
        ("rows", pa.int64()),
        ("delivered", pa.int64()),
        ("bytes", pa.int64()),
        ("topics", pa.list_(_TOPIC)),
        ("seconds", pa.float64()),
        ("seconds_without_room", pa.float64()),
        ("throttled", pa.list_(_THROTTLED)),
        ("client_errors", pa.int64()),
    ]
)
"""SCHEMA in Arrow's types."""


@dataclass(frozen=True)
class TopicTotals:
    """Rows of one topic. `bytes`: of keys and values."""

    rows: int
    delivered: int
    bytes: int


@dataclass(frozen=True)
class WhoWrote:
    """The attempt that a TaskTotals is of. The fields are explained there."""

    partition: int
    attempt: int
    host: str = field(default_factory=socket.gethostname)
    process: int = field(default_factory=os.getpid)


@dataclass(frozen=True)
class TaskTotals(WhoWrote):
    """One attempt of one task. All times are seconds.

    - `partition` and `attempt`: of Spark's task; attempts count from 0.
    - `host`, `process`: where it ran.
    - `producer`: "new", "reused", or "none" for a task without rows.
    - `producer_ids`: the producer IDs that are known of all lanes of the producer, over its life, ascending. One is
      known half a second after it was taken at the latest; so a first short task may know none.
    - `ids_used`: how many it has used over its life, also those that are not known yet.
    - `rows`, `delivered`, `bytes` (of keys and values), and the same by topic.
    - `seconds`: the whole task; `seconds_without_room`: of them, how long there was no room, or enough was under way.
    - `throttled`: broker -> throttle times it announced, added up.
    - `client_errors`: those that were survived, for example a broker that went away and came back.
    """

    producer: str = "none"
    producer_ids: tuple[int, ...] = ()
    ids_used: int = 0
    rows: int = 0
    delivered: int = 0
    bytes: int = 0
    topics: Mapping[str, TopicTotals] = field(default_factory=dict)
    seconds: float = 0.0
    seconds_without_room: float = 0.0
    throttled: Mapping[int, float] = field(default_factory=dict)
    client_errors: int = 0

    def to_arrow(self) -> pa.RecordBatch:
        """One row of ARROW_SCHEMA."""
        row = {
            **asdict(self),
            "topics": [{"topic": name, **asdict(totals)} for name, totals in sorted(self.topics.items())],
            "throttled": [{"broker": broker, "seconds": time} for broker, time in sorted(self.throttled.items())],
        }
        return pa.RecordBatch.from_pylist([row], schema=ARROW_SCHEMA)

    @classmethod
    def from_row(cls, row: Any) -> TaskTotals:
        """Made of a row of SCHEMA: a pyspark.sql.Row, or a mapping."""
        values = row.asDict(recursive=True) if hasattr(row, "asDict") else dict(row)
        values["producer_ids"] = tuple(values["producer_ids"])
        values["topics"] = {
            entry["topic"]: TopicTotals(entry["rows"], entry["delivered"], entry["bytes"]) for entry in values["topics"]
        }
        values["throttled"] = {entry["broker"]: entry["seconds"] for entry in values["throttled"]}
        return cls(**values)
