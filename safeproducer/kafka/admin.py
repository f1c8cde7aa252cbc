"""Asks brokers by DescribeConfigs: windows (KIP-1269), producer ID expirations (KIP-854), throttles (KIP-73).

No released client reads the field of Produce v14 that tells a window. One request holds the broker's own configs and
the topic's, so that librdkafka sends it to that broker: a topic's alone would go to any, whose inherited values are its
own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigEntry, ConfigResource, ConfigSource

from safeproducer.kafka.connection import connection_settings
from safeproducer.kafka.lane_client import partitions_of
from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.kafka.properties import canonical
from safeproducer.policy.client_reports import TopicMetadata
from safeproducer.policy.expiry import Told, told
from safeproducer.policy.window import BROKER_CONFIG, TOPIC_CONFIG, Announcement, Config, Source, announcement

TIMEOUT = 5.0
"""Seconds of one request."""
HURRY = 1.0
"""The same while a broker hangs, which may be this one."""
_SERVERS = "bootstrap.servers"
_QUIET = 0
Values = Mapping[str, str | None]
_TIMESTAMP_TYPE = "message.timestamp.type"
PERMANENT = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._UNSUPPORTED_FEATURE,
    }
)


class Admin:
    """One admin client, which ends with this; for one thread. Any may set_sasl_credentials(), after `config` has them.

    `config` is not copied. An answer that may be another one soon is raised as a KafkaException.
    """

    def __init__(self, config: Mapping[str, Any], timeout: float = TIMEOUT) -> None:
        self._config, self._timeout = config, timeout
        before = _login(config)
        own: dict[str, Any] = {**connection_settings(config), "log_level": _QUIET, "error_cb": _ignore}
        self._admin: Any = AdminClient(own)
        if (now := _login(config)) != before:  # changed meanwhile, by who did not find an admin client
            self._admin.set_sasl_credentials(*now)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these from the next connection on."""
        self._admin.set_sasl_credentials(username, password)

    def at(self, address: str) -> Admin:
        """Another one, which connects there first: one that was kept may be bound to a broker that hangs."""
        config = {name: value for name, value in tuple(self._config.items()) if canonical(name) != _SERVERS}
        return Admin({**config, _SERVERS: address}, HURRY)

    def replicas(self, topic: str) -> TopicMetadata:
        """What metadata says of `topic`."""
        return partitions_of(self._admin.list_topics(topic, self._timeout), topic)

    def configs(self, keys: Iterable[int | str]) -> dict[int | str, Values | str]:
        """Those of brokers and topics in one request, which one broker at most gets; of each, or why it is refused."""
        kinds = {int: ConfigResource.Type.BROKER, str: ConfigResource.Type.TOPIC}
        resources = {key: ConfigResource(kinds[type(key)], str(key)) for key in keys}
        answers = self._admin.describe_configs(list(resources.values()), request_timeout=self._timeout)
        found: dict[int | str, Values | str] = {}
        for key, resource in resources.items():
            try:
                found[key] = values(answers[resource].result(self._timeout * 2))
            except KafkaException as error:
                found[key] = _lasting(error)
        return found

    def window(self, node: int, topic: str) -> tuple[Announcement, Told | None]:
        """The announcement of `node` for `topic`, or why there is none; what it says of producer IDs beside that."""
        try:
            broker, about_topic = self._describe(
                ConfigResource(ConfigResource.Type.BROKER, str(node)), ConfigResource(ConfigResource.Type.TOPIC, topic)
            )
        except KafkaException as error:
            return Announcement(None, Source.ASSUMED, f"broker {node} did not tell: {_lasting(error)}"), None
        found = announcement(node, _entry(broker, BROKER_CONFIG), _entry(about_topic, TOPIC_CONFIG))
        return found, told(node, values(broker))

    def leaders(self, topic: str) -> frozenset[int]:
        """The brokers that lead a partition of `topic`."""
        return frozenset(partition.leader for partition in self.replicas(topic).values() if partition.leader >= 0)

    def takes_create_time(self, topic: str) -> bool:
        """Whether the records of `topic` keep their own timestamps, which is Kafka's default; so if nobody tells."""
        found = self.configs([topic])[topic]
        return isinstance(found, str) or found.get(_TIMESTAMP_TYPE) != "LogAppendTime"

    def _describe(self, *resources: Any) -> list[Mapping[str, ConfigEntry]]:
        answers = self._admin.describe_configs(list(resources), request_timeout=self._timeout)
        return [answers[resource].result(self._timeout * 2) for resource in resources]


def values(entries: Mapping[str, ConfigEntry]) -> dict[str, str | None]:
    """Values by name; of a sensitive entry None."""
    return {name: None if entry.is_sensitive else entry.value for name, entry in entries.items()}


def _lasting(error: KafkaException) -> str:
    """What it says; raises it again if another question may have another answer."""
    cause = error.args[0]
    if cause.code() not in PERMANENT:
        raise error
    return f"{cause.name()}: {cause.str()}"


def _login(config: Mapping[str, Any]) -> tuple[Any, Any]:
    return config.get("sasl.username"), config.get("sasl.password")


def _entry(entries: Mapping[str, ConfigEntry], name: str) -> Config | None:
    entry = entries.get(name)
    if entry is None:
        return None
    own = ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    return Config(entry.value, bool(entry.is_sensitive), own)


def _ignore(error: object) -> None:
    """The lanes tell of brokers that cannot be reached."""
