"""From the configuration an application gives to what a lane gets, refusing early what cannot work."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from safeproducer.errors import ConfigurationError, ConfigurationTypeError, ConfigurationValueError
from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.kafka.properties import REFUSED, canonical, is_sensitive, scrub, suggestions, whole
from safeproducer.producer_ids import ledger_places
from safeproducer.runtime.log import logger
from safeproducer.settings import delivery, id_settings, own_settings
from safeproducer.settings.delivery import SendConfig
from safeproducer.settings.id_settings import IdSettings
from safeproducer.settings.own_settings import OWN_PREFIX, shown

_BACKPRESSURE = "queue.buffering.backpressure.threshold"
_MOST_BACKPRESSURE = 1_000_000  # the most that librdkafka takes
_EVENT_CALLBACKS = {
    "error_cb": ConfigurationTypeError,
    "throttle_cb": ConfigurationValueError,
    "stats_cb": ConfigurationTypeError,
}
"""By name, what is raised for one that cannot be called."""
_NAMED_IN_ERROR = re.compile(r'configuration property:? "([^"]+)"|[`"]([a-z][a-z._]+)[`"]')


@dataclass(frozen=True)
class Settings:
    """A checked configuration. Its repr never shows the settings themselves, which may hold secrets."""

    lane: dict[str, Any] = field(repr=False)
    on_delivery: Callable[..., Any] | None = field(repr=False)
    only_errors: bool
    error_cb: Callable[..., Any] | None = field(repr=False)
    throttle_cb: Callable[..., Any] | None = field(repr=False)
    statistics_cb: Callable[..., Any] | None = field(repr=False)
    producer_ids_per_hour: int
    ids: IdSettings
    delivery: SendConfig
    client_id: str
    bootstrap_servers: str
    principal: str
    transactional_id: str | None
    idempotent: bool
    former_secrets: set[str] = field(default_factory=set, repr=False)

    @property
    def cluster(self) -> str:
        """A text for this list of brokers, whatever their order."""
        return _cluster(self.bootstrap_servers)

    @property
    def reuses(self) -> bool:
        """Whether another producer may have its native producers.

        Without idempotence there is no producer ID to save, and a transaction's belongs to its transactional.id.
        """
        return self.ids.policy == "reuse" and self.delivery.idempotent and not self.delivery.transactional

    @property
    def max_block(self) -> float:
        """Seconds that produce() may wait for room."""
        return self.delivery.own.max_block

    def scrub(self, text: str) -> str:
        secrets = {str(value) for name, value in self.lane.items() if is_sensitive(name)}
        return scrub(text, self.former_secrets | secrets)

    def set_credentials(self, changes: Mapping[str, str]) -> None:
        """Other credentials from now on; those from before stay secret."""
        self.former_secrets.update(str(self.lane[name]) for name in changes if is_sensitive(name) and name in self.lane)
        self.lane.update(changes)


def parse(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Settings:
    """confluent_kafka's forms: (dict), (**settings), (dict, **settings) with keywords winning, and
    default.topic.config.

    Raises ConfigurationError (a KafkaException) or its TypeError and ValueError variants, naming the setting.
    """
    config = _merged(args, kwargs)
    ids = id_settings.take(config, bool(config.get("transactional.id")), ledger_places.unusable, os.environ)
    own = own_settings.take(config, os.environ)
    if own.mode != "passthrough":  # which leaves all to librdkafka
        _refuse(config)
    only_errors = _boolean(config, "delivery.report.only.error")
    on_delivery = _callback(config, "on_delivery", ConfigurationError, "on_delivery requires a callable object")
    error_cb, throttle_cb, statistics_cb = (
        _callback(config, name, kind, f"expected {name} property as a callable function")
        for name, kind in _EVENT_CALLBACKS.items()
    )
    by_name = {canonical(name): value for name, value in config.items()}
    transactional = bool(by_name.get("transactional.id"))
    idempotent = _decided_idempotence(config, by_name) or transactional
    own.refuse_contradictions(idempotent, transactional)
    mock = by_name.get("test.mock.num.brokers")
    servers = "mock cluster" if mock else str(by_name.get("metadata.broker.list", ""))
    return Settings(
        lane=config,
        on_delivery=on_delivery,
        only_errors=only_errors,
        error_cb=error_cb,
        throttle_cb=throttle_cb,
        statistics_cb=statistics_cb,
        producer_ids_per_hour=own.producer_ids_per_hour,
        ids=ids,
        delivery=delivery.read(by_name, own, idempotent, statistics_cb is not None),
        client_id=str(by_name.get("client.id", "rdkafka")),
        bootstrap_servers=servers,
        principal=_principal(by_name),
        transactional_id=by_name.get("transactional.id"),
        idempotent=idempotent,
    )


def _decided_idempotence(config: dict[str, Any], by_name: Mapping[str, Any]) -> bool:
    """Whether it is on: as the application says, else where nothing rules it out."""
    if "enable.idempotence" not in config:
        on = config["enable.idempotence"] = not _rules_out_idempotence(by_name)
        requests = whole(config.get(_BACKPRESSURE)) or 0
        if on and not by_name.get("transactional.id") and 1 < requests <= _MOST_BACKPRESSURE:
            del config[_BACKPRESSURE]
            logger.warning(
                "setting '%s' = %d: not used, because librdkafka takes 1 only with idempotence, which is on by "
                "default. Leave it out, or set enable.idempotence to false",
                *(_BACKPRESSURE, requests),
            )
    return _is_true(config["enable.idempotence"])


def explain_refusal(error: BaseException, settings: Settings, more: str = "") -> ConfigurationError | None:
    """The error to show when the native constructor raised `error`; None when it was not about settings."""
    if isinstance(error, KafkaException):
        cause = error.args[0]
        text = settings.scrub(f"{cause.str()}{more and ': '}{more}")
        refusal = _refusal(ConfigurationError, text, settings)
        refusal.args = (KafkaError(cause.code(), refusal.message),)
        return refusal
    if not isinstance(error, TypeError | ValueError):
        return None
    kind = ConfigurationTypeError if isinstance(error, TypeError) else ConfigurationValueError
    return _refusal(kind, settings.scrub(str(error)), settings)


def _refusal(kind: type[ConfigurationError], text: str, settings: Settings) -> ConfigurationError:
    named = [a or b for a, b in _NAMED_IN_ERROR.findall(text)]
    given = {canonical(name): name for name in settings.lane}
    setting = next((given[canonical(name)] for name in named if canonical(name) in given), named[0] if named else "")
    if not setting:
        setting = next((name for name in settings.lane if name in text), "")
    if "No such configuration property" in text:
        return _unknown(kind, setting, settings.lane.get(setting), text)
    way_out = "Correct it; librdkafka's CONFIGURATION.md lists the values each setting takes"
    if " when `" in text or "must be" in text:
        way_out = "Change one of the settings named here"
    if "OAuth token not set" in text:
        way_out = "Have oauth_cb return a token and when it ends, in seconds of time.time()"
    return kind(setting, shown(setting, settings.lane.get(setting)), text.rstrip("."), way_out)


def _unknown(kind: type[ConfigurationError], setting: str, value: Any, text: str) -> ConfigurationError:
    way_out = f"Remove it: librdkafka has no such setting, and this library's own begin with {OWN_PREFIX!r}"
    if similar := suggestions(setting):
        way_out = f"Did you mean {' or '.join(map(repr, similar))}?"
    return kind(setting, shown(setting, value), text, way_out)


def _merged(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    if len(args) > 1 or (args and not isinstance(args[0], dict)) or not (args or kwargs):
        stock = "expected tuple containing single dict" if len(args) > 1 else "expected configuration dict"
        given = f"{len(args)} arguments" if len(args) != 1 else type(args[0]).__name__
        problem = f"{stock}: SafeProducer() takes one, or keywords, not {given}"
        raise ConfigurationTypeError("", "", problem, "Call SafeProducer({'bootstrap.servers': 'host:9092'})")
    config: dict[Any, Any] = {**(args[0] if args else {}), **kwargs}
    topic_defaults = config.pop("default.topic.config", {})
    if not isinstance(topic_defaults, dict):
        kind, way_out = type(topic_defaults).__name__, "Give its settings beside the others instead"
        raise ConfigurationTypeError("default.topic.config", kind, "it must be a dict", way_out)
    config.update(topic_defaults)
    named = {str(name): value for name, value in config.items()}
    for name, value in named.items():
        _refuse_surrogates(name, value)
    return named


def _refuse_surrogates(name: str, value: Any) -> None:
    """The C client crashes on a name that is no UTF-8, and fails without a reason on such a value (2.16.1)."""
    for part, text in (("name", name), ("value", value)):
        try:
            if isinstance(text, str):
                text.encode()
        except UnicodeEncodeError:
            problem = f"its {part} holds a character that is no UTF-8"
            raise ConfigurationError(ascii(name), "***", problem, "Correct the text it came from") from None


def _refuse(config: dict[str, Any]) -> None:
    for name, (why, way_out) in REFUSED.items():
        if name in config and _is_true(config[name]):
            raise ConfigurationError(name, repr(config[name]), f"refused, because {why}", way_out)


def _callback(
    config: dict[str, Any], name: str, kind: type[ConfigurationError], problem: str
) -> Callable[..., Any] | None:
    if name not in config:
        return None
    callback: Any = config.pop(name)
    if not callable(callback):
        raise kind(name, repr(callback), problem, "Give a function, or leave the setting out")
    return callback  # type: ignore[no-any-return]


def _boolean(config: dict[str, Any], name: str) -> bool:
    value = config.pop(name, False)
    if not isinstance(value, bool):  # strings too, as confluent_kafka
        problem = f"Expected {name} to be bool type, not {type(value).__name__}"
        raise ConfigurationTypeError(name, repr(value), problem, "Give True or False")
    return value


def _is_true(value: Any) -> bool:
    return str(value).lower() in ("true", "t", "1")


def _rules_out_idempotence(by_name: Mapping[str, Any]) -> bool:
    """Java's rule (KIP-679): a default gives way to what the user set explicitly, instead of failing."""
    if by_name.get("transactional.id"):
        return False
    acks = by_name.get("request.required.acks", "all")
    in_flight = whole(by_name.get("max.in.flight.requests.per.connection"))
    return (
        (str(acks).lower() != "all" and whole(acks) != -1)
        or (in_flight is not None and in_flight > 5)
        or whole(by_name.get("message.send.max.retries")) == 0
        or str(by_name.get("queuing.strategy", "fifo")).lower() == "lifo"
    )


@lru_cache(maxsize=64)  # two parts of each producer ask
def _cluster(servers: str) -> str:
    return ",".join(sorted(server.strip() for server in servers.split(",")))


def _principal(by_name: Mapping[str, Any]) -> str:
    """The user the broker sees, as far as the configuration tells."""
    protocol = str(by_name.get("security.protocol", "plaintext")).lower()
    if "sasl" in protocol:
        mechanism = str(by_name.get("sasl.mechanisms", "GSSAPI")).upper()
        if mechanism == "GSSAPI":
            return f"User:{by_name.get('sasl.kerberos.principal', 'kafkaclient')}"
        if mechanism == "OAUTHBEARER":
            return f"User:{by_name.get('sasl.oauthbearer.client.id', 'OAUTHBEARER token')}"
        return f"User:{by_name.get('sasl.username', '')}"
    if "ssl" in protocol:
        for name in ("ssl.certificate.location", "ssl.keystore.location"):
            if by_name.get(name):
                return f"User:certificate {by_name[name]}"
    return "User:ANONYMOUS"
