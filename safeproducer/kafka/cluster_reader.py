"""Reads what a cluster has: brokers, topics with their leaders, and how long each broker remembers a producer ID."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from logging import Logger
from typing import Any, NamedTuple

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from safeproducer.kafka.connection import connection_settings
from safeproducer.kafka.native import KafkaError, KafkaException

_NO_LEADER = -1


class Topic(NamedTuple):
    """A topic as the cluster describes it; `error` is the name of the code with which it refused."""

    leaders: Mapping[int, int | None]
    """Partition -> its leader, None where there is none at the moment."""
    error: str | None = None


class Configs(NamedTuple):
    """The configs of a broker or topic, or the name of the code and the text with which it refused."""

    values: Mapping[str, str | None]
    error: tuple[str, str] | None = None


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
        return {
            name: Topic({number: _leader(one.leader) for number, one in sorted(topic.partitions.items())})
            for name, topic in sorted(self.list_topics(timeout).topics.items())
        }

    def topics(self, names: Iterable[str], timeout: float) -> dict[str, Topic]:
        """Those of these names, which need not exist: asking for one by list_topics() could make it."""
        futures = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=timeout)
        return {name: _described(future, timeout) for name, future in futures.items()}

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


def _leader(number: int) -> int | None:
    return None if number == _NO_LEADER else number


def _described(future: Any, timeout: float) -> Topic:
    try:
        partitions: Sequence[Any] = future.result(timeout * 2).partitions
    except KafkaException as error:
        return Topic({}, error.args[0].name())
    except FutureTimeoutError:
        return Topic({}, "_TIMED_OUT")
    return Topic({one.id: None if one.leader is None else _leader(one.leader.id) for one in partitions})


def _configs(future: Any, timeout: float) -> Configs:
    try:
        found = future.result(timeout * 2)
    except KafkaException as error:
        return Configs({}, (error.args[0].name(), error.args[0].str()))
    except FutureTimeoutError:
        return Configs({}, ("_TIMED_OUT", "no answer"))
    return Configs({name: entry.value for name, entry in found.items()})
