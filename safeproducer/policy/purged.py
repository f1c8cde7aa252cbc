"""Which purged records were never in a request, told from how many of their partition never were.

librdkafka sends a partition's records in the order it got them, so those never sent are the newest ones. But it does
not report them in that order: rd_kafka_purge() first empties the queues that the application fills, then the broker's
thread gives back what is in requests, and then what it had taken over before. The newest may thus come first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple


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
