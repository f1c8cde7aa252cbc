"""What a direct lane was given and how much of it has ended, by librdkafka's own counts.

Those go on for as long as the native producer lives, whoever owns it. So what was learned from them goes over to the
next owner together with it: measured against nothing, the records of the former owner would count as the new one's.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from safeproducer.kafka.statistics import Statistics
from safeproducer.pipeline.reports.batch_calls import BatchCount
from safeproducer.pipeline.reports.delivery_counters import DeliveryCounters
from safeproducer.policy.backlog import Backlogs
from safeproducer.policy.types import TopicPartition

_NONE = BatchCount()
Batches = Mapping[TopicPartition, BatchCount]
_NOTHING: Mapping[TopicPartition, int] = MappingProxyType({})


class UnsentRecords:
    """How many records were never in a request, which proves them not written. The sender calls.

    Since the lane was last seen empty, what it was given without what it sent was never sent.
    """

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


class Given:
    """The sender changes it; any thread may ask.

    `earlier`: records that the native produce_batch() took for former owners, which librdkafka does not count.
    `since`: what is older than that is of a former owner.
    """

    def __init__(
        self,
        earlier: Mapping[TopicPartition, int] = _NOTHING,
        since: float = 0.0,
        backlogs: Backlogs | None = None,
        unsent: UnsentRecords | None = None,
    ) -> None:
        self.backlogs = backlogs or Backlogs()
        self.unsent = unsent or UnsentRecords()
        self.since = since
        self._earlier = earlier

    def batches(self, counters: DeliveryCounters, at: float) -> dict[TopicPartition, BatchCount]:
        """By partition, what the native produce_batch() took by then, for all owners; `counters`: the present one's."""
        found = counters.batches(at)
        for tp, count in self._earlier.items():
            most, least = found.get(tp, _NONE)
            found[tp] = BatchCount(most + count, least + count)
        return found

    def observe(self, found: Statistics, batches: Batches) -> None:
        """Statistics of the lane, and `batches()` as they were then."""
        for tp, entry in found.partitions.items():
            # Records without a partition leave that queue when they get one.
            acknowledged = entry.acknowledged if tp[1] >= 0 else entry.accepted - entry.queued
            self.backlogs.observe(tp, entry.accepted, acknowledged, found.at, *batches.get(tp, ()))
        if not found.messages:
            self.backlogs.forgive()
            self.unsent.emptied(found, batches)

    def passed_on(self, counters: DeliveryCounters, now: float) -> Given:
        """For the next owner. Nothing is under way, and what the former one gave has all been acknowledged."""
        earlier = {tp: count.least for tp, count in self.batches(counters, now).items()}
        return Given(earlier, now, self.backlogs, self.unsent)

    def taken_over(self, now: float) -> None:
        """The next owner begins."""
        self.since = now
        self.backlogs.all_ended(now)
