"""Record timestamps that have a leader forget the producer ID: its age counts from them, not from arrival (KIP-854)."""

from __future__ import annotations

from typing import Any

from safeproducer import clock
from safeproducer.policy.expiry import is_too_old

_MOST_TOPICS = 1000


class OldTimestamps:
    """`note()` on the threads of the application; the rest on the sender's and the one that asks brokers."""

    def __init__(self) -> None:
        self._ages: dict[str, float] = {}
        """By topic, how old the oldest timestamp was when it was produced, in seconds."""
        self._settled: set[str] = set()
        """Topics that were told of, or that keep the broker's time."""

    def note(self, topic: Any, timestamp: Any) -> None:
        """A record of `topic` comes with a timestamp of its own, in milliseconds. Raises nothing."""
        if type(timestamp) is int and timestamp > 0 and isinstance(topic, str):
            age = clock.time() - timestamp / 1000
            if age > self._ages.get(topic, 1.0) and len(self._ages) < _MOST_TOPICS:
                self._ages[str.__str__(topic)] = age

    def too_old(self, horizon: float) -> dict[str, float]:
        """Topics that nothing was told of yet, and the age of their oldest timestamp, which is beyond the horizon."""
        ages = self._ages.copy()
        return {topic: age for topic, age in ages.items() if topic not in self._settled and is_too_old(age, horizon)}

    def settle(self, topic: str) -> None:
        """Nothing more is told of this topic."""
        self._settled.add(topic)
