"""A layered Bloom filter controlled by time: the memory of KIP-936. Pure.

A Bloom filter answers "have I seen this?" with a certain no or a probable yes, in a few bits an item, and cannot
forget. Therefore it has layers, each for a slice of time: an old layer is dropped as a whole. With a window W and L
layers (step s = W / L) the rules, KIP-936 completed where it is silent, are:

1. A layer is live while its step is younger than W. An item has been seen if any live layer holds it.
2. Items are written to the newest layer only. A layer is opened when something is to be written and there is none, or
   the newest one's step has reached the age s, or it has taken as many items as it was made for: then the next one
   belongs to the same step. In the other two cases a step begins. Reading opens nothing.
3. An item that is seen again is written again if no layer of a step younger than s holds it; so it stays known, however
   old its first sighting is, and is written once in each step, however often it comes. (To ask only whether the newest
   layer holds it, or is full, is not enough: two items in turn would open a layer each time where layers are made for
   one.)

Hence an item is known for at least W - s after it was last seen, and forgotten W after it was last written. More than
L layers live while some are full, at most L steps: the memory grows with the items, the error rate does not.

The chance that an unknown item looks known is that of any live layer. To keep it at p overall, each step gets 1 - (1 -
p)^(1/L): a step with p itself would give L times as much. The n-th layer of a step gets 6/(pi n)^2 of that, a series
whose sum is 1: with equal parts, as many layers as have become full would give so many times as much. An error is
lenient, never unfair: a new item passes as a known one.

The bits are rbloom's. It ends the process for absurd sizes and rates, so :data:`MOST_ITEMS` and the check in the
constructor are its guard. Items are ints, hashed in C, because a hash function in Python may be interrupted by another
thread, which rbloom answers with "Already borrowed". They go through the hash of a tuple: an int's own is the int
itself, with which rbloom takes 0 for known where only 1 is. Its bytes are never saved or loaded.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rbloom import Bloom

__all__ = ["MOST_ITEMS", "LayeredBloomFilter"]

MOST_ITEMS = 1_000_000
"""The largest layer, about 2 MB; more items than that open more layers."""
_SMALLEST_ERROR = 1e-12


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
        """How many layers are live."""
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
