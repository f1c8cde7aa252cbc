"""What is known of the cluster: who leads which partition, who throttles, and which lanes may not know it yet."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from safeproducer.delivery import Delivery
from safeproducer.kafka.statistics import Statistics
from safeproducer.pipeline.cluster.outdated_leaders import DIRECT, OutdatedLeaders
from safeproducer.pipeline.cluster.partitions import Partitions
from safeproducer.policy.throttle import Throttle
from safeproducer.policy.topic_partition import TopicPartition


class Leader(NamedTuple):
    """The broker that leads a partition; `node` None while it is unknown."""

    node: int | None
    throttled_until: float | None
    probing: bool


class ClusterView:
    """Any thread asks. Statistics are applied by the sender, throttle times announced by the threads that serve."""

    def __init__(self, delivery: Delivery, throttle: Throttle) -> None:
        self.partitions = Partitions(delivery.partitioning.partitioner, delivery.partitioning.sticky)
        self.outdated = OutdatedLeaders()
        self.throttle = throttle
        self._latest = throttle.latest
        self._only_batch_lanes = delivery.mode == "held"
        self.holds_back = delivery.holds_back
        self.statistics: dict[int, Statistics] = {}
        """The last ones of the direct lane and of the first batch lane."""

    def update(self, lane: int, statistics: Statistics) -> None:
        """Leaders, partition counts and connections from statistics of the direct lane or the first batch lane."""
        self.statistics = {**self.statistics, lane: statistics}
        topics: dict[str, dict[int, tuple[int, int | None]]] = {}
        for (topic, partition), entry in statistics.partitions.items():
            if partition >= 0:
                topics.setdefault(topic, {})[partition] = entry.leader, entry.leader_epoch
        for topic, leaders in topics.items():
            # A topic that a lane has not heard of is listed, too, with the partitions that records were made for.
            known, age = self.partitions.count(topic), statistics.metadata_ages.get(topic, 0.0)
            if max(leaders.values())[0] >= 0 or (age and known and len(leaders) >= known):
                self._learn(topic, leaders, statistics.at - age, lane if lane == DIRECT else None, statistics.at)

    def heard(self, topic: str, lane: int | None, asked_at: float, leaders: Mapping[int, int]) -> bool:
        """Partition -> leader, as this lane was told, None for the first one. Whether it knows all partitions now."""
        told: dict[int, tuple[int, int | None]] = {number: (leader, None) for number, leader in leaders.items()}
        number = next(iter(self.outdated.lanes()), DIRECT) if lane is None else lane
        self._learn(topic, told, asked_at, number, asked_at)
        self.outdated.heard(topic, number, asked_at)
        return not self.outdated.miscounts(topic, number)

    def _learn(
        self, topic: str, leaders: Mapping[int, tuple[int, int | None]], at: float, lane: int | None, now: float
    ) -> None:
        """By which lane, None for the first batch lane."""
        before = self.partitions.count(topic)
        self.partitions.update(topic, leaders, at)
        if leaders:
            self.outdated.counted(topic, lane, max(leaders) + 1, before, self.partitions.count(topic), now)
        else:
            self.outdated.forget(topic)

    def lost(self) -> set[int]:
        """Brokers that a lane has lost its connection to, and no lane is connected to."""
        brokers = [row for statistics in self.statistics.values() for row in statistics.brokers.items()]
        down = {node for node, broker in brokers if broker.state == "DOWN"}
        return down - {node for node, broker in brokers if broker.state == "UP"}

    def connected(self) -> dict[int, float]:
        """Broker -> when statistics of any lane showed it connected, if the last ones did."""
        found = sorted(self.statistics.values(), key=lambda one: one.at)
        return {node: one.at for one in found for node, broker in one.brokers.items() if broker.state == "UP"}

    def probes(self, broker: int, now: float) -> bool:
        """Whether it gets one batch at a time because it throttled so lately."""
        return self.holds_back and self.throttle.probes(broker, now)

    @property
    def throttle_is_new(self) -> bool:
        """What the next throttle_changed() says."""
        return self._latest != self.throttle.latest

    def throttle_changed(self) -> bool:
        """Whether a throttle time was announced since the last call, to any producer of this process."""
        before, self._latest = self._latest, self.throttle.latest
        return before != self._latest

    def broker(self, tp: TopicPartition, now: float) -> Leader:
        node = self.partitions.leader(*tp)
        until = self.throttle.deadline(node, now)
        # In a batch lane a topic must be known, and nobody tells of one to which nothing has gone directly yet.
        known = self._only_batch_lanes or self.partitions.known(tp[0])
        return Leader(node, until, known and self.throttle.probes(node, now))

    def cannot_meet_until(self, tp: TopicPartition, now: float) -> float:
        """A deadline at or before this time cannot be met: the broker's throttle time is known to last longer."""
        node = self.partitions.leader(*tp)
        return 0.0 if node is None else self.throttle.deadline(node, now) or 0.0

    def serves_others(self, node: int | None, silent: Collection[int | None], now: float) -> bool:
        """Whether a broker other than `node` takes records, and none of those that are `silent`."""
        return bool(self.partitions.nodes() - {node} - set(self.throttle.held(now)) - set(silent))
