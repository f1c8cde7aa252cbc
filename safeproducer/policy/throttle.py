"""KIP-13, KIP-124, KIP-219: how long each broker of one cluster asked its clients to wait.

A broker over a quota answers at once and says for how long it will not read on. librdkafka reports the time and goes
on sending, so its requests lie unread until they time out. Like the Java client this policy keeps one deadline for each
broker, which only grows. Unlike it, a record is held only if it goes to that broker.

A quota is a rate over some seconds, so the first answer without a throttle time only says that the wait was long enough
for one batch: for as long again as the last wait, and a little, a broker is calmed by one batch at a time.

Rules: an announced zero changes nothing, whoever sent it, because librdkafka reports the fall to zero once for a whole
client and cannot tell which broker it came from; a partition without a known leader may belong to any broker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

QUIET = 60.0
"""Seconds without a hold that end an episode. Under a quota a broker announces a wait with nearly every answer."""

CALM = 1.0
"""Seconds for which a broker is calmed at least."""


@dataclass(frozen=True, slots=True)
class Episode:
    """A broker begins to throttle: `seconds` were announced at `began`, nothing goes to it before `until`."""

    broker: int
    seconds: float
    began: float
    until: float


@dataclass(slots=True)
class Throttle:
    """The deadlines of one cluster's brokers. Not thread-safe: its owner locks.

    Times are seconds of one monotonic clock. A broker is its node id; -1 stands for one that is not known, and holds
    only partitions without a known leader. A broker is forgotten QUIET after its deadline, so the state is as small as
    the number of brokers that throttled within the last minute.
    """

    latest: float = -inf
    """The latest deadline of all brokers; it never moves back. When it is past, nothing is held."""

    latest_calm: float = -inf
    """The latest end of a broker's calming."""

    _calms: dict[int, float] = field(default_factory=dict)
    _deadlines: dict[int, float] = field(default_factory=dict)

    def announce(self, broker: int, seconds: float, now: float) -> Episode | None:
        """Note that at `now` a broker asked to wait `seconds`; an Episode when it had not within the last minute.

        What is not a positive finite number changes nothing.
        """
        if not 0 < seconds < inf:
            return None
        for other in [number for number, until in self._deadlines.items() if until + QUIET <= now]:
            del self._deadlines[other]
        for other in [number for number, until in self._calms.items() if until <= now]:
            del self._calms[other]
        known = self._deadlines.get(broker)
        until = now + seconds if known is None else max(known, now + seconds)
        self._deadlines[broker] = until
        self.latest = max(self.latest, until)
        self._calms[broker] = calm = max(self._calms.get(broker, -inf), now + 2 * seconds + CALM)
        self.latest_calm = max(self.latest_calm, calm)
        return Episode(broker, seconds, now, until) if known is None else None

    def deadline(self, broker: int | None, now: float) -> float | None:
        """When a record for a partition led by `broker` may go; None for at once. No leader known: `broker` is None."""
        until = max(self._deadlines.values(), default=-inf) if broker is None else self._deadlines.get(broker, -inf)
        return until if until > now else None

    def calms(self, broker: int | None, now: float) -> bool:
        """Whether this broker, or any if None, throttled so lately that it gets one batch at a time."""
        if broker is None:
            return self.latest_calm > now
        return self._calms.get(broker, -inf) > now

    def held(self, now: float) -> dict[int, float]:
        """Broker -> deadline, of those that are throttling."""
        return {broker: until for broker, until in self._deadlines.items() if until > now}
