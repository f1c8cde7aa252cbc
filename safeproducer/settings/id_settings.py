"""The settings `safeproducer.producer.ids.*` but for the rate, and the environment variables that win over them.

An operator must be able to change policy and ledger in an incident without a release: so a variable wins, and one with
a wrong value changes nothing and is warned of.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from safeproducer.errors import ConfigurationError
from safeproducer.producer_ids.ledger_places import AUTO, OFF, Place
from safeproducer.runtime.log import logger
from safeproducer.settings.own_settings import (
    OF_PRODUCER_IDS,
    PRODUCER_IDS_LEDGER,
    PRODUCER_IDS_POLICY,
    PRODUCER_IDS_REUSE_MS,
    one_of,
    whole_number,
)

Policy = Literal["off", "warn", "delay", "reuse", "refuse"]
DEFAULT_REUSE_MS = 300_000
POLICY_VARIABLE = "SAFEPRODUCER_PRODUCER_IDS_POLICY"
LEDGER_VARIABLE = "SAFEPRODUCER_PRODUCER_IDS_LEDGER"

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class IdSettings:
    """The settings for a limit on producer IDs (KIP-936), and where they are counted. `reuse`: seconds."""

    policy: Policy = "warn"
    ledger: Place = AUTO
    reuse: float = DEFAULT_REUSE_MS / 1000

    @property
    def enforces(self) -> bool:
        """Whether a producer may be told to wait, or be refused."""
        return self.policy in ("delay", "reuse", "refuse")


_DEFAULTS = IdSettings()


def take(
    config: dict[str, Any], transactional: bool, usable: Callable[[str], str | None], environment: Mapping[str, str]
) -> IdSettings:
    """Take them out of `config`. `usable(directory)`: why a ledger cannot be there, None when it can.

    Raises ConfigurationError.
    """
    given = {name: config.pop(name) for name in OF_PRODUCER_IDS if name in config}
    if not (given or environment.get(POLICY_VARIABLE) or environment.get(LEDGER_VARIABLE)):
        return _DEFAULTS  # as most producers have it: to read nothing at all is felt in the constructor
    policy = _policy(given)
    if policy == "reuse" and transactional:
        problem = "a native producer with a transactional.id is never taken over by another one"
        way_out = "Set it to 'delay' or 'refuse', or leave it out"
        raise ConfigurationError(PRODUCER_IDS_POLICY, repr(policy), problem, way_out)
    ledger = _ledger(given, usable)
    reuse_ms = whole_number(given, PRODUCER_IDS_REUSE_MS, DEFAULT_REUSE_MS, least=0)
    policy = _winning(environment, POLICY_VARIABLE, PRODUCER_IDS_POLICY, policy, _policy)
    ledger = _winning(
        environment, LEDGER_VARIABLE, PRODUCER_IDS_LEDGER, ledger, lambda variable: _ledger(variable, usable)
    )
    return IdSettings("delay" if policy == "reuse" and transactional else policy, Place(ledger), reuse_ms / 1000)


def _policy(given: Mapping[str, Any]) -> Policy:
    return one_of(given, PRODUCER_IDS_POLICY, get_args(Policy), _DEFAULTS.policy)


def _ledger(given: Mapping[str, Any], usable: Callable[[str], str | None]) -> str:
    value = given.get(PRODUCER_IDS_LEDGER, AUTO)
    if value in (AUTO, OFF):
        return str(value)
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
    absolute = isinstance(path, str) and os.path.isabs(path) and "\0" not in path
    problem = usable(path) if absolute else "it must be 'auto', 'off' or an absolute path of a directory"
    if problem is None:
        return str(path)
    way_out = "Name a directory of a local file system that this process may write to, or leave the setting out"
    raise ConfigurationError(PRODUCER_IDS_LEDGER, repr(value), problem, f"{way_out}: 'auto' takes what there is")


def _winning(
    environment: Mapping[str, str],
    variable: str,
    setting: str,
    otherwise: _Value,
    read: Callable[[Mapping[str, Any]], _Value],
) -> _Value:
    """The value of the environment variable, if it can be used."""
    text = environment.get(variable, "")
    if not text:
        return otherwise
    try:
        return read({setting: text})
    except ConfigurationError as error:
        logger.warning(
            "the environment variable %s is not used, and %s is %r: %s", variable, setting, otherwise, error.message
        )
        return otherwise
