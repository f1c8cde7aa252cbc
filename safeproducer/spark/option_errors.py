"""How an option is refused: by its full name, its value unless that may be a secret, and the way out."""

from __future__ import annotations

from difflib import get_close_matches

from safeproducer.errors import ConfigurationError
from safeproducer.kafka.properties import is_sensitive
from safeproducer.kafka.secrets import HIDDEN

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
