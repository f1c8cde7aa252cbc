"""Asks brokers, and changes configs: what a producer asks on a thread of its own, and what commands and tasks read.

A producer asks by DescribeConfigs: windows (KIP-1269), producer ID expirations (KIP-854), throttles (KIP-73). No
released client reads the field of Produce v14 that tells a window. One request holds the broker's own configs and the
topic's, so that librdkafka sends it to that broker: a topic's alone would go to any, whose inherited values are its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from logging import Logger
from typing import Any, NamedTuple

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource

from safeproducer.kafka.arguments import is_no_name
from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.kafka.properties import canonical, connection_settings
from safeproducer.policy.cluster_metadata import MANY, TopicMetadata, described, partitions_of
from safeproducer.policy.replication import Replicas
from safeproducer.policy.window import BROKER_CONFIG, TOPIC_CONFIG, Announcement, Config, Source, announcement
from safeproducer.runtime import forks

TIMEOUT = 5.0  # seconds that one request may take
HURRY = 1.0  # seconds that one request may take while a broker hangs, which may be the one that is asked
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
_NO_LEADER = -1
Refusal = tuple[str, str]  # the name of a code, and a text


class Admin:
    """An admin client, which ends with this; for one thread. Any may set_sasl_credentials(), after `config` has them.

    `config` is not copied. An answer that may be another one soon is raised as a KafkaException.
    """

    def __init__(self, config: Mapping[str, Any], timeout: float = TIMEOUT) -> None:
        self._config, self._timeout = config, timeout
        before = _login(config)
        own: dict[str, Any] = {**connection_settings(config), "log_level": _QUIET, "error_cb": _ignore}
        self._admin: Any = forks.spare_in_children(AdminClient(own))
        if (now := _login(config)) != before:  # changed meanwhile, by who did not find an admin client
            self._admin.set_sasl_credentials(*now)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        self._admin.set_sasl_credentials(username, password)

    def at(self, address: str) -> Admin:
        """Another one, which connects there first: one that was kept may be bound to a broker that hangs."""
        config = {name: value for name, value in tuple(self._config.items()) if canonical(name) != _SERVERS}
        return Admin({**config, _SERVERS: address}, HURRY)

    def replicas(self, topics: Sequence[str], within: float | None = None) -> dict[str, TopicMetadata]:
        """Metadata of these topics, in one question; without topics that a broker tells nothing of.

        A question for several goes to the broker that metadata call the controller, which may be the one that hangs:
        then the first of them are asked for one by one, over the connection that there is.
        """
        timeout = within or self._timeout
        # A text that cannot be encoded, such as a lone surrogate, ends the process in describe_topics().
        if len(names := [topic for topic in topics if not is_no_name(topic)]) > 1:
            asked = self._admin.describe_topics(TopicCollection(names), request_timeout=timeout)
            found = {topic: _answer(future, timeout)[0] for topic, future in asked.items()}
            if told := described({topic: it.partitions for topic, it in found.items() if it is not None}):
                return told
        answers = {topic: self._admin.list_topics(topic, timeout) for topic in topics[:MANY]}
        return {topic: partitions_of(answer, topic) for topic, answer in answers.items()}

    def configs(self, keys: Iterable[int | str]) -> dict[int | str, Values | str]:
        """Configs of brokers and topics in one request, which one broker at most gets; or why they are refused."""
        resources = {key: _resource(key) for key in keys}
        answers = self._admin.describe_configs(list(resources.values()), request_timeout=self._timeout)
        found: dict[int | str, Values | str] = {}
        for key, resource in resources.items():
            try:
                found[key] = values(answers[resource].result(self._timeout * 2))
            except KafkaException as error:
                found[key] = _lasting(error)
        return found

    def window(self, node: int, topic: str) -> Announcement:
        """The announcement of `node` for `topic`, or why there is none."""
        resources = [_resource(node), _resource(topic)]
        try:
            answers = self._admin.describe_configs(resources, request_timeout=self._timeout)
            broker, about_topic = (answers[resource].result(self._timeout * 2) for resource in resources)
        except KafkaException as error:
            return Announcement(None, Source.ASSUMED, f"broker {node} did not tell: {_lasting(error)}")
        return announcement(node, _entry(broker, BROKER_CONFIG), _entry(about_topic, TOPIC_CONFIG))

    def takes_create_time(self, topic: str) -> bool:
        """Whether the records of `topic` keep their own timestamps, which is Kafka's default; so if nobody tells."""
        found = self.configs([topic])[topic]
        return isinstance(found, str) or found.get(_TIMESTAMP_TYPE) != "LogAppendTime"


def _resource(of: int | str, **more: Any) -> ConfigResource:
    """A broker, by its number, or a topic, by its name."""
    kind = ConfigResource.Type.BROKER if isinstance(of, int) else ConfigResource.Type.TOPIC
    return ConfigResource(kind, str(of), **more)


def values(entries: Mapping[str, ConfigEntry]) -> dict[str, str | None]:
    """Values by name; of a sensitive entry None."""
    return {name: None if entry.is_sensitive else entry.value for name, entry in entries.items()}


def _lasting(error: KafkaException) -> str:
    """The error as text; raises it again if another question may have another answer."""
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
        return int(self._admin.poll(timeout))

    def list_topics(self, timeout: float) -> Any:
        """As confluent_kafka's: brokers and all topics. Makes no topic."""
        return self._admin.list_topics(timeout=timeout)

    def brokers(self, timeout: float) -> dict[int, str]:
        """Broker -> its address as advertised. Raises KafkaException when none answers."""
        found = self.list_topics(timeout).brokers
        return {number: f"{broker.host}:{broker.port}" for number, broker in sorted(found.items())}

    def all_topics(self, timeout: float) -> dict[str, Topic]:
        """The topics that this user may describe. Raises KafkaException when no broker answers."""
        metadata, found = self.list_topics(timeout), {}
        alive = frozenset(metadata.brokers)
        for name, topic in sorted(metadata.topics.items()):
            partitions = sorted(topic.partitions.items())
            found[name] = Topic({at: _replicas(one.leader, one.replicas, one.isrs, alive) for at, one in partitions})
        return found

    def topics(self, names: Iterable[str], timeout: float) -> dict[str, Topic]:
        """Topics of these names, which need not exist: asking for one by list_topics() could make it."""
        alive = frozenset(self.brokers(timeout))
        futures = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=timeout)
        return {name: _described(future, alive, timeout) for name, future in futures.items()}

    def configs(self, brokers: Iterable[int], timeout: float) -> dict[int, Configs]:
        """Each broker's own, asked at once. Never raises KafkaException."""
        asked = {
            number: self._admin.describe_configs([_resource(number)], request_timeout=timeout) for number in brokers
        }
        return {number: _configs(futures[_resource(number)], timeout) for number, futures in asked.items()}

    def topic_configs(self, names: Iterable[str], timeout: float) -> dict[str, Configs]:
        """Each topic's, inherited ones included, asked in one request. Never raises KafkaException."""
        resources = {name: _resource(name) for name in names}
        asked = self._admin.describe_configs(list(resources.values()), request_timeout=timeout) if resources else {}
        return {name: _configs(asked[resource], timeout) for name, resource in resources.items()}


class Change(NamedTuple):
    """A change of one config. `of`: a broker's number or a topic's name. `operation`: SET, DELETE, APPEND, SUBTRACT."""

    of: int | str
    config: str
    operation: str
    value: str | None = None


class ConfigWriter(ClusterReader):
    def change(self, changes: Iterable[Change], timeout: float, *, only_check: bool) -> dict[int | str, Refusal | None]:
        """All changes of a broker or topic are made, or none; with `only_check` none. Never raises KafkaException."""
        asked: dict[int | str, list[ConfigEntry]] = {}
        for one in changes:
            operation = AlterConfigOpType[one.operation]
            asked.setdefault(one.of, []).append(ConfigEntry(one.config, one.value, incremental_operation=operation))
        futures = {}
        for of, entries in asked.items():
            resource, how = _resource(of, incremental_configs=entries), {"validate_only": only_check}
            asking = self._admin.incremental_alter_configs([resource], request_timeout=timeout, **how)
            futures[of] = asking[resource]
        return {of: _answer(future, timeout)[1] for of, future in futures.items()}


def _replicas(leader: int, replicas: Iterable[int], in_sync: Iterable[int], alive: frozenset[int]) -> Replicas:
    return Replicas(None if leader == _NO_LEADER else leader, tuple(replicas), frozenset(in_sync), alive)


def _described(future: Any, alive: frozenset[int], timeout: float) -> Topic:
    found, error = _answer(future, timeout)
    if error is not None:
        return Topic({}, error[0])
    (told,) = described({"": found.partitions}).values()
    return Topic({at: _replicas(it.leader, it.replicas or (), it.in_sync or (), alive) for at, it in told.items()})


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
