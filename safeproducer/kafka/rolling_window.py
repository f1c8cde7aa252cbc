"""One of librdkafka's rolling windows: what was measured since the statistics before; and several of them as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

_SHARES = {"p50": 5_000, "p75": 2_500, "p90": 1_500, "p95": 500, "p99": 400, "p99_99": 100}
"""How many of ten thousand samples a percentile has more than the one before."""


_OTHERS = ("cnt", "sum", "stddev", "min", "max", "outofrange", "hdrsize")


@dataclass(frozen=True, slots=True)
class RollingWindow:
    """Values are in the unit of the window; `squares` is the sum of all values' squares.

    `values` says where the samples are, as far as percentiles tell: value -> ten-thousandths of a sample. Each sample
    between two percentiles counts as the larger one. So a percentile of several windows together is never below the
    true one and never above the largest of theirs; that of one window is its own.
    """

    count: int
    total: int
    squares: float
    least: int
    most: int
    skipped: int
    memory: int
    values: Mapping[int, int]

    @classmethod
    def read(cls, fields: Any) -> RollingWindow | None:
        """The window in these fields of a document; None when it is empty or no window."""
        try:
            found = {name: fields[name] for name in (*_OTHERS, *_SHARES)}
        except (KeyError, TypeError):
            return None
        if not all(type(value) is int for value in found.values()) or found["cnt"] <= 0:
            return None
        count, total = found["cnt"], found["sum"]
        values: Counter[int] = Counter()
        for name, share in _SHARES.items():
            values[found[name]] += share * count
        squares = count * (found["stddev"] ** 2 + (total / count) ** 2)
        least, most, skipped, memory = (found[name] for name in ("min", "max", "outofrange", "hdrsize"))
        return cls(count, total, squares, least, most, skipped, memory, values)

    def __add__(self, other: RollingWindow) -> RollingWindow:
        return RollingWindow(
            self.count + other.count,
            self.total + other.total,
            self.squares + other.squares,
            min(self.least, other.least),
            max(self.most, other.most),
            self.skipped + other.skipped,
            max(self.memory, other.memory),
            Counter(self.values) + Counter(other.values),
        )

    def written(self) -> dict[str, int]:
        """The fields of a document."""
        return {
            "min": self.least,
            "max": self.most,
            "avg": self.total // self.count,
            "sum": self.total,
            "stddev": round(sqrt(max(0.0, self.squares / self.count - (self.total / self.count) ** 2))),
            **self._percentiles(),
            "outofrange": self.skipped,
            "hdrsize": self.memory,
            "cnt": self.count,
        }

    def _percentiles(self) -> dict[str, int]:
        found = {}
        below = wanted = 0
        larger = iter(sorted(self.values.items()))
        value = self.least
        for name, share in _SHARES.items():
            wanted += share * self.count
            while below < wanted:
                value, weight = next(larger)
                below += weight
            found[name] = value
        return found


def empty(fields: Any) -> dict[str, Any]:
    """The fields of a document, without any sample."""
    return {**dict.fromkeys(fields, 0), "hdrsize": fields.get("hdrsize", 0)}
