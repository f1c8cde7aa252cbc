"""Which partition a record goes to that names none, and in what order with those of its topic that name one.

Until a broker has told of the topic, either may be of the other's partition. librdkafka keeps all of them in one queue
then; here each waits in its partition buffer, and what was accepted first goes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from safeproducer.kafka.arguments import unable
from safeproducer.kafka.native import KafkaError
from safeproducer.pipeline.buffer.partition_buffer import PartitionBuffer
from safeproducer.pipeline.cluster.cluster_view import ClusterView
from safeproducer.pipeline.cluster.metadata import Metadata
from safeproducer.pipeline.dispatch.record_buffer import RecordBuffer
from safeproducer.pipeline.lanes.lane_pool import LanePool
from safeproducer.pipeline.record import KEY
from safeproducer.pipeline.schedule import Schedule
from safeproducer.policy.decision import TURN, Wish
from safeproducer.policy.types import UNPLACED


@dataclass(eq=False)
class Placement:
    """Any thread asks; the sender places."""

    cluster: ClusterView
    _record_buffer: RecordBuffer
    _lanes: LanePool
    _metadata: Metadata
    _schedule: Schedule

    def ask(self, topic: str) -> None:
        """Have brokers asked for this topic."""
        self._metadata.want(topic)

    def refuse_missing(self, topic: str) -> None:
        """Refuse a topic that is not there, as librdkafka does once it knows; look whether it is there by now."""
        if self.cluster.partitions.count(topic):
            self._lanes.refused_topics.discard(topic)
            return
        self._metadata.want(topic)
        raise unable(KafkaError._UNKNOWN_TOPIC)

    def choose(self, topic: str, key: Any, now: float) -> int:
        """The partition of a record that names none; UNPLACED behind others that are not placed yet."""
        if self.has_unplaced(topic) or self.cluster.outdated.differ(topic, now):
            return UNPLACED
        return self.cluster.partitions.choose(topic, key, now)

    def has_unplaced(self, topic: str) -> bool:
        """Whether records of it wait, or are under way, that have no partition yet."""
        unplaced = self._record_buffer.buffers.get((topic, UNPLACED))
        return unplaced is not None and bool(unplaced.records or unplaced.unresolved)

    def follows_others(self, topic: str, partition: int) -> bool:
        """Whether a record must wait since others of its topic do, and may be of the same partition."""
        return self.has_unplaced(topic) or (partition == UNPLACED and self._has_placed(topic))

    def _has_placed(self, topic: str) -> bool:
        found = self._record_buffer.of_topics((topic,))
        return any(buffer.waiting for buffer in found if buffer.partition != UNPLACED)

    def in_front(self, buffer: PartitionBuffer, now: float) -> tuple[Wish, ...] | None:
        """Say what is to be done about records that those of `buffer` wait behind; None if they wait behind none."""
        unplaced = self._record_buffer.buffers.get((buffer.topic, UNPLACED))
        if unplaced is None or not unplaced.records or not self._has_placed(buffer.topic):
            return None
        if not self.cluster.partitions.known(buffer.topic):
            return (Wish.ASK,)
        if self.cluster.outdated.differ(buffer.topic, now) or (unplaced.unresolved and buffer is not unplaced):
            return ()
        return (Wish.PLACE,) if self.can_place(unplaced) else None

    def can_place(self, buffer: PartitionBuffer) -> bool:
        """Whether its records name no partition, their topic is known, and none of them is under way."""
        unplaced = buffer.partition == UNPLACED and not buffer.unresolved
        return unplaced and bool(self.cluster.partitions.count(buffer.topic))

    def place(self, topic: str, now: float) -> None:
        """Give the records their partitions that name none."""
        buffer = self._record_buffer.buffers[topic, UNPLACED]
        while buffer.records:
            partition = self.cluster.partitions.choose(topic, buffer.records[0][KEY], now)
            chosen = self._record_buffer.find((topic, partition))
            # Held, or what goes directly next may pass it. Not for its reason: that may be any broker's throttle time.
            chosen.hold(chosen.held or TURN, now)
            chosen.waits.take_over(buffer.waits, now)
            buffer.move_first(chosen)
            self._record_buffer.busy[chosen.tp] = chosen
        self._schedule.alarm.hurry()
