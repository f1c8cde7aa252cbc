"""What is known of a topic's partitions: how many, who leads them, and which one a record goes to.

The youngest metadata of any native producer counts; see `policy/metadata.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from safeproducer import dice
from safeproducer.policy.metadata import NO_EPOCH, SETTLES, PartitionInfo, supersedes
from safeproducer.policy.never import NEVER
from safeproducer.policy.partitioner import ANY, partitioner
from safeproducer.policy.topic_partition import TopicPartition

UNKNOWN = -1
_NONE = 0, -NEVER
_UNHEARD = PartitionInfo(None, NO_EPOCH, -NEVER)


class Partitions:
    """Learned from statistics and metadata; asked for each record that is held back. Any thread may use it."""

    def __init__(self, partitioner_name: str, sticky: float) -> None:
        self.partitioner = partitioner_name
        self._choose = partitioner(partitioner_name)
        self._sticky = sticky
        self._counts: dict[str, tuple[int, float]] = {}
        """(number of partitions, when the metadata that says so came); 0 when there is no such topic."""
        self._infos: dict[TopicPartition, PartitionInfo] = {}
        self._stalled_to: dict[str, tuple[int, float]] = {}

    def known(self, topic: str) -> bool:
        """Whether a broker has told of this topic, if only that it does not exist."""
        return topic in self._counts

    def count(self, topic: str) -> int:
        """0 while it is not known, and when there is no such topic."""
        return self._counts.get(topic, _NONE)[0]

    def has(self, topic: str, partition: int) -> bool:
        """False only when it is known that there is no such partition."""
        count = self.count(topic)
        return partition == UNKNOWN or not count or 0 <= partition < count

    def info(self, tp: TopicPartition) -> PartitionInfo:
        """What is known of one partition."""
        return self._infos.get(tp, _UNHEARD)

    def leader(self, topic: str, partition: int) -> int | None:
        """Node ID; None while unknown."""
        return self._infos.get((topic, partition), _UNHEARD).leader

    def leaders(self, topic: str, partition: int) -> set[int]:
        """Who may lead a record of it: of one whose partition is not known, all that lead one of the topic."""
        infos = self._infos.copy().items()
        found = {info.leader for (name, number), info in infos if name == topic and partition in (number, UNKNOWN)}
        return {node for node in found if node is not None}

    def nodes(self) -> set[int]:
        """The brokers that lead a partition."""
        return {info.leader for info in self._infos.copy().values() if info.leader is not None}

    def update(self, topic: str, leaders: Mapping[int, tuple[int, int | None]], at: float) -> None:
        """Partition -> (leader's node ID or -1, its epoch), of metadata that came at `at`; empty: no such topic.

        Metadata of the same moment may come again and again: each lane's statistics tell what it knows.
        """
        if not leaders:
            self._counts.setdefault(topic, _NONE)
            return
        told, (count, since) = max(leaders) + 1, self._counts.get(topic, _NONE)
        if not count or supersedes(told, at, count, since):
            self._counts[topic] = told, at
            for partition in range(told, count):
                self._infos.pop((topic, partition), None)
            count = told
        infos = self._infos
        for partition, (leader, epoch) in leaders.items():
            known = infos.get((topic, partition), _UNHEARD)
            if known.at - SETTLES > at or partition >= count:
                continue
            if leader == known.leader and epoch is None and known.epoch != NO_EPOCH:
                continue  # it says less
            # Without an epoch: the same one, but for metadata that is so much younger that its age decides.
            rank = epoch if epoch is not None else known.epoch if at - known.at <= SETTLES else NO_EPOCH
            if supersedes(rank, at, known.epoch, known.at):
                infos[topic, partition] = PartitionInfo(leader if leader >= 0 else None, rank, at)

    def choose(self, topic: str, key: Any, now: float) -> int:
        """The partition librdkafka's partitioner gives this key; UNKNOWN while the topic is not known."""
        count = self.count(topic)
        if not count:
            return UNKNOWN
        partition = self._choose(key.encode() if type(key) is str else key, count)
        return partition if partition != ANY else self._any(topic, count, now)

    def _any(self, topic: str, count: int, now: float) -> int:
        """As librdkafka does: one for `sticky.partitioning.linger.ms`, and one that has a leader if possible."""
        partition, until = self._stalled_to.get(topic, (UNKNOWN, 0.0))
        if now >= until or partition >= count:
            led = [number for number in range(count) if self.leader(topic, number) is not None]
            partition = dice.one_of(led or range(count))
            self._stalled_to[topic] = (partition, now + self._sticky)
        return partition
