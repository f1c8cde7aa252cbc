"""A user may bring so many new producer IDs to a broker: the broker half of KIP-936, with its Bloom filter. Pure.

The unit of the rate, the order of the steps and the layers are decided in docs/internals/kips.md. The bucket follows
the strict rule of KIP-599: at exactly 0 one more passes, so a rate of 100 admits 101 at once. Limits and memory are a
broker's own. A user whose memory is empty and whose bucket is full is dropped when somebody
asks: there is no timer here. All times are milliseconds of the cluster's clock.

A Bloom filter answers "have I seen this?" with a certain no or a probable yes, and cannot forget. Therefore it has
layers, each for a slice of time: an old layer is dropped as a whole. With a window W and L layers (step s = W / L):

1. A layer is live while its step is younger than W. An item has been seen if any live layer holds it.
2. Items are written to the newest layer only. A layer is opened when something is to be written and there is none, or
   the newest one's step has reached the age s, or it has taken as many items as it was made for: then the next one
   belongs to the same step. In the other two cases a step begins. Reading opens nothing.
3. An item that is seen again is written again if no layer of a step younger than s holds it. To ask only whether the
   newest layer holds it, or is full, is not enough: two items in turn would open a layer each time where layers are
   made for one.

Hence an item is known for at least W - s after it was last seen, and forgotten W after it was last written. Each step
gets an error rate of 1 - (1 - p)^(1/L), p being that of all, and its n-th layer 6/(pi n)^2 of that, a series whose sum
is 1: however many layers become full, the rate stays. An error is lenient: a new item passes as a known one.

The bits are rbloom's. It ends the process for absurd sizes and rates, so :data:`MOST_ITEMS` and the check in the
constructor are its guard. Items are ints, hashed in C, because a hash function in Python may be interrupted by another
thread, which rbloom answers with "Already borrowed". They go through the hash of a tuple: an int's own is the int
itself, with which rbloom takes 0 for known where only 1 is.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from safeproducer.testing.fake.rules.quotas import SampledRate, TokenBucket

if TYPE_CHECKING:
    from rbloom import Bloom


MOST_ITEMS = 1_000_000
"""The largest layer, about 2 MB; more items than that open more layers."""
_SMALLEST_ERROR = 1e-12
_HOUR_MS = 3_600_000


@dataclass(slots=True)
class _Layer:
    room: int
    bits: "Bloom"


@dataclass(slots=True)
class _Step:
    began: int
    layers: list[_Layer] = field(default_factory=list)

    def holds(self, mixed: int) -> bool:
        return any(mixed in layer.bits for layer in self.layers)


class LayeredBloomFilter:
    """Items seen lately; all times are milliseconds and must not go back. It is not thread-safe.

    Raises ValueError for a window shorter than its layers are many, no layers, and an error rate outside (0, 1).
    """

    def __init__(self, window_ms: int, layers: int, error_rate: float) -> None:
        if layers < 1:
            raise ValueError(f"layers: {layers} is below 1")
        if window_ms < layers:
            raise ValueError(f"window_ms: {window_ms} ms cannot be cut into {layers} layers")
        if not 0 < error_rate < 1:
            raise ValueError(f"error_rate: {error_rate} is not between 0 and 1, both excluded")
        self._window_ms = window_ms
        self._step_ms = window_ms // layers
        self._error_rate = 1 - (1 - error_rate) ** (1 / math.ceil(window_ms / self._step_ms))
        self._steps: deque[_Step] = deque()

    def layers(self, now: int) -> int:
        while self._steps and now - self._steps[0].began >= self._window_ms:
            self._steps.popleft()
        return sum(len(step.layers) for step in self._steps)

    def holds(self, item: int, now: int) -> bool:
        """Whether the item has been seen: False is certain."""
        mixed = hash((item,))
        return self.layers(now) > 0 and any(step.holds(mixed) for step in self._steps)

    def add(self, item: int, room: int, now: int) -> None:
        """Write the item; ``room`` is how many items a layer opened for it is made for (1 to :data:`MOST_ITEMS`)."""
        if not self.layers(now) or now - self._steps[-1].began >= self._step_ms:
            self._steps.append(_Step(now))
        layers = self._steps[-1].layers
        if not layers or layers[-1].room <= 0:
            layers.append(self._opened(room, len(layers) + 1))
        layers[-1].bits.add(hash((item,)))
        layers[-1].room -= 1

    def keep(self, item: int, room: int, now: int) -> None:
        """Rule 3 for an item that has been seen: write it again if it would be forgotten too early otherwise."""
        newest = self._steps[-1] if self._steps else None
        if newest is None or now - newest.began >= self._step_ms or not newest.holds(hash((item,))):
            self.add(item, room, now)

    def _opened(self, room: int, number: int) -> _Layer:
        # A cluster without this quota does without the library.
        from rbloom import Bloom  # noqa: PLC0415

        bounded = min(max(room, 1), MOST_ITEMS)
        part = self._error_rate * 6 / (math.pi * number) ** 2
        return _Layer(bounded, Bloom(bounded, max(part, _SMALLEST_ERROR)))


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
