"""Asks brokers for how long they remember a producer ID (KIP-854), and whether a topic keeps record timestamps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka.admin._config import ConfigEntry, ConfigResource

from safeproducer.kafka.discovery import PERMANENT, TIMEOUT, Discovery
from safeproducer.kafka.native import KafkaException
from safeproducer.policy.expiry import Told, told, unreadable

_TIMESTAMP_TYPE = "message.timestamp.type"


class Expirations(Discovery):
    """As Discovery, for one round of questions: `close()` ends the admin client, which the next question makes anew."""

    def told(self, node: int) -> tuple[Told, bool]:
        """(what `node` says, whether asking again soon is of no use). Never raises KafkaException."""
        try:
            return told(node, values(self.again(self._describe, ConfigResource.Type.BROKER, str(node)))), True
        except KafkaException as error:
            cause = error.args[0]
            return unreadable(node, f"{cause.name()}: {cause.str()}"), cause.code() in PERMANENT

    def leaders(self, topic: str) -> frozenset[int]:
        """The brokers that lead a partition of `topic`. Raises KafkaException."""
        found = self.again(lambda: self.admin.list_topics(topic, TIMEOUT)).topics[topic].partitions.values()
        return frozenset(partition.leader for partition in found if partition.leader >= 0)

    def takes_create_time(self, topic: str) -> bool:
        """Whether the records of `topic` keep their own timestamps, which is Kafka's default; so if nobody tells."""
        try:
            found = values(self.again(self._describe, ConfigResource.Type.TOPIC, topic))
        except KafkaException:
            return True
        return found.get(_TIMESTAMP_TYPE) != "LogAppendTime"

    def close(self) -> None:
        """Its threads and connections end."""
        self.release()

    def _describe(self, kind: Any, name: str) -> Mapping[str, ConfigEntry]:
        resource = ConfigResource(kind, name)
        answers = self.admin.describe_configs([resource], request_timeout=TIMEOUT)
        found: Mapping[str, ConfigEntry] = answers[resource].result(TIMEOUT * 2)
        return found


def values(entries: Mapping[str, ConfigEntry]) -> dict[str, str | None]:
    """Values by name; of a sensitive entry None."""
    return {name: None if entry.is_sensitive else entry.value for name, entry in entries.items()}
