"""The quotas of users and clients: what may be set, and which one applies (KIP-13, KIP-124, KIP-546). Pure.

A quota is set on an *entity*: a user, a client ID, or both, each by name or as the default. For a request the most
specific entity that has the quota wins:

    user and client, user and default client, user,
    default user and client, default user and default client, default user, client, default client

A limit on a user alone is shared by all his clients, one on a client alone by all users of that client ID; one that
names both, or the defaults of both, holds for each pair by itself. A default never pools: each user (client, pair) it
applies to has the limit to himself. KIP-936 counts users only: own limit, else that of the default user.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["CLIENT_ID", "USER", "Entity", "Limit", "QuotaLimits", "QuotaRefusedError", "describe_entity"]

USER, CLIENT_ID = "user", "client-id"
PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE = "producer_byte_rate", "consumer_byte_rate"
REQUEST_PERCENTAGE, PRODUCER_IDS_RATE = "request_percentage", "producer_ids_rate"
WHOLE = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE)
NAMES = (*WHOLE, REQUEST_PERCENTAGE, PRODUCER_IDS_RATE)
_LARGEST_LONG = (1 << 63) - 1

Entity = frozenset[tuple[str, str | None]]
"""Pairs of entity type and name; the name None is the default of that type."""


class QuotaRefusedError(ValueError):
    """A quota that cannot be set; the message names it and the way out."""


def describe_entity(entity: Entity) -> str:
    """As people would say it: ``user 'alice' and default client-id``."""
    parts = [f"default {kind}" if name is None else f"{kind} {name!r}" for kind, name in sorted(entity, reverse=True)]
    return " and ".join(parts)


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit that applies, and who shares it: user and client ID, empty for one that does not matter."""

    value: float | None
    shared_by: tuple[str, str]


class QuotaLimits:
    """All quotas of one cluster. It is not thread-safe."""

    def __init__(self) -> None:
        self._limits: dict[Entity, dict[str, float]] = {}
        self._enabled: set[str] = set()

    def enabled(self, name: str) -> bool:
        """Whether this quota was ever set on anybody: from then on usage is measured, even if it is taken away."""
        return name in self._enabled

    def set(self, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool = False) -> None:
        """Set quotas of one entity, or take them away with None. Raises QuotaRefusedError, then nothing is changed."""
        _check_entity(entity)
        for name, value in changes.items():
            _check_value(entity, name, value)
        if validate_only:
            return
        limits = self._limits.setdefault(entity, {})
        for name, value in changes.items():
            limits.pop(name, None)
            if value is not None:
                limits[name] = value
                self._enabled.add(name)
        if not limits:
            del self._limits[entity]

    def find(self, name: str, user: str, client_id: str | None) -> Limit:
        """The limit for a request of this user and client."""
        for entity, shared_by in _candidates(user, client_id or ""):
            value = self._limits.get(entity, {}).get(name)
            if value is not None:
                return Limit(value, shared_by)
        return Limit(None, ("", client_id or ""))

    def find_for_user(self, name: str, user: str) -> float | None:
        """The limit of a user, whatever the client."""
        return self.find(name, user, None).value

    def entities(self) -> Iterable[tuple[Entity, Mapping[str, float]]]:
        """Everything that is set."""
        return self._limits.items()


def _candidates(user: str, client_id: str) -> list[tuple[Entity, tuple[str, str]]]:
    """Entities from the most to the least specific, with who shares their limit. No client ID: users count alone."""
    named, default = frozenset({(USER, user)}), frozenset({(USER, None)})
    if not client_id:
        return [(named, (user, "")), (default, (user, ""))]
    client, any_client = frozenset({(CLIENT_ID, client_id)}), frozenset({(CLIENT_ID, None)})
    pair = (user, client_id)
    return [
        (named | client, pair),
        (named | any_client, pair),
        (named, (user, "")),
        (default | client, pair),
        (default | any_client, pair),
        (default, (user, "")),
        (client, ("", client_id)),
        (any_client, ("", client_id)),
    ]


def _check_entity(entity: Entity) -> None:
    if not entity:
        raise QuotaRefusedError("a quota needs a user, a client-id, or both")
    if len({kind for kind, _ in entity}) != len(entity):
        raise QuotaRefusedError(f"{describe_entity(entity)}: an entity type may be named once only")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID):
            raise QuotaRefusedError(f"entity type {kind!r}: FakeCluster has quotas of {USER} and {CLIENT_ID} only")
        if name == "":
            raise QuotaRefusedError(f"{kind}: an empty name is nobody; the default has no name at all")


def _check_value(entity: Entity, name: str, value: float | None) -> None:
    if name not in NAMES:
        raise QuotaRefusedError(f"unknown quota {name}; FakeCluster has {', '.join(NAMES)}")
    if name == PRODUCER_IDS_RATE and any(kind != USER for kind, _ in entity):
        raise QuotaRefusedError(f"{name}: is a quota of users alone, not of {describe_entity(entity)}")
    if value is None:
        return
    if value <= 0:
        raise QuotaRefusedError(f"{name}: {value} is not greater than 0; remove the quota to lift it")
    if not math.isfinite(value):
        raise QuotaRefusedError(f"{name}: {value} limits nothing; remove the quota to lift it")
    if name in WHOLE and (value > _LARGEST_LONG or abs(value % 1.0) > 1e-6):
        raise QuotaRefusedError(f"{name}: {value} is not a whole number of at most 2^63 - 1")
