"""When librdkafka is told to send what it has: a batch short of its count leaves by a flush trigger, never by its
linger."""

from __future__ import annotations

from safeproducer.pipeline.holds import Holds
from safeproducer.pipeline.in_flight_batch import InFlightBatch
from safeproducer.pipeline.lane_pool import LanePool
from safeproducer.pipeline.partition_buffer import PartitionBuffer
from safeproducer.policy.never import NEVER

_FIRST_AGAIN = 0.02
_REST_SERVED = 0.02
"""Seconds within which the reports of one answer are served, however many they are."""
_EARLY_AGAIN = (0.005, 0.02)
_EARLY = 0.002
"""A flush trigger that is due so soon goes with others."""
_SELDOM = 0.1
"""What is not answered for long is flushed now and then: librdkafka may have it in its queue again, for another try."""


class FlushTimer:
    """Owns the batches of one producer that need flush triggers. The sender's thread calls.

    `guard`: seconds after which a batch leaves by itself.
    """

    def __init__(self, holds: Holds, lanes: LanePool, guard: float) -> None:
        self._holds = holds
        self._lanes = lanes
        self._guard = guard
        self._partial: dict[InFlightBatch, PartitionBuffer] = {}

    def add(self, buffer: PartitionBuffer, batch: InFlightBatch, behind_another: bool) -> None:
        """A batch that is not full was handed over, maybe behind another one of its partition in its lane."""
        self._partial[batch] = buffer
        if behind_another:
            batch.flush_at = NEVER  # until the one in front of it is answered

    def discard(self, batch: InFlightBatch) -> None:
        """It has its reports."""
        self._partial.pop(batch, None)

    def expect_rest(self, buffer: PartitionBuffer, now: float) -> None:
        """Part of a full batch was answered: what is left may still be in librdkafka's queue, short of its count.

        That is so when the batch before it had not left yet, all its flush triggers missed, and went together with the
        first part of this one. Most often its reports are just being served.
        """
        for batch in buffer.unresolved:
            if batch.full and batch.left < len(batch.records) and batch not in self._partial:
                batch.flush_at = now + _REST_SERVED
                self._partial[batch] = buffer

    def trigger_flush(self, now: float) -> float:
        """Flush trigger partial batches, and again while they are not reported: a busy broker thread misses a flush
        trigger."""
        due = NEVER
        if not self._partial:
            return due
        needed: set[int] = set()
        for batch, buffer in tuple(self._partial.items()):
            if not batch.left or now - batch.at > self._guard:
                self._partial.pop(batch, None)
                continue
            if batch.flush_at <= now + _EARLY:
                needed.add(batch.lane)
                batch.flushed(now)
                batch.flush_at = now + self._again(buffer, now - batch.sent_at)
                if buffer.waiting:  # the next one may go when this one has left
                    due = min(due, batch.leaves_by)
            due = min(due, batch.flush_at)
        for lane in self._lanes:
            if lane.number in needed:
                lane.client.trigger_flush()
        return due

    def let_follow(self, batch: InFlightBatch, now: float) -> None:
        """Nothing is in front of this batch any more."""
        if batch.flush_at == NEVER:
            until = self._holds.cluster.broker(batch.tp, now).throttled_until
            batch.flush_at = now if until is None else max(now, until)

    def _again(self, buffer: PartitionBuffer, age: float) -> float:
        ack_time = buffer.ack.seconds
        if ack_time is None:  # connecting, or getting a producer ID: no flush trigger is heard before that is done
            return max(_FIRST_AGAIN, min(_SELDOM, age / 4))
        # A missed one costs no round trip; none is near the answer. The last is for the sake of what waits to follow.
        for early in _EARLY_AGAIN if buffer.waiting else _EARLY_AGAIN[:-1]:
            if age < early < ack_time / 2:
                return early - age
        return max(_FIRST_AGAIN, min(1.5 * ack_time, _SELDOM) if age > ack_time else 1.5 * ack_time - age)
