"""Every setting of Java's producer, by its name, in exactly one of three tables, and how its values are translated.

The names are those that `ProducerConfig` of kafka-clients 3.9.2 prints, the version that Spark 4.2's Kafka connector
brings. integration/test_spark_java_settings.py compares them with that jar. The documents have the tables, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import NamedTuple

from safeproducer.errors import ConfigurationError
from safeproducer.kafka.properties import HIDDEN, is_sensitive
from safeproducer.policy.partitioner import PARTITIONERS
from safeproducer.settings.own_settings import MAX_BLOCK_MS

KAFKA_PREFIX = "kafka."
_SECRETS = """sasl.jaas.config ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.password
    ssl.truststore.certificates ssl.truststore.password"""
"""Java's settings that hold a secret or a text of many lines. Their values are never shown."""

_NO_SECRETS = ("ssl.keystore.location", "ssl.keystore.type", "ssl.truststore.location", "ssl.truststore.type")
"""Their names look like those of secrets."""
Given = Mapping[str, str]
Convert = Callable[[Given, str], str | tuple[str, ...] | None]
"""A converter takes all settings given, by Java's names, and the name of the one it converts, which it may refuse.

It returns a value for each setting of librdkafka, or one for all of them, or None where the setting changes nothing.
"""
INT = 2_147_483_647
LONG = 9_223_372_036_854_775_807
JAVAS_PARTITIONER = "murmur2_random"
_ALL_KEYS_ALIKE = "random"
_JAVAS_FIRST_PAUSE_MS = 50
_PARTITIONER_PACKAGE = "org.apache.kafka.clients.producer."
_JAVAS_CLASSES = {"internals.DefaultPartitioner": JAVAS_PARTITIONER, "UniformStickyPartitioner": _ALL_KEYS_ALIKE}
_STAY = "or write with Spark's own Kafka sink"
_LOGIN = f"Log in with SCRAM, PLAIN or a certificate in PEM, {_STAY}"
_OPENSSL = "TLS is OpenSSL's here, and no class in Java takes part"
_KERBEROS = "kinit.cmd min.time.before.relogin service.name ticket.renew.jitter ticket.renew.window.factor"
_JAVA = "it names a class in Java, as delegation tokens and cloud logins need it"
_INTERCEPTED = "an interceptor in Java cannot run in Python, and rows would miss what it does"
_CIPHERS = "OpenSSL calls cipher suites by other names than Java"
_ID_OF_SINK = "the sink chooses it, where it has transactions"
_IDEMPOTENT = "Leave it out; retries of the client make no duplicates, as enable.idempotence is on"


def refused(option: str, value: str, problem: str, way_out: str) -> ConfigurationError:
    """The error to raise for an option under its full name, as in `kafka.acks`."""
    return ConfigurationError(option, shown(option, value), problem, way_out)


def kafka_refused(name: str, value: str, problem: str, way_out: str) -> ConfigurationError:
    """The error for a setting of Java's producer, by its own name."""
    return refused(KAFKA_PREFIX + name, value, problem, way_out)


def shown(option: str, value: str) -> str:
    """The value as messages quote it. A misspelt secret counts as one."""
    name = option.removeprefix(KAFKA_PREFIX)
    if name in _NO_SECRETS:
        return repr(value)
    secret = bool(get_close_matches(name, _SECRETS.split(), n=1, cutoff=0.75)) or is_sensitive(name)
    return HIDDEN if secret else repr(value)


# --- converters ------------------------------------------------------------------------------------------------------


def whole_number(text: str, least: int, most: int) -> int | None:
    """None when it is none, or not within these bounds."""
    try:
        found = int(text)
    except ValueError:
        return None
    return found if least <= found <= most else None


def number_of(given: Given, name: str, least: int, most: int, way_out: str, prefix: str = "") -> int:
    """The number of an option, whose full name begins with `prefix`. Raises ConfigurationError."""
    if (found := whole_number(given[name], least, most)) is None:
        raise refused(prefix + name, given[name], f"it must be a whole number from {least} to {most}", way_out)
    return found


def _number(given: Given, name: str, least: int, most: int, way_out: str = "") -> int:
    way_out = way_out or "Change it, or leave it out for librdkafka's default"
    return number_of(given, name, least, most, way_out, KAFKA_PREFIX)


def _whole(least: int = 0, most: int = INT, at_least: int | None = None) -> Convert:
    """A number stays as it is. `at_least`: librdkafka's least value, which stands for smaller ones that Java takes."""

    def convert(given: Given, name: str) -> str:
        found = _number(given, name, least, most)
        return str(found if at_least is None else max(at_least, found))

    return convert


def _same(given: Given, name: str) -> str:
    if not given[name].strip():
        raise kafka_refused(name, given[name], "it is empty", "Give a value, or leave it out")
    return given[name].strip()


def _one_of(choices: str, to: Mapping[str, str] | None = None) -> Convert:
    """One of librdkafka's values; `to` maps Java's other names for them."""
    java = to or {}

    def convert(given: Given, name: str) -> str:
        value = given[name].strip().lower()
        value = java.get(value, value)
        if value not in choices.split():
            known = ", ".join((*choices.split(), *filter(None, java)))
            raise kafka_refused(name, given[name], f"it must be one of {known}", "Change it, or leave it out")
        return value

    return convert


_truth = _one_of("true false")


def _buffer_memory(given: Given, name: str) -> tuple[str, str]:
    """Java counts bytes alone, so librdkafka's limit on the number of records is lifted."""
    return str(-(-_number(given, name, 1, INT * 1024) // 1024)), "0"


def _idle(given: Given, name: str) -> str:
    """Below zero is "never" for Java, and zero for librdkafka."""
    found = _number(given, name, -LONG, INT)
    if found == 0:
        raise kafka_refused(name, given[name], "connections would be closed at once", "Give -1 to keep them open")
    return str(max(0, found))


def _level(codec: str, least: int, most: int) -> Convert:
    """The level of one codec; of no effect beside another `compression.type`, as in Java."""

    def convert(given: Given, name: str) -> str | None:
        found = _number(given, name, least, most, f"Give a level of {codec} that librdkafka has, or leave it out")
        return str(found) if given.get("compression.type", "none").strip().lower() == codec else None

    return convert


def _reconnect(given: Given, name: str) -> tuple[str, str]:
    """Java's two settings, this one first. librdkafka refuses a first pause above the longest, which Java lowers."""
    first, longest = "reconnect.backoff.ms", "reconnect.backoff.max.ms"
    found = {each: _number(given, each, 0, 3_600_000) for each in (first, longest) if each in given}
    least = found.get(first, _JAVAS_FIRST_PAUSE_MS)
    most = found.get(longest, least)
    pauses = (str(min(least, most)), str(most))
    return pauses if name == first else pauses[::-1]


def _partitioner_class(given: Given, name: str) -> str | None:
    """Java's own classes, and librdkafka's names of partitioners."""
    value = given[name].strip()
    chosen = _JAVAS_CLASSES.get(value.removeprefix(_PARTITIONER_PACKAGE), value)
    if value and chosen not in PARTITIONERS:
        way_out = "Compute the partition in Spark and write it in the column 'partition', or give one of "
        known = ", ".join(sorted(PARTITIONERS))
        raise kafka_refused(name, value, "a partitioner in Java cannot run in Python", way_out + known)
    return chosen or None


def _ignore_keys(given: Given, name: str) -> str | None:
    """Has no effect beside a partitioner that was named, as in Java."""
    ignores = _truth(given, name) == "true" and not given.get("partitioner.class", "").strip()
    return _ALL_KEYS_ALIKE if ignores else None


def _tls_versions(given: Given, name: str) -> None:
    """librdkafka negotiates TLS 1.2 or 1.3 and cannot be told which."""
    if not {"TLSv1.2", "TLSv1.3"} <= {version.strip() for version in given[name].split(",")}:
        problem = "librdkafka takes TLS 1.2 or 1.3, whichever the broker prefers"
        way_out = "Restrict ssl.enabled.protocols on the brokers, and leave it out here"
        raise kafka_refused(name, given[name], problem, way_out)


# --- tables ----------------------------------------------------------------------------------------------------------


class Translation(NamedTuple):
    """librdkafka's settings for one of Java. `convert` is None where only several together are understood."""

    becomes: tuple[str, ...]
    convert: Convert | None

    def settings(self, given: Given, name: str) -> dict[str, str]:
        """The settings of librdkafka for this one of Java. Raises ConfigurationError."""
        found = self.convert(given, name) if self.convert is not None else None
        values = itertools.repeat(found) if isinstance(found, str) else found or ()
        return dict(zip(self.becomes, values, strict=False))


class Refusal(NamedTuple):
    """Why a setting is refused, and what to do instead: two halves of one message."""

    why: str
    way_out: str


def _to(name: str, convert: Convert | None, becomes: str | None = None) -> tuple[str, Translation]:
    return name, Translation((name,) if becomes is None else tuple(becomes.split()), convert)


TRANSLATED: dict[str, Translation] = dict(
    (
        _to("acks", _one_of("all 1 0", to={"-1": "all"})),
        _to("batch.size", _whole(at_least=1)),
        _to("bootstrap.servers", _same),
        _to("buffer.memory", _buffer_memory, "queue.buffering.max.kbytes queue.buffering.max.messages"),
        _to("client.dns.lookup", _one_of("use_all_dns_ips resolve_canonical_bootstrap_servers_only")),
        _to("client.id", _same),
        _to("compression.gzip.level", _level("gzip", -1, 9), "compression.level"),
        _to("compression.lz4.level", _level("lz4", 1, 12), "compression.level"),
        _to("compression.type", _one_of("none gzip snappy lz4 zstd")),
        _to("compression.zstd.level", _level("zstd", 0, 12), "compression.level"),
        _to("connections.max.idle.ms", _idle),
        _to("delivery.timeout.ms", _whole(1)),
        _to("enable.idempotence", _truth),
        _to("enable.metrics.push", _truth),
        _to("linger.ms", _whole(0, 900_000)),
        _to("max.block.ms", _whole(0, LONG), MAX_BLOCK_MS),
        _to("max.in.flight.requests.per.connection", _whole(1, 1_000_000)),
        _to("max.request.size", _whole(1_000, 1_000_000_000), "message.max.bytes"),
        _to("metadata.max.age.ms", _whole(1, 3_600_000), "topic.metadata.refresh.interval.ms"),
        _to("metadata.recovery.strategy", _one_of("none rebootstrap")),
        _to("partitioner.class", _partitioner_class, "partitioner"),
        _to("partitioner.ignore.keys", _ignore_keys, "partitioner"),
        _to("reconnect.backoff.max.ms", _reconnect, "reconnect.backoff.max.ms reconnect.backoff.ms"),
        _to("reconnect.backoff.ms", _reconnect, "reconnect.backoff.ms reconnect.backoff.max.ms"),
        _to("request.timeout.ms", _whole(10, 300_000), "request.timeout.ms socket.timeout.ms"),
        _to("retries", _whole()),
        _to("retry.backoff.max.ms", _whole(0, 300_000, at_least=1)),
        _to("retry.backoff.ms", _whole(0, 300_000, at_least=1)),
        _to(
            "sasl.jaas.config",
            None,
            "sasl.username sasl.password sasl.oauthbearer.client.id sasl.oauthbearer.client.secret "
            "sasl.oauthbearer.scope sasl.oauthbearer.extensions",
        ),
        _to("sasl.login.callback.handler.class", None, ""),
        _to("sasl.mechanism", None),
        _to("sasl.oauthbearer.sub.claim.name", None),
        _to("sasl.oauthbearer.token.endpoint.url", None, "sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.method"),
        _to("security.protocol", _one_of("plaintext ssl sasl_plaintext sasl_ssl")),
        _to("socket.connection.setup.timeout.ms", _whole(1_000)),
        _to("ssl.enabled.protocols", _tls_versions, ""),
        _to("ssl.endpoint.identification.algorithm", _one_of("https none", to={"": "none"})),
        _to("ssl.key.password", None),
        _to("ssl.keystore.certificate.chain", None, "ssl.certificate.pem"),
        _to("ssl.keystore.key", None, "ssl.key.pem"),
        _to("ssl.keystore.location", None, "ssl.certificate.location ssl.key.location ssl.keystore.location"),
        _to("ssl.keystore.password", None),
        _to("ssl.keystore.type", None, ""),
        _to("ssl.truststore.certificates", None, "ssl.ca.pem"),
        _to("ssl.truststore.location", None, "ssl.ca.location"),
        _to("ssl.truststore.password", None, "ssl.ca.pem"),
        _to("ssl.truststore.type", None, ""),
    )
)
"""docs/reference/spark-options.md has notes beside them."""


def _each(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: why for why, names in texts.items() for name in names.split()}


WITHOUT_EFFECT = _each(
    {
        "the sink reports by itself": "auto.include.jmx.reporter metric.reporters metrics.num.samples "
        "metrics.recording.level metrics.sample.window.ms",
        "rows are bytes, or strings that are written in UTF-8": "key.serializer value.serializer",
        "librdkafka chooses a partition at random for rows without a key, and stays with it for a while": ""
        "partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms",
        "the operating system sizes the buffers of sockets": "receive.buffer.bytes send.buffer.bytes",
        "brokers check tokens": "sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience "
        "sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms "
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms "
        "sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.scope.claim.name",
        "librdkafka renews a token by its own rule, and PLAIN and SCRAM have none": "sasl.login.connect.timeout.ms "
        "sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds "
        "sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms "
        "sasl.login.retry.backoff.ms",
        "OpenSSL chooses": "ssl.keymanager.algorithm ssl.protocol ssl.secure.random.implementation "
        "ssl.trustmanager.algorithm",
        "a topic's metadata stays while its producer lives": "metadata.max.idle.ms",
        "librdkafka's time-out for a connection does not grow": "socket.connection.setup.timeout.max.ms",
        "safeproducer.spark.transaction.timeout says it, in seconds": "transaction.timeout.ms",
    }
)
"""Name -> why it changes nothing. It is told once, on the driver."""


REFUSED: dict[str, Refusal] = {
    **{f"sasl.kerberos.{name}": Refusal("Kerberos is not supported", _LOGIN) for name in _KERBEROS.split()},
    "sasl.oauthbearer.header.urlencode": Refusal("librdkafka has no such setting", "Leave it out"),
    "sasl.client.callback.handler.class": Refusal(_JAVA, _LOGIN),
    "sasl.login.class": Refusal(_JAVA, _LOGIN),
    "interceptor.classes": Refusal(_INTERCEPTED, "Do it in Spark before the sink"),
    "security.providers": Refusal(_OPENSSL, "Leave it out"),
    "ssl.cipher.suites": Refusal(_CIPHERS, "Restrict ssl.cipher.suites on the brokers"),
    "ssl.engine.factory.class": Refusal(_OPENSSL, "Give keys and certificates in PEM"),
    "ssl.provider": Refusal(_OPENSSL, "Leave it out"),
    "transactional.id": Refusal(_ID_OF_SINK, _IDEMPOTENT),
}
