"""Whether the next batch of a partition may be handed over now: go, or hold for a reason until a time.

Pure: the caller says how things are, with `now` in seconds of any monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from safeproducer.policy.never import NEVER
from safeproducer.policy.window import MOST

LONGEST_DEPTH = 3
"""Hand-overs of one partition inside librdkafka at once: one on its way and full ones behind it, so that the next one
leaves without waiting for Python."""


@dataclass(frozen=True, slots=True)
class Partition:
    """What waits for one partition, and what of it librdkafka already has."""

    records: int
    oldest: float
    """When the longest waiting record was accepted."""
    unresolved: int
    """Hand-overs of it to the lane that would take the next one, without all their reports."""
    leaves_by: float
    """By when each of those has left librdkafka's queue; long ago for one that leaves by its count, without a kick."""
    full: bool
    """Whether the waiting records fill a batch, by count or by size."""
    outstanding: int = 0
    """Hand-overs of it to all lanes, without all their reports."""
    budget: int = MOST
    """How many of those there may be (KIP-1269)."""


@dataclass(frozen=True, slots=True)
class Broker:
    """What is known of the broker that leads the partition, or of all brokers while the leader is unknown."""

    throttled_until: float | None
    probing: bool
    """Whether it announced a throttle time and has not answered without one since."""
    unresolved: int
    """Hand-overs to it without all their reports."""
    cap: int | None = None
    """How many of those there may be (max.in.flight.requests.per.connection), None for any number."""


@dataclass(frozen=True, slots=True)
class Go:
    """Hand the next batch over."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Wait for `why`; ask again at `until`, or when something changed if that is None."""

    until: float | None
    why: str


Admission = Go | Hold
GO = Go()

THROTTLED = "throttled by its broker"
PROBING = "waits for the first answer of a broker that throttled"
CAPPED = "waits for an answer of its broker (max.in.flight.requests.per.connection)"
BUDGET = "waits for an acknowledgement: as many of its batches are under way as its leader remembers (KIP-1269)"
IN_FLIGHT = "waits for the acknowledgement of the batch before it"
LINGER = "gathers a batch (linger.ms)"
WHATEVER_WAITS = frozenset({THROTTLED, PROBING, CAPPED, BUDGET})
"""What no further record changes."""


def admit(partition: Partition, broker: Broker, now: float, linger: float, depth: int) -> Admission:
    """Whether the next batch may go. `linger` 0 while the application flushes."""
    if (closed := _closed(broker, now)) is not None:
        return closed
    if partition.outstanding >= partition.budget:
        return Hold(None, BUDGET)
    if partition.unresolved:
        # It waits there behind the batch in flight, and must not be mixed with one that has not left.
        if not partition.full or partition.unresolved >= depth or partition.leaves_by == NEVER:
            return Hold(None, IN_FLIGHT)
        return GO if partition.leaves_by <= now else Hold(partition.leaves_by, IN_FLIGHT)
    if not partition.full and (ripe := partition.oldest + linger) > now:
        return Hold(ripe, LINGER)
    return GO


def _closed(broker: Broker, now: float) -> Hold | None:
    """Why nothing may go to this broker, whatever the partition."""
    if broker.throttled_until is not None and broker.throttled_until > now:
        return Hold(broker.throttled_until, THROTTLED)
    if broker.probing and broker.unresolved:
        # The answer under way may bring a longer throttle time, and what is sent meanwhile would wait unread (KIP-219).
        return Hold(None, PROBING)
    if broker.cap is not None and broker.unresolved >= broker.cap:
        return Hold(None, CAPPED)
    return None


def depth(ack_time: float | None, guard: float) -> int:
    """How many hand-overs of a partition librdkafka may have at once.

    A full batch may wait behind the one in flight only as long as it is younger than the lane's linger, `guard`: an
    older one at the head of the queue makes librdkafka spin.
    """
    if ack_time is None:
        return 1
    return max(1, min(LONGEST_DEPTH, int(guard / 2 / max(ack_time, 1e-6))))
