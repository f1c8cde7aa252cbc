"""A layered Bloom filter controlled by time: the memory of KIP-936. Pure.

A Bloom filter answers "have I seen this?" with a certain no or a probable yes, in a few bits an item, and cannot
forget. So there are layers, each for a slice of time: an old layer is dropped as a whole. With a window W and L layers
(step s = W / L) the rules, KIP-936 completed where it is silent, are:

1. A layer is live while it is younger than W. An item has been seen if any live layer holds it.
2. Items are written to the newest layer only. A layer is opened when something is to be written and there is none, or
   the newest has reached the age s, or it has taken as many items as it was made for. Reading opens nothing.
3. An item that is seen again is written again if no layer younger than s holds it; so it stays known, however old its
   first sighting is, and is written once in each step, however often it comes. (To ask only whether the newest layer
   holds it, or is full, is not enough: two items in turn would open a layer each time where layers are made for one.)

Hence an item is known for at least W - s after it was last seen, and forgotten W after it was last written. More than
L layers live only while some are full: they hold what they were made for, so the error rate does not grow, but the
memory does.

The chance that an unknown item looks known is that of any of L layers. To keep it at p overall, each layer gets
1 - (1 - p)^(1/L): a layer with p itself would give L times as much. Such an error is lenient, never unfair: a new item
passes as a known one.

The bits are rbloom's. It ends the process for absurd sizes and rates, so :data:`MOST_ITEMS` and the check in the
constructor are its guard. Items are ints, hashed in C, because a hash function in Python may be interrupted by another
thread, which rbloom answers with "Already borrowed". They go through the hash of a tuple: an int's own is the int
itself, with which rbloom takes 0 for known where only 1 is. Its bytes are never saved or loaded.
"""

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rbloom import Bloom

__all__ = ["MOST_ITEMS", "LayeredBloomFilter"]

MOST_ITEMS = 1_000_000
"""The largest layer, about 2 MB; more items than that open more layers."""
_SMALLEST_ERROR = 1e-12


@dataclass(slots=True)
class _Layer:
    created: int
    room: int
    bits: "Bloom"


class LayeredBloomFilter:
    """Items seen lately; all times are milliseconds and must not go back. Not thread-safe.

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
        self._error_rate = max(1 - (1 - error_rate) ** (1 / layers), _SMALLEST_ERROR)
        self._layers: deque[_Layer] = deque()

    def layers(self, now: int) -> int:
        """How many layers are live."""
        while self._layers and now - self._layers[0].created >= self._window_ms:
            self._layers.popleft()
        return len(self._layers)

    def holds(self, item: int, now: int) -> bool:
        """Whether the item has been seen: False is certain."""
        mixed = hash((item,))
        return self.layers(now) > 0 and any(mixed in layer.bits for layer in self._layers)

    def add(self, item: int, room: int, now: int) -> None:
        """Write the item; ``room`` is how many items a layer opened for it is made for (1 to :data:`MOST_ITEMS`)."""
        newest = self._layers[-1] if self.layers(now) else None
        if newest is None or newest.room <= 0 or now - newest.created >= self._step_ms:
            newest = self._opened(room, now)
            self._layers.append(newest)
        newest.bits.add(hash((item,)))
        newest.room -= 1

    def keep(self, item: int, room: int, now: int) -> None:
        """Rule 3 for an item that has been seen: write it again if it would be forgotten too early otherwise."""
        for layer in reversed(self._layers):
            if now - layer.created >= self._step_ms:
                break
            if hash((item,)) in layer.bits:
                return
        self.add(item, room, now)

    def _opened(self, room: int, now: int) -> _Layer:
        # A cluster without this quota does without the library.
        from rbloom import Bloom  # noqa: PLC0415

        bounded = min(max(room, 1), MOST_ITEMS)
        return _Layer(now, bounded, Bloom(bounded, self._error_rate))
