"""Record timestamps that have a leader forget the producer ID: its age counts from them, not from arrival (KIP-854)."""

from __future__ import annotations

from typing import Any

from safeproducer import clock
from safeproducer.policy.expiry import is_too_old
from safeproducer.policy.never import NEVER

_MOST_TOPICS = 1000
_SEEN_BY = 1.0
"""Seconds by which statistics have told of a record."""


class OldTimestamps:
    """`note()` on the threads of the application; the rest on the sender's and the one that asks brokers."""

    def __init__(self) -> None:
        self._ages: dict[str, float] = {}
        """By topic, how old the oldest timestamp was when it was produced, in seconds."""
        self._settled: set[str] = set()
        """Topics that were told of, or that keep the broker's time."""
        self._broker_time: set[str] = set()
        self._last: dict[str, tuple[float, float]] = {}
        """By topic, when a timestamp of more than `age` came last, and the oldest of them."""
        self.age = NEVER

    def note(self, topic: Any, timestamp: Any) -> None:
        """A record of `topic` comes with a timestamp of its own, in milliseconds. Raises nothing."""
        if type(timestamp) is int and timestamp > 0 and isinstance(topic, str):
            age = clock.time() - timestamp / 1000
            if age > self.age and len(self._last) < _MOST_TOPICS:
                now = clock.monotonic()
                self._last[str.__str__(topic)] = now, min(now - age, self._last.get(topic, (0.0, NEVER))[1])
            if age > self._ages.get(topic, 1.0) and len(self._ages) < _MOST_TOPICS:
                self._ages[str.__str__(topic)] = age

    def too_old(self, horizon: float) -> dict[str, float]:
        """Topics that nothing was told of yet, and the age of their oldest timestamp, which is beyond the horizon."""
        ages = self._ages.copy()
        return {topic: age for topic, age in ages.items() if topic not in self._settled and is_too_old(age, horizon)}

    def __bool__(self) -> bool:
        return bool(self._last)

    def oldest(self, topic: str, given: float) -> float:
        """The oldest timestamp that a leader counts from of records that were given then; NEVER without an old one."""
        at, oldest = self._last.get(topic, (-NEVER, NEVER))
        return oldest if at + _SEEN_BY >= given and topic not in self._broker_time else NEVER

    def keeps(self, topic: str) -> bool:
        """Whether the topic keeps the timestamps of applications, as far as is known."""
        return topic not in self._broker_time

    def settle(self, topic: str, broker_time: bool = False) -> None:
        """Nothing more is told of this topic, which may keep the broker's time."""
        self._settled.add(topic)
        if broker_time:
            self._broker_time.add(topic)
