"""How many records of the direct lane were never in a request, which proves them not written."""

from __future__ import annotations

from collections.abc import Mapping

from safeproducer.kafka.statistics import Statistics
from safeproducer.pipeline.reports.delivery_counters import BatchCount
from safeproducer.policy.topic_partition import TopicPartition

Batches = Mapping[TopicPartition, BatchCount]
_NONE = BatchCount()


class UnsentRecords:
    """The sender calls. Since the lane was last seen empty, what it was given without what it sent was never sent."""

    def __init__(self) -> None:
        self._empty: Statistics | None = None
        self._batches: Batches = {}
        self._before_purge: Statistics | None = None
        self._batches_in_purge: dict[TopicPartition, int] = {}

    def emptied(self, found: Statistics, batches: Batches) -> None:
        """These statistics show the lane empty."""
        self._empty, self._batches = found, batches

    def purging(self, batches: Batches) -> None:
        """The lane is about to be purged: from now on it is empty for another reason."""
        self._before_purge = self._empty
        before = self._batches
        self._batches_in_purge = {tp: count.least - before.get(tp, _NONE).most for tp, count in batches.items()}

    def counts(self, found: Statistics, failed_at: float) -> dict[TopicPartition, int]:
        """Of each partition's purged records, so many of the last ones were in no request, by later statistics.

        What ended since the lane was empty must be known for that, so none may have failed since.
        """
        empty = self._before_purge
        if failed_at > (0.0 if empty is None else empty.at):
            return {}
        never = {}
        for tp, entry in found.partitions.items():
            before = None if empty is None else empty.partitions.get(tp)
            if before is not None and entry.accepted < before.accepted:
                continue  # librdkafka forgot the partition meanwhile, and began to count anew
            earlier = 0 if before is None else before.accepted - before.sent
            never[tp] = entry.accepted - entry.sent - earlier + self._batches_in_purge.get(tp, 0)
        return never
