"""Topics, their configs, and who leads their partitions."""

from collections.abc import Mapping

from safeproducer.testing.fake.control.runtime import Runtime
from safeproducer.testing.fake.rules import configs
from safeproducer.testing.fake.state import topic_changes

__all__ = ["TopicControl"]


class TopicControl(Runtime):
    """Makes, changes and deletes topics."""

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """On the living brokers, three replicas if there are as many. Raises ValueError for what Kafka would refuse."""

        def work() -> None:
            factor = min(3, len(self._state.alive)) if replication_factor is None else replication_factor
            topic_changes.create_topic(self._state, name, partitions, factor, dict(config or {}))

        self._call(work)

    def set_topic_config(self, topic: str, name: str, value: str | None) -> None:
        """Set a config on the topic, or take it away with None. Raises ValueError for what Kafka would refuse."""
        if value is not None or name not in configs.TOPIC:
            configs.check(configs.TOPIC, name, value)

        def work() -> None:
            found = self._state.topics.get(topic)
            if found is None:
                raise ValueError(f"topic: there is no {topic!r}, only {sorted(self._state.topics)}")
            found.config.pop(name, None)
            if value is not None:
                found.config[name] = value

        self._call(work)

    def apply_retention(self) -> int:
        """Delete what ``retention.ms`` and ``retention.bytes`` released, as a broker does every five minutes.

        It happens when asked only, so that no test loses records unawares. A batch is as old as its newest record and
        goes as a whole. Returns how many batches went.
        """
        return self._call(self._state.apply_retention)

    def leader(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """The leading broker (-1: none is alive) and the leader epoch."""

        def work() -> tuple[int, int]:
            found = self._partition(topic, partition)
            return found.leader, found.leader_epoch

        return self._call(work)

    def move_leader(self, topic: str, partition: int = 0, to: int | None = None) -> int:
        """Hand the partition to another living replica, the next one if ``to`` is None; returns the new leader.

        The leader epoch grows. Raises ValueError if there is no such replica.
        """

        def work() -> int:
            found = self._partition(topic, partition)
            living = [replica for replica in found.replicas if self._state.brokers[replica].alive]
            others = [replica for replica in living if replica != found.leader]
            chosen = to if to is not None else next(iter(others), None)
            if chosen not in others:
                raise ValueError(f"to: {to} does not follow {topic}-{partition}; its living followers are {others}")
            found.lead(chosen)
            self._state.changed()
            return chosen

        return self._call(work)
