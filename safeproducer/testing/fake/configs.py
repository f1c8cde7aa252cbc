"""The configs brokers and topics know, where a value comes from, and the two of KIP-1269.

A config that is listed here acts, unless its definition says that it is only kept and described.
"""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["BROKER", "TOPIC", "ConfigError", "ConfigValue", "Definition", "check", "describe_broker", "describe_topic"]

UNKNOWN_SOURCE = 0
DYNAMIC_TOPIC_CONFIG = 1
DYNAMIC_BROKER_CONFIG = 2
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5

BOOLEAN, INT, LONG, LIST = 1, 3, 5, 7


class ConfigError(ValueError):
    """A config that a broker would refuse; the message names it."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One config. ``broker_name`` is the broker config a topic inherits from. Without ``acts`` it is only described."""

    type: int
    default: str
    minimum: int | None = None
    broker_name: str | None = None
    kip_1269: bool = False
    acts: bool = True


TOPIC: Mapping[str, Definition] = {
    "cleanup.policy": Definition(LIST, "delete", None, "log.cleanup.policy", acts=False),
    "max.message.bytes": Definition(INT, "1048588", 0, "message.max.bytes"),
    "min.insync.replicas": Definition(INT, "1", 1, "min.insync.replicas"),
    "producer.state.batches.to.retain": Definition(INT, "5", 5, "log.producer.state.batches.to.retain", kip_1269=True),
    "retention.ms": Definition(LONG, "604800000", -1, "log.retention.ms", acts=False),
}
BROKER: Mapping[str, Definition] = {
    "auto.create.topics.enable": Definition(BOOLEAN, "false", acts=False),
    **{
        definition.broker_name: Definition(
            definition.type, definition.default, definition.minimum, None, definition.kip_1269, definition.acts
        )
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
    """Raises ConfigError for a name nobody knows and a value out of range."""
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
    elif value != definition.default:
        raise ConfigError(f"{name}: {value!r} is not supported by FakeCluster; it has {definition.default!r} only")


Overrides = Mapping[str, tuple[str, int]]
"""Of a broker: by name, the value and its source."""


def _inherited(name: str, definition: Definition, broker: Overrides) -> tuple[tuple[str, str, int], ...]:
    default = (name, definition.default, DEFAULT_CONFIG)
    return ((name, *broker[name]), default) if name in broker else (default,)


def describe_broker(broker: Overrides, *, kip_1269: bool) -> list[ConfigValue]:
    """What this broker says about itself."""
    described = []
    for name, definition in BROKER.items():
        if kip_1269 or not definition.kip_1269:
            found = _inherited(name, definition, broker)
            described.append(ConfigValue(name, found[0][1], found[0][2], definition.type, found))
    return described


def describe_topic(topic: Mapping[str, str], broker: Overrides, *, kip_1269: bool) -> list[ConfigValue]:
    """What a broker says about a topic: inherited values are those of the broker that answers.

    An override a broker has no definition of is listed as Kafka lists it: sensitive, without its value.
    """
    described = []
    for name, definition in TOPIC.items():
        if kip_1269 or not definition.kip_1269:
            own = ((name, topic[name], DYNAMIC_TOPIC_CONFIG),) if name in topic else ()
            found = (*own, *_inherited(definition.broker_name or name, definition, broker))
            described.append(ConfigValue(name, found[0][1], found[0][2], definition.type, found))
        elif name in topic:
            described.append(ConfigValue(name, None, DYNAMIC_TOPIC_CONFIG, 0))
    return described
