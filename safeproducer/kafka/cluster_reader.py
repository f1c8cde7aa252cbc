"""Reads what a cluster has: brokers, topics with their replicas, and configs. Only ConfigWriter changes anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from logging import Logger
from typing import Any, NamedTuple

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from safeproducer.kafka.connection import connection_settings
from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.policy.replication import Replicas

_NO_LEADER = -1
Refusal = tuple[str, str]
"""The name of a code, and a text."""


class Topic(NamedTuple):
    """A topic as the cluster describes it; `error` is the name of the code with which it refused."""

    partitions: Mapping[int, Replicas]
    error: str | None = None


class Configs(NamedTuple):
    """The configs of a broker or topic, or why it refused."""

    values: Mapping[str, str | None]
    error: Refusal | None = None


class ClusterReader:
    """One admin client, which changes nothing. For one thread.

    `config` is a producer's configuration; what only a producer understands is left out. It takes no producer ID.
    Raises KafkaException for a setting that librdkafka refuses.
    """

    def __init__(self, config: Mapping[str, Any], *, error_cb: Callable[[KafkaError], None], logger: Logger) -> None:
        settings: dict[str, Any] = {**connection_settings(config), "error_cb": error_cb}
        self._admin = AdminClient(settings, logger=logger)

    def poll(self, timeout: float) -> int:
        """Serve the error callback."""
        return int(self._admin.poll(timeout))

    def list_topics(self, timeout: float) -> Any:
        """As confluent_kafka's: brokers and all topics. Makes no topic."""
        return self._admin.list_topics(timeout=timeout)

    def brokers(self, timeout: float) -> dict[int, str]:
        """Broker -> its address as advertised. Raises KafkaException when none answers."""
        found = self.list_topics(timeout).brokers
        return {number: f"{broker.host}:{broker.port}" for number, broker in sorted(found.items())}

    def all_topics(self, timeout: float) -> dict[str, Topic]:
        """Those that this user may describe. Raises KafkaException when no broker answers."""
        metadata, found = self.list_topics(timeout), {}
        alive = frozenset(metadata.brokers)
        for name, topic in sorted(metadata.topics.items()):
            partitions = sorted(topic.partitions.items())
            found[name] = Topic({at: _replicas(one.leader, one.replicas, one.isrs, alive) for at, one in partitions})
        return found

    def topics(self, names: Iterable[str], timeout: float) -> dict[str, Topic]:
        """Those of these names, which need not exist: asking for one by list_topics() could make it."""
        alive = frozenset(self.brokers(timeout))
        futures = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=timeout)
        return {name: _described(future, alive, timeout) for name, future in futures.items()}

    def configs(self, brokers: Iterable[int], timeout: float) -> dict[int, Configs]:
        """Each broker's own, asked at once. Never raises KafkaException."""
        asked = {}
        for number in brokers:
            resource = ConfigResource(ConfigResource.Type.BROKER, str(number))
            asked[number] = self._admin.describe_configs([resource], request_timeout=timeout)[resource]
        return {number: _configs(future, timeout) for number, future in asked.items()}

    def topic_configs(self, names: Iterable[str], timeout: float) -> dict[str, Configs]:
        """Each topic's, inherited ones included, asked in one request. Never raises KafkaException."""
        resources = {name: ConfigResource(ConfigResource.Type.TOPIC, name) for name in names}
        asked = self._admin.describe_configs(list(resources.values()), request_timeout=timeout) if resources else {}
        return {name: _configs(asked[resource], timeout) for name, resource in resources.items()}


class Change(NamedTuple):
    """A change of one config. `of`: a broker's number or a topic's name. `operation`: SET, DELETE, APPEND, SUBTRACT."""

    of: int | str
    config: str
    operation: str
    value: str | None = None


class ConfigWriter(ClusterReader):
    """It changes configs as well."""

    def change(self, changes: Iterable[Change], timeout: float, *, only_check: bool) -> dict[int | str, Refusal | None]:
        """All changes of a broker or topic are made, or none; with `only_check` none. Never raises KafkaException."""
        asked: dict[int | str, list[ConfigEntry]] = {}
        for one in changes:
            operation = AlterConfigOpType[one.operation]
            asked.setdefault(one.of, []).append(ConfigEntry(one.config, one.value, incremental_operation=operation))
        futures = {}
        for of, entries in asked.items():
            kind = ConfigResource.Type.BROKER if isinstance(of, int) else ConfigResource.Type.TOPIC
            resource = ConfigResource(kind, str(of), incremental_configs=entries)
            futures[of] = self._admin.incremental_alter_configs(
                [resource], request_timeout=timeout, validate_only=only_check
            )[resource]
        return {of: _answer(future, timeout)[1] for of, future in futures.items()}


def _replicas(leader: int, replicas: Iterable[int], in_sync: Iterable[int], alive: frozenset[int]) -> Replicas:
    return Replicas(None if leader == _NO_LEADER else leader, tuple(replicas), frozenset(in_sync), alive)


def _described(future: Any, alive: frozenset[int], timeout: float) -> Topic:
    found, error = _answer(future, timeout)
    if error is not None:
        return Topic({}, error[0])
    partitions = {}
    for one in found.partitions:
        replicas, in_sync = ([node.id for node in nodes] for nodes in (one.replicas, one.isr))
        partitions[one.id] = _replicas(_NO_LEADER if one.leader is None else one.leader.id, replicas, in_sync, alive)
    return Topic(partitions)


def _configs(future: Any, timeout: float) -> Configs:
    found, error = _answer(future, timeout)
    return Configs({name: entry.value for name, entry in (found or {}).items()}, error)


def _answer(future: Any, timeout: float) -> tuple[Any, Refusal | None]:
    try:
        return future.result(timeout * 2), None
    except KafkaException as error:
        return None, (error.args[0].name(), error.args[0].str())
    except FutureTimeoutError:
        return None, ("_TIMED_OUT", "no answer")
