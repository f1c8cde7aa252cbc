"""This library's own settings: `safeproducer.*`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from safeproducer.errors import ConfigurationError
from safeproducer.kafka.properties import HIDDEN, is_sensitive, suggestions
from safeproducer.policy.window import LEAST, MOST

OWN_PREFIX = "safeproducer."
PRODUCER_IDS_PER_HOUR = "safeproducer.producer.ids.per.hour"
PRODUCER_IDS_POLICY = "safeproducer.producer.ids.policy"
PRODUCER_IDS_LEDGER = "safeproducer.producer.ids.ledger"
PRODUCER_IDS_REUSE_MS = "safeproducer.producer.ids.reuse.ms"
OF_PRODUCER_IDS = (PRODUCER_IDS_POLICY, PRODUCER_IDS_LEDGER, PRODUCER_IDS_REUSE_MS)  # those that id_settings reads
MODE = "safeproducer.mode"
_MODE_VARIABLE, _RUN_VARIABLE = "SAFEPRODUCER_MODE", "SAFEPRODUCER_RUN_MODE"
MAX_BLOCK_MS = "safeproducer.max.block.ms"
ORDERING = "safeproducer.ordering"
LANES = "safeproducer.lanes"
WINDOW = "safeproducer.window"
EXPIRY = "safeproducer.expiry"
EXPIRY_MS = "safeproducer.expiry.ms"
REPLICATION = "safeproducer.replication"
FATAL = "safeproducer.fatal"
FATAL_HELD = "safeproducer.fatal.held"
OWN_SETTINGS = (
    *(PRODUCER_IDS_PER_HOUR, *OF_PRODUCER_IDS),
    *(MODE, MAX_BLOCK_MS, ORDERING, LANES, WINDOW, EXPIRY, EXPIRY_MS, REPLICATION, FATAL, FATAL_HELD),
)
MOST_LANES = 100
DEFAULT_PRODUCER_IDS_PER_HOUR = 100

Mode = Literal["auto", "held", "passthrough"]
Ordering = Literal["partition", "key", "none"]
Expiry = Literal["guard", "warn", "off"]
Replication = Literal["auto", "off"]
Fatal = Literal["stop", "renew"]
FatalHeld = Literal["send", "fail"]
_LONGEST_EXPIRY_MS = 2_147_483_647  # milliseconds: the largest producer.id.expiration.ms that Kafka takes

Choice = TypeVar("Choice", bound=str)


@dataclass(frozen=True, slots=True)
class OwnSettings:
    """Checked one by one; see `refuse_contradictions()`. Times in seconds."""

    mode: Mode = "auto"
    ordering: Ordering = "partition"
    lanes: int | None = None  # how many batch lanes; None for as many as are of use
    window: int | None = None  # batches of a partition that may be unresolved; None: as its leader says (KIP-1269)
    max_block: float = 0.0
    producer_ids_per_hour: int = DEFAULT_PRODUCER_IDS_PER_HOUR
    expiry: Expiry = "guard"  # decides about a retry whose producer ID its leader may have forgotten (KIP-854)
    expiry_ms: int | None = None  # for how long leaders remember it; None for what they say
    replication: Replication = "auto"  # whether brokers are asked how far replicas are, and what limits them (KIP-73)
    fatal: Fatal = "stop"  # whether another native producer follows one that met a fatal error
    fatal_held: FatalHeld = "send"  # whether what waits behind a record that ended with unknown outcome then is sent

    def refuse_contradictions(self, idempotent: bool, transactional: bool) -> None:
        """Several lanes cannot keep the order of a partition, and lanes that are not used would only cost."""
        if transactional and self.mode == "held":
            problem = "records of a transaction are never held back: librdkafka says at once what its state allows"
            way_out = "Set safeproducer.mode to 'auto' or 'passthrough', or leave one of the two out"
            raise ConfigurationError(MODE, repr(self.mode), f"{problem} (transactional.id)", way_out)
        if self.ordering == "partition":
            if self.lanes is not None and self.lanes > 1:
                problem = (
                    "several lanes keep no order within a partition, which safeproducer.ordering=partition asks for"
                )
                way_out = "Set safeproducer.ordering to 'key' or 'none', or leave the number of lanes out"
                raise ConfigurationError(LANES, str(self.lanes), problem, way_out)
            return
        for name, refused, why in (
            ("transactional.id", transactional, "a transaction has one producer ID, and its lane keeps the order"),
            (MODE, self.mode == "passthrough", "passthrough hands everything to one native producer"),
            ("enable.idempotence", not idempotent, "without idempotence nothing waits for acknowledgements"),
        ):
            if refused:
                problem = f"it needs several lanes, but {why} ({name})"
                raise ConfigurationError(ORDERING, repr(self.ordering), problem, "Leave one of the two out")


_DEFAULTS = OwnSettings()


def take(config: dict[str, Any], environment: Mapping[str, str]) -> OwnSettings:
    """Take them out of `config`. Raises ConfigurationError. The off switch of `environment` wins over them."""
    given = {name: config.pop(name) for name in list(config) if name.startswith(OWN_PREFIX)}
    _refuse_unknown(given)
    if environment.get(_MODE_VARIABLE) == "passthrough" and not environment.get(_RUN_VARIABLE):
        given = {name: value for name, value in given.items() if name not in (ORDERING, LANES)}
        given[MODE] = "passthrough"
    return OwnSettings(
        mode=one_of(given, MODE, get_args(Mode), _DEFAULTS.mode),
        ordering=one_of(given, ORDERING, get_args(Ordering), _DEFAULTS.ordering),
        lanes=_number_or(given, LANES, "auto", 1, MOST_LANES),
        window=_number_or(given, WINDOW, "discover", LEAST, MOST),
        max_block=whole_number(given, MAX_BLOCK_MS, 0, least=0) / 1000,
        producer_ids_per_hour=whole_number(given, PRODUCER_IDS_PER_HOUR, DEFAULT_PRODUCER_IDS_PER_HOUR, least=1),
        expiry=one_of(given, EXPIRY, get_args(Expiry), _DEFAULTS.expiry),
        expiry_ms=_number_or(given, EXPIRY_MS, "discover", 1, _LONGEST_EXPIRY_MS),
        replication=one_of(given, REPLICATION, get_args(Replication), _DEFAULTS.replication),
        fatal=one_of(given, FATAL, get_args(Fatal), _DEFAULTS.fatal),
        fatal_held=one_of(given, FATAL_HELD, get_args(FatalHeld), _DEFAULTS.fatal_held),
    )


def shown(setting: str, value: Any) -> str:
    return HIDDEN if is_sensitive(setting) else repr(value)


def _refuse_unknown(given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if name not in OWN_SETTINGS:
            problem = f'No such configuration property: "{name}"'
            similar = suggestions(name, OWN_SETTINGS) or OWN_SETTINGS
            raise ConfigurationError(name, shown(name, value), problem, f"Did you mean {' or '.join(similar)}?")


def _number(value: Any, least: int, most: float = math.inf) -> int | None:
    """The value as a whole number from `least` to `most`; None if it is none."""
    try:
        number = int(value)
    except (TypeError, ValueError):
        return None
    return number if least <= number <= most and not isinstance(value, bool) else None


def whole_number(given: Mapping[str, Any], name: str, default: int, least: int) -> int:
    """The value that was given, or the default. Raises ConfigurationError."""
    value = given.get(name, default)
    if (number := _number(value, least)) is None:
        problem = f"it must be a whole number of at least {least}"
        raise ConfigurationError(name, repr(value), problem, f"The default is {default}")
    return number


def one_of(given: Mapping[str, Any], name: str, choices: tuple[Choice, ...], default: Choice) -> Choice:
    """The value that was given, or the default. Raises ConfigurationError."""
    value = given.get(name, default)
    for choice in choices:
        if value == choice:
            return choice
    problem = f"it must be one of {', '.join(choices)}"
    raise ConfigurationError(name, repr(value), problem, f"The default is {default!r}")


def _number_or(given: Mapping[str, Any], name: str, word: str, least: int, most: int) -> int | None:
    """The number, None for the word."""
    value = given.get(name, word)
    if value == word:
        return None
    if (number := _number(value, least, most)) is None:
        problem = f"it must be {word!r} or a whole number from {least} to {most}"
        raise ConfigurationError(name, repr(value), problem, f"The default is {word!r}")
    return number
