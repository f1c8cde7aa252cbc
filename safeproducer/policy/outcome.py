"""A failed record has the outcome that its error code, or the order of a purge, proves: unknown unless proven.

librdkafka retries by itself and keeps one error, that of the end; it does not say whether an earlier attempt was
written and only its acknowledgement lost. Two proofs are accepted.

*Never transmitted*: the record was not handed over, or librdkafka did not put it into a request.

*Rejected at the first attempt*: the code is one that only a broker gives, in the answer to the record's own request,
and before it writes; and the report came sooner after handing over than a second attempt can. Every way back into
librdkafka's queue of what was in a request goes through rd_kafka_retry_msgq(), which sets a back-off of
`retry.backoff.ms`, jittered by 20 % and capped by `retry.backoff.max.ms`, and no request is built before it is over.
That holds for lost connections, time-outs, leader changes, brokers that leave the cluster and sequence gaps alike.

TOPIC_AUTHORIZATION_FAILED, _UNKNOWN_TOPIC and _UNKNOWN_PARTITION are not such codes: librdkafka gives them to records
that wait for a retry, too, as soon as metadata says so, and then the lost first attempt is in the log.

librdkafka sends a partition's records in the order it got them, so those never sent are the newest ones. But it does
not report them in that order: rd_kafka_purge() first empties the queues that the application fills, then the broker's
thread gives back what is in requests, and then what it had taken over before. The newest may thus come first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

SHORTEST_BACKOFF = 0.8
"""Share of `retry.backoff.ms`: librdkafka's jitter (RD_KAFKA_RETRY_JITTER_PERCENT)."""

REJECTIONS = frozenset(
    {
        "CLUSTER_AUTHORIZATION_FAILED",
        "INVALID_RECORD",
        "INVALID_REQUIRED_ACKS",
        "INVALID_TIMESTAMP",
        "MSG_SIZE_TOO_LARGE",
        "POLICY_VIOLATION",
        "RECORD_LIST_TOO_LARGE",
        "THROTTLING_QUOTA_EXCEEDED",
        "UNSUPPORTED_COMPRESSION_TYPE",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "UNSUPPORTED_VERSION",
        "_INVALID_DIFFERENT_RECORD",
    }
)
"""Codes by which a broker, and nobody else, rejects a batch before writing any of it."""


class Outcome(StrEnum):
    """The fate of a record that was not reported as delivered.

    NOT_WRITTEN: it is nowhere in the log and never will be. UNKNOWN: it is in the log once, or not at all, or it may
    still get there.
    """

    NOT_WRITTEN = "not_written"
    UNKNOWN = "unknown"


def outcome_of(
    code_name: str, elapsed: float | None, retry_backoff: float, round_trip: float = 0.0, transmitted: bool = True
) -> Outcome:
    """The outcome of a record that librdkafka accepted and that failed with the error called `code_name`.

    - `elapsed`: seconds from handing over to the report or later, such as `Message.latency()`; None when not known.
    - `retry_backoff`: the smaller one of `retry.backoff.ms` and `retry.backoff.max.ms`, in seconds.
    - `round_trip`: the quickest one to any broker lately, in seconds; 0 when not known.
    - `transmitted`: False only when it is certain that it was in no request, for example because statistics made
      after the report count as many records of the partition in requests as before handing over.
    """
    if not transmitted:
        return Outcome.NOT_WRITTEN
    if code_name in REJECTIONS and elapsed is not None and is_first_attempt(elapsed, retry_backoff, round_trip):
        return Outcome.NOT_WRITTEN
    return Outcome.UNKNOWN


def is_first_attempt(elapsed: float, retry_backoff: float, round_trip: float) -> bool:
    """Whether an answer that came `elapsed` seconds after handing over can only be to the first attempt.

    The answer to a second one needs the back-off and a round trip. Half of the quickest one lately is counted, in case
    the way has become shorter since.
    """
    return 0 <= elapsed < SHORTEST_BACKOFF * retry_backoff + round_trip / 2


class Purged(NamedTuple):
    """A record of one partition. `queued`: it was reported as purged in the queue, not in flight.

    It was given to librdkafka between `earliest` and `latest`, in seconds of any monotonic clock.
    """

    queued: bool
    earliest: float
    latest: float


def never_sent(records: Sequence[Purged], count: int) -> list[bool]:
    """Say of each record whether it was certainly in no request; at least `count` of them were in none.

    Records in flight were sent, so when as many are queued as were never sent, those are the ones. Otherwise some were
    sent and wait for a retry: then a record must have enough older ones beside it to be among the newest `count`.
    """
    queued = sum(record.queued for record in records)
    if count <= 0 or count > queued:  # a count that cannot be proves nothing
        return [False] * len(records)
    if count == queued:
        return [record.queued for record in records]
    latest = sorted(record.latest for record in records)
    older = len(records) - count
    return [record.queued and bisect_left(latest, record.earliest) >= older for record in records]
