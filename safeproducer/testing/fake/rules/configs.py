"""Configs of brokers and topics and where values come from. cleanup.policy and auto.create.topics.enable do nothing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from safeproducer.testing.fake.rules.replication import LISTS, RATES, throttled_replicas

DYNAMIC_TOPIC_CONFIG, DYNAMIC_BROKER_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG = 1, 2, 3
STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 4, 5
UNKNOWN_TYPE, BOOLEAN, STRING, INT, LONG, LIST = 0, 1, 2, 3, 5, 7
CREATE_TIME, LOG_APPEND_TIME = "CreateTime", "LogAppendTime"
BATCHES_TO_RETAIN = "producer.state.batches.to.retain"
_LARGEST = {INT: (1 << 31) - 1, LONG: (1 << 63) - 1}
Layers = Sequence[tuple[Mapping[str, str], int]]
"""The settings of a broker, strongest first, each with its source."""


class ConfigError(ValueError):
    """A config that a broker would refuse; the message names it."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One config. ``broker_name`` is the broker config a topic inherits from.

    Without ``dynamic`` a broker takes it at its start only. Without ``listed`` no description shows it, unless it was
    set at run time: it is one of Kafka's internal configs, or KIP-936's for its cache. ``choices``: of a text, which
    values it takes; without them only its default.
    """

    type: int
    default: str
    minimum: int | None = None
    broker_name: str | None = None
    kip_1269: bool = False
    dynamic: bool = True
    listed: bool = True
    choices: tuple[str, ...] = ()


TOPIC: Mapping[str, Definition] = {
    "cleanup.policy": Definition(LIST, "delete", None, "log.cleanup.policy"),
    "max.message.bytes": Definition(INT, "1048588", 0, "message.max.bytes"),
    "message.timestamp.after.max.ms": Definition(LONG, "3600000", 0, "log.message.timestamp.after.max.ms"),
    "message.timestamp.type": Definition(
        STRING, CREATE_TIME, None, "log.message.timestamp.type", choices=(CREATE_TIME, LOG_APPEND_TIME)
    ),
    "min.insync.replicas": Definition(INT, "1", 1, "min.insync.replicas"),
    BATCHES_TO_RETAIN: Definition(INT, "5", 5, f"log.{BATCHES_TO_RETAIN}", kip_1269=True),
    **dict.fromkeys(LISTS.values(), Definition(LIST, "")),
    "retention.bytes": Definition(LONG, "-1", None, "log.retention.bytes"),
    "retention.ms": Definition(LONG, "604800000", -1, "log.retention.ms"),
}
BROKER: Mapping[str, Definition] = {
    "auto.create.topics.enable": Definition(BOOLEAN, "false", dynamic=False),
    "connection.failed.authentication.delay.ms": Definition(INT, "100", 0, dynamic=False),
    "producer.id.expiration.ms": Definition(INT, "86400000", 1),
    "producer.id.expiration.check.interval.ms": Definition(INT, "600000", 1, dynamic=False, listed=False),
    "producer.id.quota.window.num": Definition(INT, "1", 1, dynamic=False),
    "producer.id.quota.window.size.seconds": Definition(INT, "3600", 1, dynamic=False),
    "producer.id.quota.cache.cleanup.scheduler.interval.ms": Definition(INT, "10", 1, dynamic=False, listed=False),
    **dict.fromkeys(RATES.values(), Definition(LONG, str((1 << 63) - 1), 0, listed=False)),
    "replica.lag.time.max.ms": Definition(LONG, "30000", dynamic=False),
    "quota.window.num": Definition(INT, "11", 1, dynamic=False),
    "quota.window.size.seconds": Definition(INT, "1", 1, dynamic=False),
    **{
        definition.broker_name: replace(definition, broker_name=None)
        for definition in TOPIC.values()
        if definition.broker_name is not None
    },
}


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """One entry of a description; ``value`` is None for what must not be shown."""

    name: str
    value: str | None
    source: int
    type: int
    synonyms: tuple[tuple[str, str | None, int], ...] = ()

    @property
    def sensitive(self) -> bool:
        return self.value is None


def check(definitions: Mapping[str, Definition], name: str, value: str | None) -> None:
    """Raises ConfigError for an unknown name and a value out of range."""
    definition = definitions.get(name)
    if definition is None:
        raise ConfigError(f"unknown config {name}; FakeCluster knows {', '.join(sorted(definitions))}")
    if definition.type in (INT, LONG):
        try:
            number = int(value or "")
        except ValueError:
            raise ConfigError(f"{name}: {value!r} is no whole number") from None
        if definition.minimum is not None and number < definition.minimum:
            raise ConfigError(f"{name}: {value} is below the minimum of {definition.minimum}")
        if not -number <= (largest := _LARGEST[definition.type]) >= number:
            raise ConfigError(f"{name}: {value} is beyond {largest}")
    elif name in LISTS.values():
        try:
            throttled_replicas(value or "")
        except ValueError as error:
            raise ConfigError(f"{name}: {error}") from None
    elif value not in (choices := definition.choices or (definition.default,)):
        taken = " and ".join(map(repr, choices))
        raise ConfigError(f"{name}: {value!r} is not supported by FakeCluster; it has {taken} only")


def knows(definitions: Mapping[str, Definition], name: str, *, kip_1269: bool) -> bool:
    """Whether a broker with or without KIP-1269 has a definition of this config."""
    definition = definitions.get(name)
    return definition is not None and (kip_1269 or not definition.kip_1269)


def _inherited(name: str, definition: Definition, broker: Layers) -> Iterator[tuple[str, str, int]]:
    for layer, source in broker:
        if name in layer:
            yield name, layer[name], source
    yield name, definition.default, DEFAULT_CONFIG


def describe_broker(broker: Layers, *, kip_1269: bool) -> list[ConfigValue]:
    """The configs of this broker: those that it has definitions of, and those that were set without one.

    The latter are listed as Kafka lists them: sensitive, without their value.
    """
    described = []
    for name, definition in BROKER.items():
        shown = definition.listed or (definition.dynamic and any(name in layer for layer, _ in broker))
        if shown and knows(BROKER, name, kip_1269=kip_1269):
            found = tuple(_inherited(name, definition, broker))
            synonyms = found if definition.listed else found[:-1]
            described.append(ConfigValue(name, found[0][1], found[0][2], definition.type, synonyms))
    sources = {name: source for layer, source in reversed(broker) for name in layer}
    unknown = [name for name in sources if not knows(BROKER, name, kip_1269=kip_1269)]
    return described + [ConfigValue(name, None, sources[name], UNKNOWN_TYPE) for name in unknown]


def describe_topic(topic: Mapping[str, str], broker: Layers, *, kip_1269: bool) -> list[ConfigValue]:
    """The configs of a topic: inherited values are those of the broker that answers.

    An override a broker has no definition of is listed as Kafka lists it: sensitive, without its value.
    """
    described = []
    for name, definition in TOPIC.items():
        if knows(TOPIC, name, kip_1269=kip_1269):
            own = ((name, topic[name], DYNAMIC_TOPIC_CONFIG),) if name in topic else ()
            inherited = _inherited(definition.broker_name, definition, broker) if definition.broker_name else ()
            found = (*own, *inherited)
            value, source = found[0][1:] if found else (definition.default, DEFAULT_CONFIG)
            described.append(ConfigValue(name, value, source, definition.type, found))
        elif name in topic:
            described.append(ConfigValue(name, None, DYNAMIC_TOPIC_CONFIG, UNKNOWN_TYPE))
    return described
