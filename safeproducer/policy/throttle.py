"""KIP-13, KIP-124, KIP-219: how long each broker of one cluster asked its clients to wait.

A broker over a quota answers at once and says for how long it will not read on. librdkafka reports the time and goes
on sending, so its requests lie unread until they time out. Like the Java client this policy keeps one deadline for each
broker, which only grows. Unlike it, a record is held only if it goes to that broker.

A quota is a rate over some seconds, so the first answer without a throttle time only says that the wait was long enough
for one batch: for as long again as the last wait, and a little, a broker is calmed by as much as one batch at a time.

Rules: an announced zero changes nothing, whoever sent it, because librdkafka reports the fall to zero once for a whole
client and cannot tell which broker it came from; a partition without a known leader may belong to any broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

QUIET = 60.0
"""Seconds without a hold that end an episode. Under a quota a broker announces a wait with nearly every answer."""

CALM = 1.0  # seconds for which a broker is calmed at least


@dataclass(frozen=True, slots=True)
class _Known:
    """Never changed, only replaced: by broker, when its deadline is and until when it is calmed; the latest calm."""

    deadlines: Mapping[int, float] = field(default_factory=dict)
    probes: Mapping[int, float] = field(default_factory=dict)
    latest_calm: float = -inf


class Throttle:
    """The deadlines of one cluster's brokers. Any thread, and signal handlers that interrupt a call of it: no lock.

    Times are seconds of one monotonic clock. A broker is its node id; -1 stands for one that is not known, and holds
    only partitions without a known leader. A broker is forgotten QUIET after its deadline, so the state is as small as
    the number of brokers that throttled within the last minute.
    """

    __slots__ = ("__weakref__", "_known")

    def __init__(self) -> None:
        self._known = _Known()

    def announce(self, broker: int, seconds: float, now: float) -> bool:
        """Note that a broker asked to wait `seconds`, if positive and finite; whether it had not in the last minute."""
        if not 0 < seconds < inf:
            return False
        while True:
            known = self._known
            deadlines = {number: until for number, until in known.deadlines.items() if until + QUIET > now}
            probes = {number: until for number, until in known.probes.items() if until > now}
            before = deadlines.get(broker)
            deadlines[broker] = now + seconds if before is None else max(before, now + seconds)
            probes[broker] = calm = max(probes.get(broker, -inf), now + 2 * seconds + CALM)
            after = _Known(deadlines, probes, max(known.latest_calm, calm))
            # One step under the interpreter lock: it switches only at calls and at jumps backwards.
            if self._known is known:
                self._known = after
                return before is None

    def deadline(self, broker: int | None, now: float) -> float | None:
        """When a record for a partition led by `broker` may go; None for at once. No leader known: `broker` is None."""
        deadlines = self._known.deadlines
        until = max(deadlines.values(), default=-inf) if broker is None else deadlines.get(broker, -inf)
        return until if until > now else None

    def probes(self, broker: int | None, now: float) -> bool:
        """Whether this broker, or any if None, throttled so lately that it gets as much as one batch at a time."""
        if broker is None:
            return self._known.latest_calm > now
        return self._known.probes.get(broker, -inf) > now

    def deadlines(self, now: float) -> dict[int, float]:
        """Broker -> deadline, of those that are throttling."""
        return {broker: until for broker, until in self._known.deadlines.items() if until > now}
