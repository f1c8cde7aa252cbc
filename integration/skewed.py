"""Records whose keys are spread as in life: a few are frequent, most are rare, one is hot."""

from __future__ import annotations

import random
from array import array
from collections import Counter
from itertools import accumulate

from integration.faults.records import Records

HOT = 0
"""The stream of the hot key."""


class SkewedRecords(Records):
    """`count` records of `keys` keys by Zipf's law, but a share of them, `hot`, all of the most frequent one.

    A value is `producer/key/number/index` and padding.
    """

    def __init__(self, count: int, keys: int, hot: float = 0.0, seed: int = 1, size: int = 64) -> None:
        super().__init__(count, keys, keyed=True, size=size, producer=f"s{seed}")
        chance = random.Random(seed)
        weights = list(accumulate(1 / rank for rank in range(1, keys + 1)))
        zipf = chance.choices(range(keys), cum_weights=weights, k=count)
        streams, numbers = array("l"), array("l")
        seen: Counter[int] = Counter()
        for drawn in zipf:
            key = HOT if chance.random() < hot else drawn
            streams.append(key)
            numbers.append(seen[key])
            seen[key] += 1
        object.__setattr__(self, "_streams", streams)  # the class it derives from is frozen
        object.__setattr__(self, "_numbers", numbers)

    _streams: array[int]
    _numbers: array[int]

    def stream(self, index: int) -> int:
        return self._streams[index]

    def number(self, index: int) -> int:
        return self._numbers[index]

    def value(self, index: int) -> bytes:
        name = b"%s/%d/%d/%d/" % (self.producer.encode(), self.stream(index), self.number(index), index)
        return name.ljust(self.size, b".")

    def index(self, value: bytes | None) -> int | None:
        try:
            found = int((value or b"").split(b"/")[3])
        except (ValueError, IndexError):
            return None
        return found if 0 <= found < self.count and self.value(found) == value else None
