"""This module translates values of Java's settings to librdkafka's, or refuses an option with a sentence.

Each converter takes all settings that were given, by Java's names, and the name of the one it converts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches

from safeproducer.errors import ConfigurationError
from safeproducer.kafka.properties import HIDDEN, is_sensitive
from safeproducer.policy.partitioner import PARTITIONERS
from safeproducer.settings.own_settings import MAX_BLOCK_MS

KAFKA_PREFIX = "kafka."
SECRETS = (
    "sasl.jaas.config",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.truststore.certificates",
    "ssl.truststore.password",
)
"""Java's settings that hold a secret or a text of many lines. Their values are never shown."""

_NO_SECRETS = ("ssl.keystore.location", "ssl.keystore.type", "ssl.truststore.location", "ssl.truststore.type")
"""Their names look like those of secrets."""


def refused(option: str, value: str, problem: str, way_out: str) -> ConfigurationError:
    """The error to raise for an option under its full name, as in `kafka.acks`."""
    return ConfigurationError(option, shown(option, value), problem, way_out)


def kafka_refused(name: str, value: str, problem: str, way_out: str) -> ConfigurationError:
    """As refused(), for a setting of Java's producer by its own name."""
    return refused(KAFKA_PREFIX + name, value, problem, way_out)


def shown(option: str, value: str) -> str:
    """The value as messages quote it. A misspelt secret counts as one."""
    name = option.removeprefix(KAFKA_PREFIX)
    if name in _NO_SECRETS:
        return repr(value)
    secret = bool(get_close_matches(name, SECRETS, n=1, cutoff=0.75)) or is_sensitive(name)
    return HIDDEN if secret else repr(value)


Given = Mapping[str, str]
Settings = dict[str, str]
Convert = Callable[[Given, str], Settings]

INT = 2_147_483_647
LONG = 9_223_372_036_854_775_807
JAVAS_PARTITIONER = "murmur2_random"
_ALL_KEYS_ALIKE = "random"
_JAVAS_FIRST_PAUSE_MS = 50
_PARTITIONER_PACKAGE = "org.apache.kafka.clients.producer."
_JAVAS_CLASSES = {"internals.DefaultPartitioner": JAVAS_PARTITIONER, "UniformStickyPartitioner": _ALL_KEYS_ALIKE}


def whole_number(text: str, least: int, most: int) -> int | None:
    """None when it is none, or not within these bounds."""
    try:
        found = int(text)
    except ValueError:
        return None
    return found if least <= found <= most else None


def number(given: Given, name: str, least: int, most: int, way_out: str = "") -> int:
    """A whole number within bounds. Raises ConfigurationError."""
    value = given[name]
    found = whole_number(value, least, most)
    if found is None:
        problem = f"it must be a whole number from {least} to {most}"
        raise kafka_refused(name, value, problem, way_out or "Change it, or leave it out for librdkafka's default")
    return found


def whole(*names: str, least: int = 0, most: int = INT, at_least: int | None = None, way_out: str = "") -> Convert:
    """The same number under these names of librdkafka, or under the same name.

    `at_least`: librdkafka's least value, which stands for smaller ones that Java takes.
    """

    def convert(given: Given, name: str) -> Settings:
        found = number(given, name, least, most, way_out)
        text = str(found if at_least is None else max(at_least, found))
        return dict.fromkeys(names or (name,), text)

    return convert


def same(given: Given, name: str) -> Settings:
    """The same name, and any text but an empty one."""
    if not given[name].strip():
        raise kafka_refused(name, given[name], "it is empty", "Give a value, or leave it out")
    return {name: given[name].strip()}


def one_of(*choices: str, to: Mapping[str, str] | None = None) -> Convert:
    """One of librdkafka's values; `to` maps Java's other names for them."""

    def convert(given: Given, name: str) -> Settings:
        value = given[name].strip().lower()
        value = (to or {}).get(value, value)
        if value not in choices:
            known = ", ".join((*choices, *(java for java in to or {} if java)))
            raise kafka_refused(name, given[name], f"it must be one of {known}", "Change it, or leave it out")
        return {name: value}

    return convert


truth = one_of("true", "false")


def buffer_memory(given: Given, name: str) -> Settings:
    """Java counts bytes alone, so librdkafka's limit on the number of records is lifted."""
    size = number(given, name, 1, INT * 1024)
    return {"queue.buffering.max.kbytes": str(-(-size // 1024)), "queue.buffering.max.messages": "0"}


def idle(given: Given, name: str) -> Settings:
    """Below zero is "never" for Java, and zero for librdkafka."""
    found = number(given, name, -LONG, INT)
    if found == 0:
        raise kafka_refused(name, given[name], "connections would be closed at once", "Give -1 to keep them open")
    return {name: str(max(0, found))}


def level(codec: str, least: int, most: int) -> Convert:
    """The level of one codec; of no effect beside another `compression.type`, as in Java."""

    def convert(given: Given, name: str) -> Settings:
        found = number(given, name, least, most, f"Give a level of {codec} that librdkafka has, or leave it out")
        chosen = given.get("compression.type", "none").strip().lower()
        return {"compression.level": str(found)} if chosen == codec else {}

    return convert


def max_block(given: Given, name: str) -> Settings:
    """This library's own, in the same unit."""
    return {MAX_BLOCK_MS: str(number(given, name, 0, LONG))}


def reconnect(given: Given, name: str) -> Settings:
    """Java's two settings. librdkafka refuses a first pause above the longest one, which Java makes the same."""
    first, longest = "reconnect.backoff.ms", "reconnect.backoff.max.ms"
    found = {each: number(given, each, 0, 3_600_000) for each in (first, longest) if each in given}
    least = found.get(first, _JAVAS_FIRST_PAUSE_MS)
    most = found.get(longest, least)
    return {first: str(min(least, most)), longest: str(most)}


def metadata_age(given: Given, name: str) -> Settings:
    """Java's refreshes metadata; librdkafka's of the same name is about a cache."""
    return {"topic.metadata.refresh.interval.ms": str(number(given, name, 1, 3_600_000))}


def partitioner_class(given: Given, name: str) -> Settings:
    """Java's own classes, and librdkafka's names of partitioners."""
    value = given[name].strip()
    chosen = _JAVAS_CLASSES.get(value.removeprefix(_PARTITIONER_PACKAGE), value)
    if not value:
        return {}
    if chosen not in PARTITIONERS:
        known = ", ".join(sorted(PARTITIONERS))
        raise kafka_refused(
            name,
            value,
            "a partitioner in Java cannot run in Python",
            f"Compute the partition in Spark and write it in the column 'partition', or give one of {known}",
        )
    return {"partitioner": chosen}


def ignore_keys(given: Given, name: str) -> Settings:
    """Has no effect beside a partitioner that was named, as in Java."""
    ignores = truth(given, name)[name] == "true"
    return {"partitioner": _ALL_KEYS_ALIKE} if ignores and not given.get("partitioner.class", "").strip() else {}


def tls_versions(given: Given, name: str) -> Settings:
    """librdkafka negotiates TLS 1.2 or 1.3 and cannot be told which."""
    versions = {version.strip() for version in given[name].split(",")}
    if "TLSv1.2" not in versions or "TLSv1.3" not in versions:
        raise kafka_refused(
            name,
            given[name],
            "librdkafka takes TLS 1.2 or 1.3, whichever the broker prefers",
            "Restrict ssl.enabled.protocols on the brokers, and leave it out here",
        )
    return {}
