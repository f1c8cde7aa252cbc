"""Quotas of users and clients limit rates, measured as Kafka measures them (KIP-13, KIP-124, KIP-546, KIP-599). Pure.

A quota is set on an *entity*: a user, a client ID, or both, each by name or as the default. For a request the most
specific entity that has the quota wins:

    user and client, user and default client, user,
    default user and client, default user and default client, default user, client, default client

A limit on a user alone is shared by all his clients, one on a client alone by all users of that client ID; one that
names both, or the defaults of both, holds for each pair by itself. A default never pools: each user (client, pair) it
applies to has the limit to himself. KIP-936 counts users only: own limit, else that of the default user.

A rate is measured over ``samples`` windows of ``window_ms`` each: ``quota.window.num`` and
``quota.window.size.seconds``, 11 and 1 s, which is ten whole windows and the running one. The rules are those of
Kafka 3.8 and later:

1. A window begins with the first recording in it, not on a grid. A recording at or after its end opens the next one.
2. A window is forgotten when its newest recording is ``samples`` windows old.
3. The time a sum is divided by runs from the beginning of the oldest window, and is at least ``samples`` - 1 whole
   windows and what has passed of the running one: a short history must not look like a high rate.
4. Equal to the quota is no violation.
5. The delay is the time after which the same sum would be no violation. It is an estimate, not a cure: the burst may
   still be inside the windows when the delay is over.

Used bytes count per second, request time in percent of one thread. A delay for bytes is as long as it takes to be back
below the quota; one for request time is one window at most. Usage that nobody added to for an hour is forgotten.

A bucket holds up to ``burst`` tokens and gains ``refill`` per second, counted whenever somebody looks. Under the
strict rule, the only one here, a bucket at 0 or above lets one more request of any size pass and may so go below 0;
below 0 it lets nothing pass, and the delay is the exact time until it is back at 0.

Kafka starts with no tokens at time 0 of the epoch; whoever counts time from 1970, as clusters do, starts with a full
bucket. All times are milliseconds of the cluster's clock.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

USER, CLIENT_ID = "user", "client-id"
PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE = "producer_byte_rate", "consumer_byte_rate"
REQUEST_PERCENTAGE, PRODUCER_IDS_RATE = "request_percentage", "producer_ids_rate"
WHOLE = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE)
NAMES = (*WHOLE, REQUEST_PERCENTAGE, PRODUCER_IDS_RATE)
_LARGEST_LONG = (1 << 63) - 1

Entity = frozenset[tuple[str, str | None]]
"""Pairs of entity type and name; the name None is the default of that type."""
_IDLE_MS = 3_600_000


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

    def entities(self) -> Iterable[tuple[Entity, Mapping[str, float]]]:
        return self._limits.items()


def _candidates(user: str, client_id: str) -> list[tuple[Entity, tuple[str, str]]]:
    """Entities from the most to the least specific, with who shares their limit. No client ID: users count alone."""
    named, default = frozenset({(USER, user)}), frozenset({(USER, None)})
    if not client_id:
        return [(named, (user, "")), (default, (user, ""))]
    client, any_client = frozenset({(CLIENT_ID, client_id)}), frozenset({(CLIENT_ID, None)})
    pair, own, clients = (user, client_id), (user, ""), ("", client_id)
    users = [((of_user | client, pair), (of_user | any_client, pair), (of_user, own)) for of_user in (named, default)]
    return [*users[0], *users[1], (client, clients), (any_client, clients)]


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


def round_half_up(value: float) -> int:
    """To the nearest whole number, halves upwards, as Java's ``Math.round`` does."""
    return math.floor(value + 0.5)


@dataclass(slots=True)
class _Window:
    start: int
    newest: int
    total: float = 0.0

    def clear(self, now: int) -> None:
        self.start = self.newest = now
        self.total = 0.0


class SampledRate:
    """A rate of late; not thread-safe. Measuring forgets old windows, so ``now`` must not go back."""

    def __init__(self, samples: int, window_ms: int) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._windows: list[_Window] = []
        self._current = 0

    def record(self, value: float, now: int) -> None:
        """Add to the running window; a negative value takes back what was recorded before."""
        window = self._running(now)
        window.total += value
        window.newest = now

    def _running(self, now: int) -> _Window:
        if not self._windows:
            self._windows.append(_Window(now, now))
        window = self._windows[self._current]
        if now - window.start < self._window_ms:
            return window
        # One slot more than samples: the oldest window may have begun before the time that is measured.
        self._current = (self._current + 1) % (self._samples + 1)
        if self._current == len(self._windows):
            self._windows.append(_Window(now, now))
        else:
            self._windows[self._current].clear(now)
        return self._windows[self._current]

    def _forget(self, now: int) -> None:
        for window in self._windows:
            if now - window.newest >= self._samples * self._window_ms:
                window.clear(now)

    def per_second(self, now: int) -> float:
        """The rate by rule 3; 0 if nothing was recorded."""
        self._forget(now)
        return sum(window.total for window in self._windows) / (self.window_ms(now) / 1000)

    def window_ms(self, now: int) -> int:
        """The divisor of the sum, 1 at least."""
        self._forget(now)
        elapsed = now - min((window.start for window in self._windows), default=now)
        missing = self._samples - 1 - elapsed // self._window_ms
        return max(elapsed + max(missing, 0) * self._window_ms, 1)

    def delay_ms(self, quota: float, now: int, most: int | None = None) -> int:
        """How long to throttle by rules 4 and 5, 0 if the quota (per second) is kept; ``most`` bounds it."""
        rate = self.per_second(now)
        if not rate > quota:  # nothing is above NaN, which may be set
            return 0
        delay = round_half_up((rate - quota) / quota * self.window_ms(now))
        return delay if most is None else min(delay, most)


@dataclass(frozen=True, slots=True)
class QuotaUsage:
    """One measured ``rate`` of the ``quota`` of that name: bytes per second, or percent of a thread. Empty ``user`` or
    ``client_id``: any.

    ``limit`` is None for who is measured but not limited. ``throttle_time_ms``: the last delay that was told.
    """

    quota: str
    user: str
    client_id: str
    limit: float | None
    rate: float
    throttle_time_ms: int


@dataclass(slots=True)
class _Meter:
    rate: SampledRate
    used: int
    limit: float | None = None
    told_ms: int = 0


class ClientQuotas:
    """The meters of one broker; ``samples`` and ``window_ms`` are its quota.window configs. It is not thread-safe."""

    def __init__(self, limits: QuotaLimits, samples: int, window_ms: int) -> None:
        self._limits = limits
        self._samples = samples
        self._window_ms = window_ms
        self._meters: dict[tuple[str, str, str], _Meter] = {}
        self._cleaned = 0

    def charge(self, quota: str, user: str, client_id: str | None, value: float, now: int) -> int:
        """Add to what was used; how many ms the client is throttled for it, 0 for not at all.

        A negative value takes off what was charged but not sent.
        """
        limit = self._limits.find(quota, user, client_id)
        key = quota, *limit.shared_by
        if key not in self._meters:
            self._clean(now)
            self._meters[key] = _Meter(SampledRate(self._samples, self._window_ms), now)
        meter = self._meters[key]
        meter.rate.record(value, now)
        meter.used, meter.limit = now, limit.value
        if limit.value is None:
            return 0
        most = self._window_ms if quota == REQUEST_PERCENTAGE else None
        delay = meter.rate.delay_ms(limit.value, now, most)
        meter.told_ms = delay or meter.told_ms
        return delay

    def most_at_once(self, quota: str, user: str, client_id: str | None) -> float | None:
        """The largest amount that is never throttled after a pause; None without a limit."""
        limit = self._limits.find(quota, user, client_id).value
        return None if limit is None else limit * (self._samples - 1) * self._window_ms / 1000

    def usage(self, now: int) -> list[QuotaUsage]:
        """All meters, in no order."""
        self._clean(now)
        return [
            QuotaUsage(quota, user, client_id, meter.limit, meter.rate.per_second(now), meter.told_ms)
            for (quota, user, client_id), meter in self._meters.items()
        ]

    def _clean(self, now: int) -> None:
        if now - self._cleaned >= _IDLE_MS:
            self._cleaned = now
            self._meters = {who: meter for who, meter in self._meters.items() if now - meter.used < _IDLE_MS}


class TokenBucket:
    """The tokens of one quota. It is not thread-safe."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._last = 0

    def tokens(self, burst: float, refill: float, now: int) -> float:
        """How many there are; a smaller ``burst`` than before cuts them down, a larger one gives nothing at once."""
        self._tokens = min(burst, self._tokens + refill * (now - self._last) / 1000)
        self._last = now
        return self._tokens

    def take(self, value: float, burst: float, refill: float, now: int) -> None:
        """Take tokens, whether they are there or not."""
        self._tokens = min(burst, self.tokens(burst, refill, now) - value)

    def delay_ms(self, burst: float, refill: float, now: int) -> int:
        """Milliseconds until nothing is owed any more, 0 if nothing is."""
        tokens = self.tokens(burst, refill, now)
        return round_half_up(-tokens / refill * 1000) if tokens < 0 else 0
