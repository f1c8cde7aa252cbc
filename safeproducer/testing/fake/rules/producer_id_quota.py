"""How many new producer IDs a user may bring to a broker: the broker half of KIP-936. Pure.

The KIP is still under discussion and leaves three things open. Decided here:

- **Unit.** ``producer_ids_rate`` is a number of IDs per hour, as its example has it ("100 PID per 1hr"), and refills as
  evenly: one every 36 s. The bucket holds ``producer.id.quota.window.num`` windows of
  ``producer.id.quota.window.size.seconds`` (3600). The KIP's default of 11 windows would let a user start with eleven
  times the rate; here it is 1.
- **Order.** Ask whether the ID is known, then check the quota, then count the ID, and remember it last. The KIP
  remembers first: then a refused ID is known, and passes unharmed the next time.
- **Layers.** 4 of them (the KIP's figure shows four) with an error rate of 0.001 together; the KIP gave up its configs
  for both. A layer is made for rate x window / layers IDs. A burst, or many known IDs in use, fill more; the rate
  stays. The rules of the layers are in :mod:`bloom`.

The bucket follows the strict rule of KIP-599: at exactly 0 one more passes, so a rate of 100 admits 101 at once.
Known IDs pass free and for ever, as long as they are used. Limits and memory are a broker's own: a leader that moves
starts anew. A user whose memory is empty and whose bucket is full is dropped, looked for every
``producer.id.quota.cache.cleanup.scheduler.interval.ms``, but only when somebody asks: there is no timer here.
All times are milliseconds of the cluster's clock.
"""

import math
from dataclasses import dataclass, field

from safeproducer.testing.fake.rules.bloom import MOST_ITEMS, LayeredBloomFilter
from safeproducer.testing.fake.rules.quota_window import SampledRate
from safeproducer.testing.fake.rules.token_bucket import TokenBucket

__all__ = ["ProducerIdQuota", "ProducerIdUsage", "ProducerIdWindow"]

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class ProducerIdWindow:
    """The KIP's broker configs (windows, their length, how often idle users are looked for), and what memory there is.

    ``error_rate`` is that of all ``layers`` together, and of as many more as become full.
    """

    samples: int = 1
    window_ms: int = _HOUR_MS
    cleanup_ms: int = 10
    layers: int = 4
    error_rate: float = 0.001


@dataclass(frozen=True, slots=True)
class ProducerIdUsage:
    """The KIP's metrics for one user at one broker, and what they are made of.

    ``rate``: new IDs per hour, lately. ``tokens``: what is left in the bucket, below 0 while new IDs are refused.
    ``throttle_time_ms``: the mean of the delays told so far, 0 without any. ``refused``: how often an ID was refused.
    """

    limit: float
    rate: float
    tokens: float
    throttle_time_ms: float
    refused: int
    layers: int


@dataclass(slots=True)
class _User:
    limit: float
    memory: LayeredBloomFilter
    rate: SampledRate
    bucket: TokenBucket = field(default_factory=TokenBucket)
    refused: int = 0
    told_ms: int = 0


class ProducerIdQuota:
    """Which producer IDs of which users one broker has seen lately. It is not thread-safe."""

    def __init__(self, window: ProducerIdWindow) -> None:
        self._window = window
        self._users: dict[str, _User] = {}
        self._cleaned = 0

    def admit(self, user: str, producer_id: int, per_hour: float | None, now: int) -> int:
        """0 if this ID may be used, else how many ms the user has to wait. Without a limit nothing is remembered."""
        if per_hour is None:
            self._users.pop(user, None)
            return 0
        self._clean(now)
        known = self._users.get(user)
        if known is None:
            memory = LayeredBloomFilter(self._window.window_ms, self._window.layers, self._window.error_rate)
            # One window more than the bucket has: whole ones and the running one, as for all of Kafka's quotas.
            known = self._users[user] = _User(
                per_hour, memory, SampledRate(self._window.samples + 1, self._window.window_ms)
            )
        known.limit = per_hour
        room = self._room(per_hour)
        if known.memory.holds(producer_id, now):
            known.memory.keep(producer_id, room, now)
            return 0
        delay = known.bucket.delay_ms(*self._bucket(per_hour), now)
        if delay:
            known.refused += 1
            known.told_ms += delay
            return delay
        known.bucket.take(1, *self._bucket(per_hour), now)
        known.rate.record(1, now)
        known.memory.add(producer_id, room, now)
        return 0

    def _room(self, per_hour: float) -> int:
        """How many IDs one layer is made for; a huge rate must not make a huge filter."""
        items = min(per_hour * self._window.window_ms / _HOUR_MS / self._window.layers, MOST_ITEMS)
        return max(1, math.floor(items + 0.5))

    def _bucket(self, per_hour: float) -> tuple[float, float]:
        """Its size and its refill per second."""
        window = self._window
        return per_hour * window.samples * window.window_ms / _HOUR_MS, per_hour * 1000 / _HOUR_MS

    def _clean(self, now: int) -> None:
        if now - self._cleaned < self._window.cleanup_ms:
            return
        self._cleaned = now
        for user, known in [*self._users.items()]:
            burst, refill = self._bucket(known.limit)
            if known.memory.layers(now) == 0 and known.bucket.tokens(burst, refill, now) == burst:
                del self._users[user]

    def usage(self, now: int) -> dict[str, ProducerIdUsage]:
        """By user; those without a limit and those who have been idle are not there."""
        self._clean(now)
        return {
            user: ProducerIdUsage(
                known.limit,
                known.rate.per_second(now) * _HOUR_MS / 1000,
                known.bucket.tokens(*self._bucket(known.limit), now),
                known.told_ms / known.refused if known.refused else 0.0,
                known.refused,
                known.memory.layers(now),
            )
            for user, known in self._users.items()
        }
