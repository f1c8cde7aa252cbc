"""What is known of a topic's partitions: how many, who leads them, and which one a record goes to."""

from __future__ import annotations

from typing import Any

from safeproducer import dice
from safeproducer.policy.partitioner import ANY, partitioner

UNKNOWN = -1


class Partitions:
    """Learned from statistics and metadata; asked for each record that is held back. Any thread may use it."""

    def __init__(self, partitioner_name: str, sticky: float) -> None:
        self.partitioner = partitioner_name
        self._choose = partitioner(partitioner_name)
        self._sticky = sticky
        self._counts: dict[str, int] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._stalled_to: dict[str, tuple[int, float]] = {}

    def known(self, topic: str) -> bool:
        """Whether a broker has told of this topic, if only that it does not exist."""
        return topic in self._counts

    def count(self, topic: str) -> int:
        """0 while it is not known, and when there is no such topic."""
        return self._counts.get(topic, 0)

    def has(self, topic: str, partition: int) -> bool:
        """False only when it is known that there is no such partition."""
        count = self._counts.get(topic)
        return partition == UNKNOWN or not count or 0 <= partition < count

    def leader(self, topic: str, partition: int) -> int | None:
        """Node ID; None while unknown."""
        return self._leaders.get((topic, partition))

    def leaders(self, topic: str, partition: int) -> set[int]:
        """Who may lead a record of it: of one whose partition is not known, all that lead one of the topic."""
        leaders = self._leaders.copy().items()
        return {node for (name, number), node in leaders if name == topic and partition in (number, UNKNOWN)}

    def nodes(self) -> set[int]:
        """The brokers that lead a partition."""
        return set(self._leaders.copy().values())

    def update(self, topic: str, leaders: dict[int, int]) -> None:
        """Partition -> leader's node ID, or -1; nothing when there is no such topic."""
        if not leaders:
            self._counts.setdefault(topic, 0)
            return
        self._counts[topic] = max(leaders) + 1
        for partition, leader in leaders.items():
            if leader >= 0:
                self._leaders[topic, partition] = leader
            else:
                self._leaders.pop((topic, partition), None)

    def choose(self, topic: str, key: Any, now: float) -> int:
        """The partition librdkafka's partitioner gives this key; UNKNOWN while the topic is not known."""
        count = self._counts.get(topic)
        if not count:
            return UNKNOWN
        partition = self._choose(key.encode() if type(key) is str else key, count)
        return partition if partition != ANY else self._any(topic, count, now)

    def _any(self, topic: str, count: int, now: float) -> int:
        """As librdkafka does: one for `sticky.partitioning.linger.ms`, and one that has a leader if possible."""
        partition, until = self._stalled_to.get(topic, (UNKNOWN, 0.0))
        if now >= until or partition >= count:
            led = [number for number in range(count) if (topic, number) in self._leaders]
            partition = dice.one_of(led or range(count))
            self._stalled_to[topic] = (partition, now + self._sticky)
        return partition
