"""Reports of records that a purge took out of librdkafka: which of them were in no request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from safeproducer.kafka.native import KafkaError
from safeproducer.pipeline.reports.report_queue import Deferred
from safeproducer.policy.outcome import Purged, never_sent
from safeproducer.policy.types import NEVER, TopicPartition

PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


def proven(reports: Sequence[Deferred], counts: Mapping[TopicPartition, int]) -> Iterator[tuple[Deferred, bool]]:
    """Each report, and whether its record was certainly in no request.

    `counts`: how many of a partition's records were in none.
    """
    rows: dict[tuple[str | None, int | None], list[Purged]] = defaultdict(list)
    for kept in reports:
        rows[kept.message.topic(), kept.message.partition()].append(_purged(kept))
    proofs = {
        (topic, partition): iter(
            # Without a partition it was in no request.
            [True] * len(row)
            if topic is None or partition is None
            else never_sent(row, counts.get((topic, partition), 0))
        )
        for (topic, partition), row in rows.items()
    }
    for kept in reports:
        yield kept, next(proofs[kept.message.topic(), kept.message.partition()])


def purged_tps(reports: Sequence[Deferred]) -> set[TopicPartition]:
    """The partitions of the records that a purge took out of librdkafka."""
    tps = {(kept.message.topic(), kept.message.partition()) for kept in reports if kept.error.code() in PURGED}
    return {(topic, partition) for topic, partition in tps if topic is not None and partition is not None}


def _purged(kept: Deferred) -> Purged:
    elapsed = kept.message.latency()
    queued = kept.error.code() == KafkaError._PURGE_QUEUE
    if elapsed is None:
        return Purged(queued, -NEVER, NEVER)
    return Purged(queued, kept.since - elapsed, kept.by - elapsed)
