"""When librdkafka is told to send what it has: a batch short of its count leaves by a kick, never by its linger."""

from __future__ import annotations

from safeproducer.pipeline.accumulator import Accumulator
from safeproducer.pipeline.hand_over import HandOver
from safeproducer.pipeline.holds import Holds
from safeproducer.pipeline.lanes import Lanes
from safeproducer.policy.never import NEVER

_FIRST_AGAIN = 0.02
_REST_SERVED = 0.02
"""Seconds within which the reports of one answer are served, however many they are."""
_EARLY_AGAIN = (0.005, 0.02)
_EARLY = 0.002
"""A kick that is due so soon goes with others."""
_SELDOM = 0.1
"""What is not answered for long is kicked now and then: librdkafka may have it in its queue again, for another try."""


class Kicks:
    """Owns the batches of one producer that need kicks. The sender's thread calls.

    `guard`: seconds after which a batch leaves by itself.
    """

    def __init__(self, holds: Holds, lanes: Lanes, guard: float) -> None:
        self._holds = holds
        self._lanes = lanes
        self._guard = guard
        self._partial: set[HandOver] = set()

    def add(self, batch: HandOver, behind_another: bool) -> None:
        """A batch that is not full was handed over, maybe behind another one of its partition in its lane."""
        self._partial.add(batch)
        if behind_another:
            batch.kick_at = NEVER  # until the one in front of it is answered

    def discard(self, batch: HandOver) -> None:
        """It has its reports."""
        self._partial.discard(batch)

    def expect_rest(self, accumulator: Accumulator, moment: float) -> None:
        """Part of a full batch was answered: what is left may still be in librdkafka's queue, short of its count.

        That is so when the batch before it had not left yet, all its kicks missed, and went together with the first
        part of this one. Most often its reports are just being served.
        """
        for batch in accumulator.unresolved:
            if batch.full and batch.left < len(batch.records) and batch not in self._partial:
                batch.kick_at = moment + _REST_SERVED
                self._partial.add(batch)

    def kick(self, moment: float) -> float:
        """Kick partial batches, and again while they are not reported: a busy broker thread misses a kick."""
        due = NEVER
        if not self._partial:
            return due
        needed: set[int] = set()
        for batch in tuple(self._partial):
            if not batch.left or moment - batch.at > self._guard:
                self._partial.discard(batch)
                continue
            if batch.kick_at <= moment + _EARLY:
                needed.add(batch.lane)
                batch.full = False
                batch.kicked(moment)
                batch.kick_at = moment + self._again(batch, moment - batch.sent_at)
                if batch.accumulator.waiting:  # the next one may go when this one has left
                    due = min(due, batch.leaves_by)
            due = min(due, batch.kick_at)
        for lane in self._lanes:
            if lane.number in needed:
                lane.kick()
        return due

    def let_follow(self, batch: HandOver, moment: float) -> None:
        """Nothing is in front of this batch any more."""
        if batch.kick_at == NEVER:
            until = self._holds.broker(batch.accumulator, moment).throttled_until
            batch.kick_at = moment if until is None else max(moment, until)

    def _again(self, batch: HandOver, age: float) -> float:
        ack_time = batch.accumulator.ack_time
        if ack_time is None:  # connecting, or getting a producer ID: no kick is heard before that is done
            return max(_FIRST_AGAIN, min(_SELDOM, age / 4))
        # A missed one costs no round trip; none is near the answer. The last is for the sake of what waits to follow.
        for early in _EARLY_AGAIN if batch.accumulator.waiting else _EARLY_AGAIN[:-1]:
            if age < early < ack_time / 2:
                return early - age
        return max(_FIRST_AGAIN, min(1.5 * ack_time, _SELDOM) if age > ack_time else 1.5 * ack_time - age)
