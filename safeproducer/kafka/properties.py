"""librdkafka's producer settings: their names as of 2.16.0, numbers as C reads them, and secrets.

librdkafka decides what exists; this list serves suggestions and the table in the documentation. A name missing here
is passed on like any other.

By C's rules "5.0", " 5" and "5 ms" are five, "0x10" is sixteen, and "1e3" is one where a whole number is wanted.

Secrets are cut out of texts that come from librdkafka, which quotes settings whole or from any position in them. A part
of a secret that stands by itself is cut out from 4 characters on, one inside another word from 8 on: a shorter one is
there by chance. Words that such texts consist of anyway ("broker", "kafka", "true") stay, or a secret that is one of
them would be told by its gaps; where they are quoted, or behind an equals sign, they are cut out, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import inf, nan
from typing import Any

from safeproducer.kafka.advice import sentences

REFUSED = {
    "enable.gapless.guarantee": (
        "it turns one expired record into a fatal error for the whole producer",
        "Remove it; every record already ends with a delivery report that says what became of it",
    )
}
"""Setting -> (why, way out). Refused only when switched on."""

PYTHON_ONLY = ("on_delivery", "error_cb", "throttle_cb", "stats_cb", "oauth_cb", "logger", "default.topic.config")
"""Names that confluent_kafka understands in Python and librdkafka does not know."""

ALIASES: dict[str, str] = {
    "acks": "request.required.acks",
    "bootstrap.servers": "metadata.broker.list",
    "compression.type": "compression.codec",
    "delivery.timeout.ms": "message.timeout.ms",
    "linger.ms": "queue.buffering.max.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "retries": "message.send.max.retries",
    "sasl.mechanism": "sasl.mechanisms",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}

_NAMES = """
acks allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
batch.num.messages batch.size bootstrap.servers broker.address.family broker.address.ttl broker.version.fallback
client.dns.lookup client.id client.rack compression.codec compression.level compression.type connections.max.idle.ms
debug delivery.report.only.error delivery.timeout.ms enable.gapless.guarantee enable.idempotence enable.metrics.push
enable.random.seed enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification https.ca.location
https.ca.pem internal.termination.signal linger.ms log.connection.close log.queue log.thread.name log_level
max.in.flight max.in.flight.requests.per.connection message.copy.max.bytes message.max.bytes message.send.max.retries
message.timeout.ms metadata.broker.list metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms
metadata.recovery.strategy partitioner plugin.library.paths produce.offset.report
queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages queue.buffering.max.ms
queuing.strategy receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms reconnect.backoff.ms
request.required.acks request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab
sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name
sasl.mechanism sasl.mechanisms sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.jwt.template.file
sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
sasl.oauthbearer.config sasl.oauthbearer.extensions sasl.oauthbearer.grant.type
sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method sasl.oauthbearer.scope
sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol
socket.blocking.max.ms socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails
socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms ssl.ca.certificate.stores
ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.cipher.suites ssl.crl.location
ssl.curves.list ssl.endpoint.identification.algorithm ssl.engine.id ssl.engine.location ssl.key.location
ssl.key.password ssl.key.pem ssl.keystore.location ssl.keystore.password ssl.providers ssl.sigalgs.list
statistics.interval.ms sticky.partitioning.linger.ms topic.blacklist topic.metadata.propagation.max.ms
topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
topic.metadata.refresh.sparse transaction.timeout.ms transactional.id
"""
PRODUCER_PROPERTIES = tuple(_NAMES.split())

_SENSITIVE = re.compile(
    r"pass|pwd|secret|token|credential|\.pem$|private\.key|api\.?key|user\.info|jaas|oauthbearer\.config", re.IGNORECASE
)
_BLANKS_AND_SIGN = r"[ \t\n\v\f\r]*([+-]?)"
_WHOLE = re.compile(_BLANKS_AND_SIGN + r"(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")
_REAL = re.compile(
    _BLANKS_AND_SIGN + r"(?:(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?)"
    r"|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|((?i:inf))|(?i:nan))"
)
_LONG = 2**63
_INT = 2**31
_OF_THIS_LIBRARY = "safeproducer."
_OF_A_PRODUCER = """
allow.auto.create.topics batch.num.messages batch.size compression.codec compression.level default.topic.config
delivery.report.only.error enable.gapless.guarantee enable.idempotence max.in.flight.requests.per.connection
message.copy.max.bytes message.max.bytes message.send.max.retries message.timeout.ms on_delivery partitioner
produce.offset.report queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages
queue.buffering.max.ms queuing.strategy receive.message.max.bytes request.required.acks request.timeout.ms
sticky.partitioning.linger.ms transaction.timeout.ms transactional.id
"""
"""Among them receive.message.max.bytes: a consumer's must fit its fetch.max.bytes."""
_OF_ONE_CLIENT = "debug error_cb log.queue logger statistics.interval.ms stats_cb test.mock.num.brokers throttle_cb"
"""Among them test.mock.num.brokers: it would make brokers of its own."""
_LEFT_OUT = frozenset(_OF_A_PRODUCER.split() + _OF_ONE_CLIENT.split())
HIDDEN = "***"
LEAST = 4
_BY_CHANCE = 8  # shorter parts of a secret are met in other words by chance
_QUOTING = frozenset("\"'`=")
_WORD = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(r"[\d_]")
_VALUES = "true false none null kafka rdkafka invalid value configuration property expected unknown error"
ORDINARY = frozenset(
    word.lower()
    for text in (*PRODUCER_PROPERTIES, *ALIASES, *ALIASES.values(), *sentences(), _VALUES)
    for word in _WORD.findall(text)
)
"""Words of librdkafka's settings and of our sentences about its errors."""


def canonical(name: str) -> str:
    """The name librdkafka uses for `name` when that is an alias."""
    return ALIASES.get(name, name)


def suggestions(name: str, among: tuple[str, ...] = (*PRODUCER_PROPERTIES, *PYTHON_ONLY)) -> list[str]:
    """Known settings that look like `name`, best first; Java's spelling and underscores are understood."""
    from difflib import get_close_matches  # noqa: PLC0415 - for a constructor that raises

    return get_close_matches(name.lower().replace("_", "."), among, n=3, cutoff=0.75)


@lru_cache(maxsize=1024)
def is_sensitive(name: str) -> bool:
    """Whether the value of `name` must never be shown. A misspelt password setting counts as well.

    Remembered, because to look for similar names takes milliseconds, and each error of a client is scrubbed. For those
    that are known nothing is imported: a child of a fork would wait for ever if another thread was importing it.
    """
    similar = () if name in PRODUCER_PROPERTIES or name in PYTHON_ONLY else suggestions(name)
    return any(_SENSITIVE.search(candidate) for candidate in (name, *similar))


def whole(value: Any) -> int | None:
    """The int that librdkafka takes this value for; None when it finds no number in it."""
    found = _WHOLE.match(str(value))
    if found is None:
        return None
    sign, digits = found.groups()
    number = int(digits, 16 if digits[:2].lower() == "0x" else 8 if digits[0] == "0" else 10)
    number = max(-_LONG, min(_LONG - 1, -number if sign == "-" else number))
    return (number + _INT) % (2 * _INT) - _INT  # kept in an int of 32 bits


def real(value: Any) -> float | None:
    """The double that librdkafka takes this value for; None when it finds no number in it."""
    found = _REAL.match(str(value))
    if found is None:
        return None
    sign, hexadecimal, decimal, infinite = found.groups()
    if hexadecimal:
        number = float.fromhex(hexadecimal)
    elif decimal:
        number = float(decimal)
    else:
        number = inf if infinite else nan
    return -number if sign == "-" else number


def connection_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return all but what only a producer understands, and what one client tells and does for itself.

    The list names what is left out, not what is passed on: a client that lacks a setting that it needs to connect fails
    in silence, and a newer librdkafka has more of those.
    """
    return {
        name: value
        for name, value in tuple(config.items())
        if canonical(name) not in _LEFT_OUT and not name.startswith(_OF_THIS_LIBRARY)
    }


def scrub(text: str, secrets: Iterable[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        text = _without(text, secret)
    return text


# librdkafka quotes settings whole, or from any position on: a secret may stand there in part. Each part from LEAST
# characters on is cut out, but for ordinary words, whose gaps would tell the secret, and what is met by chance.
def _without(text: str, secret: str) -> str:
    parts = {secret[start : start + LEAST] for start in range(len(secret) - LEAST + 1)}
    kept: list[str] = []
    done = position = 0
    while position <= len(text) - LEAST:
        if text[position : position + LEAST] not in parts:
            position += 1
            continue
        end = position + LEAST
        while end < len(text) and text[position : end + 1] in secret:
            end += 1
        part = text[position:end]
        quoted = text[:position].rstrip()[-1:] in _QUOTING
        if _is_ordinary(part) and not quoted and (part != secret or _WORD.fullmatch(part)):
            position += 1
            while _joins(text, position):
                position += 1
        elif len(part) < _BY_CHANCE and (_joins(text, position) or _joins(text, end)):
            position += 1
        else:
            kept += (text[done:position], HIDDEN)
            done = position = end
    return "".join((*kept, text[done:]))


def _is_ordinary(part: str) -> bool:
    words = _WORD.findall(part)
    return bool(words) and all(word.lower() in ORDINARY for word in words) and not _NUMBER.search(part)


def _joins(text: str, position: int) -> bool:
    return 0 < position < len(text) and text[position - 1].isalnum() and text[position].isalnum()
