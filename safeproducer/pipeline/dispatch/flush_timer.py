"""When librdkafka is told to send what it has: by a flush trigger a batch leaves that is short of its count."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from safeproducer.pipeline.buffer.in_flight_batch import InFlightBatch
from safeproducer.pipeline.buffer.partition_buffer import PartitionBuffer
from safeproducer.pipeline.dispatch.hold_facts import HoldFacts
from safeproducer.pipeline.lanes.lane_pool import LanePool
from safeproducer.policy.types import NEVER
from safeproducer.runtime import clock

_FIRST_AGAIN = 0.02
_REST_SERVED = 0.02  # seconds within which the reports of one answer are served, however many they are
_EARLY_AGAIN = (0.005, 0.02)
_EARLY = 0.002  # a flush trigger that is due so soon goes with others
_MANY = 16  # partial batches, from which several answers of a broker are awaited in one flush trigger
_SELDOM = 0.1  # seconds between flushes of what has no answer for long: it may be in a queue again, for another try


@dataclass(eq=False)
class FlushTimer:
    """Owns the batches of one producer that need flush triggers. The sender's thread calls.

    `guard`: seconds after which a batch leaves by itself. `hurry()` is called when a batch may follow another one.
    """

    _holds: HoldFacts
    _lanes: LanePool
    _guard: float
    hurry: Callable[[], None]
    _due: dict[InFlightBatch, tuple[PartitionBuffer, float]] = field(default_factory=dict)
    """When the next flush trigger of a batch that is not full is due."""

    def add(self, buffer: PartitionBuffer, batch: InFlightBatch, before: InFlightBatch | None) -> None:
        """A batch that is not full was handed over, maybe behind another one of its partition in its lane."""
        self._due[batch] = buffer, batch.at if before is None else NEVER
        if before is not None:
            before.reports.on_answer = partial(_follows, weakref.ref(self), batch)

    def discard(self, batch: InFlightBatch) -> None:
        """The batch has all its reports, and needs no flush trigger any more."""
        self._due.pop(batch, None)

    def expect_rest(self, buffer: PartitionBuffer, now: float) -> None:
        """Part of a full batch was answered: what is left may still be in librdkafka's queue, short of its count.

        That is so when the batch before it had not left yet, all its flush triggers missed, and went together with the
        first part of this one. Most often its reports are just being served.
        """
        for batch in buffer.unresolved:
            if batch.full and batch.left < len(batch.records):
                self._due.setdefault(batch, (buffer, now + _REST_SERVED))

    def trigger_flush(self, now: float) -> float:
        """Send partial batches, and again while they are not reported: a busy broker thread misses a trigger."""
        due, needed = NEVER, set[int]()
        for batch, (buffer, at) in self._due.copy().items():
            if not batch.left or now - batch.at > self._guard:
                self.discard(batch)
                continue
            if at <= now + _EARLY:
                needed.add(batch.lane)
                batch.flushed(now)
                self._due[batch] = buffer, now + self._again(buffer, now - batch.sent_at)
                if buffer.waiting:  # the next one may go when this one has left
                    buffer.ring()
                    due = min(due, batch.leaves_by)
            due = min(due, self._due[batch][1])
        for lane in self._lanes if needed else ():
            if lane.number in needed:
                lane.client.trigger_flush(many=len(self._due) >= _MANY)
        return due

    def let_follow(self, batch: InFlightBatch, now: float) -> None:
        """The batch is the first one of its partition now."""
        if (waits := self._due.get(batch)) is not None and waits[1] == NEVER:
            until = self._holds.cluster.leader_state(batch.tp, now).throttled_until
            self._due[batch] = waits[0], now if until is None else max(now, until)

    def _again(self, buffer: PartitionBuffer, age: float) -> float:
        ack_time = buffer.ack.seconds
        if ack_time is None:  # connecting, or getting a producer ID: no flush trigger is heard before that is done
            return max(_FIRST_AGAIN, min(_SELDOM, age / 4))
        # A missed one costs no round trip; none is near the answer. The last is for the sake of what waits to follow.
        for early in _EARLY_AGAIN if buffer.waiting else _EARLY_AGAIN[:-1]:
            if age < early < ack_time / 2:
                return early - age
        return max(_FIRST_AGAIN, min(1.5 * ack_time, _SELDOM) if age > ack_time else 1.5 * ack_time - age)


def _follows(timer: weakref.ref[FlushTimer], batch: InFlightBatch) -> None:
    """The reports of the batch in front are being served. Inside a native call, so it makes none."""
    # The native producer holds its callbacks, and must not hold what they lead to.
    if (found := timer()) is not None:
        found.let_follow(batch, clock.monotonic())
        found.hurry()
