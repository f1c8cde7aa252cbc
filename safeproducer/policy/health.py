"""Which brokers are silent, and since when, from what a client's statistics say of them one after the other.

A broker is silent while requests wait and no answer of any kind comes, or while there is no connection although
records are for it. A broker without a connection that has nothing to do is not silent: librdkafka connects when it must
(state INIT). Nor is one that answers slowly: each answer starts the count anew. A throttling broker does look silent,
because it leaves requests unread until its deadline: ask the Throttle first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BrokerObservation:
    """One broker at one moment, as one client sees it.

    - `up`: there is a connection on which requests can be sent.
    - `needed`: it leads a partition that has records which wait or are on their way.
    - `outstanding`: requests without an answer yet; `received`: answers since the client was made.
    """

    up: bool
    needed: bool
    outstanding: int
    received: int


@dataclass(frozen=True, slots=True)
class _Watched:
    received: int
    since: float | None
    silent: bool


@dataclass(slots=True)
class Health:
    """What the observations of one client say. Not thread-safe: its owner locks."""

    _watched: dict[int, _Watched] = field(default_factory=dict)

    def observe(self, now: float, brokers: Mapping[int, BrokerObservation]) -> None:
        """Take in all brokers at `now` (seconds, monotonic); brokers that are not among them are forgotten."""
        self._watched = {number: self._judge(now, number, seen) for number, seen in brokers.items()}

    def _judge(self, now: float, number: int, seen: BrokerObservation) -> _Watched:
        waits = seen.outstanding > 0 or (seen.needed and not seen.up)
        if not waits:
            return _Watched(seen.received, None, silent=False)
        before = self._watched.get(number)
        if before is None or before.since is None or before.received != seen.received:
            # A request seen for the first time may have been sent a moment ago: the next observation decides.
            return _Watched(seen.received, now, silent=not seen.up)
        return _Watched(seen.received, before.since, silent=True)

    def silent(self, broker: int) -> float | None:
        """Since when `broker` is silent, in the time of the observations: the first that shows it. None when not.

        How long is too long is for the caller to say: an answer that takes longer than the time between two
        observations is a short silence.
        """
        watched = self._watched.get(broker)
        return watched.since if watched is not None and watched.silent else None

    def all_silent(self) -> dict[int, float]:
        """Broker -> since when, of all that are silent."""
        return {number: since for number in self._watched if (since := self.silent(number)) is not None}
