"""Whether the next batch of a partition may be handed over now: go, or hold for a reason until a time.

Pure: the caller says how things are, with `now` in seconds of any monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from safeproducer.policy.decision import Hold
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.never import NEVER
from safeproducer.policy.window import MOST

LONGEST_DEPTH = 3
"""In-flight batches of one partition inside librdkafka at once: one on its way and full ones behind it, so that the
next one leaves without waiting for Python."""


@dataclass(frozen=True, slots=True)
class Partition:
    """What waits for one partition, and what of it librdkafka already has."""

    records: int
    oldest: float
    """When the longest waiting record was accepted."""
    unresolved: int
    """In-flight batches of it to the lane that would take the next one, without all their reports."""
    leaves_by: float
    """By when each of those has left librdkafka's queue; long ago for one that leaves by its count, without a flush
    trigger."""
    full: bool
    """Whether the waiting records fill a batch, by count or by size."""
    outstanding: int = 0
    """In-flight batches of it to all lanes, without all their reports."""
    budget: int = MOST
    """How many of those there may be (KIP-1269)."""


@dataclass(frozen=True, slots=True)
class Broker:
    """What is known of the broker that leads the partition, or of all brokers while the leader is unknown."""

    throttled_until: float | None
    probing: bool
    """Whether it gets one batch at a time: for as long again as it throttled, and 1 s (`Throttle.probes`)."""
    unresolved: int
    """In-flight batches to it without all their reports."""
    cap: int | None = None
    """How many of those there may be (max.in.flight.requests.per.connection), None for any number."""
    node: int | None = None
    """Its ID, None while the leader is unknown."""


@dataclass(frozen=True, slots=True)
class Go:
    """Hand the next batch over."""


Admission = Go | Hold
GO = Go()


def admit(partition: Partition, broker: Broker, now: float, linger: float, depth: int) -> Admission:
    """Whether the next batch may go. `linger` 0 while the application flushes."""
    if (closed := _closed(broker, now)) is not None:
        return closed
    if partition.outstanding >= partition.budget:
        return Hold(None, HoldReason.WINDOW)
    if partition.unresolved:
        # It waits there behind the batch in flight, and must not be mixed with one that has not left.
        if not partition.full or partition.unresolved >= depth or partition.leaves_by == NEVER:
            return Hold(None, HoldReason.IN_FLIGHT)
        return GO if partition.leaves_by <= now else Hold(partition.leaves_by, HoldReason.IN_FLIGHT)
    if not partition.full and (linger_elapsed := partition.oldest + linger) > now:
        return Hold(linger_elapsed, HoldReason.LINGER)
    return GO


def _closed(broker: Broker, now: float) -> Hold | None:
    """Why nothing may go to this broker, whatever the partition."""
    if broker.throttled_until is not None and broker.throttled_until > now:
        return Hold(broker.throttled_until, HoldReason.THROTTLED, broker.node)
    if broker.probing and broker.unresolved:
        # The answer under way may bring a longer throttle time, and what is sent meanwhile would wait unread (KIP-219).
        return Hold(None, HoldReason.PROBING, broker.node)
    if broker.cap is not None and broker.unresolved >= broker.cap:
        return Hold(None, HoldReason.MAX_IN_FLIGHT, broker.node)
    return None


def depth(ack_time: float | None, guard: float) -> int:
    """How many in-flight batches of a partition librdkafka may have at once.

    A full batch may wait behind the one in flight only as long as it is younger than the lane's linger, `guard`: an
    older one at the head of the queue makes librdkafka busy-wait.
    """
    if ack_time is None:
        return 1
    return max(1, min(LONGEST_DEPTH, int(guard / 2 / max(ack_time, 1e-6))))
