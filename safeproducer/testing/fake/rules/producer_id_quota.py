"""A user may bring so many new producer IDs to a broker: the broker half of KIP-936. Pure.

The unit of the rate, the order of the steps and the memory are decided in docs/internals/kips.md. The bucket follows
the strict rule of KIP-599: at exactly 0 one more passes, so a rate of 100 admits 101 at once. Limits and memory are a
broker's own. A user whose memory is empty and whose bucket is full is dropped when somebody
asks: there is no timer here. All times are milliseconds of the cluster's clock.
"""

from collections import deque
from dataclasses import dataclass, field

from safeproducer.testing.fake.rules.quotas import SampledRate, TokenBucket

_LAYERS = 4
_HOUR_MS = 3_600_000


class RecentIds:
    """The producer IDs seen within a window. It is not thread-safe, and times must not go back.

    As in the KIP's filter each layer is for a quarter of the window, and is dropped as a whole. So an ID is known for
    three quarters of the window after it was last seen, and forgotten when a window is over.
    """

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._layers: deque[tuple[int, set[int]]] = deque()

    def layers(self, now: int) -> int:
        while self._layers and now - self._layers[0][0] >= self._window_ms:
            self._layers.popleft()
        return len(self._layers)

    def holds(self, producer_id: int, now: int) -> bool:
        return self.layers(now) > 0 and any(producer_id in ids for _, ids in self._layers)

    def add(self, producer_id: int, now: int) -> None:
        """Note that it is seen now, for the first time or again."""
        if not self.layers(now) or now - self._layers[-1][0] >= self._window_ms // _LAYERS:
            self._layers.append((now, set()))
        self._layers[-1][1].add(producer_id)


@dataclass(frozen=True, slots=True)
class ProducerIdWindow:
    """The KIP's broker configs: windows, their length, and how often idle users are looked for."""

    samples: int = 1
    window_ms: int = _HOUR_MS
    cleanup_ms: int = 10


@dataclass(frozen=True, slots=True)
class ProducerIdUsage:
    """The KIP's metrics for one user at one broker, and what they are made of.

    ``limit`` and ``rate``: new IDs per hour, as set and lately; ``layers``: of the memory of known ones.
    ``tokens``: what is left in the bucket, below 0 while new IDs are refused.
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
    memory: RecentIds
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
            # One window more than the bucket has: whole ones and the running one, as for all of Kafka's quotas.
            rate = SampledRate(self._window.samples + 1, self._window.window_ms)
            known = self._users[user] = _User(per_hour, RecentIds(self._window.window_ms), rate)
        known.limit = per_hour
        if known.memory.holds(producer_id, now):
            known.memory.add(producer_id, now)
            return 0
        delay = known.bucket.delay_ms(*self._bucket(per_hour), now)
        if delay:
            known.refused += 1
            known.told_ms += delay
            return delay
        known.bucket.take(1, *self._bucket(per_hour), now)
        known.rate.record(1, now)
        known.memory.add(producer_id, now)
        return 0

    def _bucket(self, per_hour: float) -> tuple[float, float]:
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
