"""The permits of one producer's batch lanes (KIP-936).

A lane needs its permit at its first batch: one that never sends leaves nothing behind at the brokers. But an additional
lane is not even made while the guard has none to spare. Between the two another process may have taken what there was:
then the lane is given up, and the partition goes on with the lanes that it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from safeproducer.policy.permits import Kind
from safeproducer.producer_ids.guard import Guard
from safeproducer.producer_ids.permit import Answer, Permit, Request
from safeproducer.runtime import clock

PAUSE = 1.0
"""Seconds for which the guard is not asked again after it refused a lane: it costs a round each time."""


class LanePermit:
    """Of one batch lane, for its life.

    `asked`: it was asked for, so the lane's producer ID is in use. `denied`: there is none, and the lane must not send.
    """

    def __init__(self, kind: Kind, owner: LanePermits | None) -> None:
        self.kind = kind
        self.denied = False
        self.permit: Permit | None = None
        self._owner = owner
        self.asked = owner is None
        self._noted = owner is None

    def may_send(self, producer_id: int | None = None) -> bool:
        """Ask for the permit, the first time that a batch is to leave; whether it may.

        `producer_id`: the one that came of it, once it is known.
        """
        if not self.asked and self._owner is not None:
            self.asked = True
            self.permit = self._owner.ask(self)
            self.denied = self.permit is None
        if not self._noted and producer_id is not None and self.permit is not None and self._owner is not None:
            self._noted = True
            self._owner.note(self.permit, producer_id)
        return not self.denied


GRANTED: Final = LanePermit(Kind.FIRST, None)
"""Of a lane that needs none of its own: somebody else asked for it, or nobody counts."""


class LanePermits:
    """The sender's thread calls; any thread may ask how many are `used`, and `end()`s.

    - `guard`: None without idempotence: lanes take no producer IDs, and there is nothing to guard.
    - `request`: that of an additional lane.
    - `tell(answer)` is called when a permit is over the limit; it must return at once.
    """

    def __init__(self, guard: Guard | None, request: Request, tell: Callable[[Answer], object] | None = None) -> None:
        self._guard = guard
        self._request = request
        self._tell = tell
        self._due: set[LanePermit] = set()
        """Of lanes that exist and have not sent yet: they may all ask at once."""
        self._held: set[LanePermit] = set()
        """Of lanes that exist and have sent."""
        self._lost = 0
        """Lanes that failed and are to be replaced."""
        self._again_at = self._retry_after = 0.0
        self.refused = False
        """Whether the additional lane that was wanted last is not made, to keep to the limit."""
        self.used = 0

    @property
    def paused(self) -> bool:
        """Whether it is too early to ask the guard again."""
        return self.refused and clock.monotonic() < self._again_at

    def kind(self, needed: bool) -> Kind | None:
        """Of the lane that is to be made next; None while it is not to be made.

        `needed`: records cannot go on without it. So it is with the replacement of one that failed.
        """
        additional = self._request.kind
        if needed or self._lost:
            return Kind.FURTHER
        if self._guard is None or not self._request.enforce:
            return additional
        if self.paused:
            return None
        due = sum(permit.kind is additional for permit in self._due) + 1
        if self._guard.room(self._request, due) < due:
            self._refuse()
            return None
        self.refused = False
        return additional

    def of_lane(self, kind: Kind) -> LanePermit:
        if kind is Kind.FURTHER:
            self._lost = max(0, self._lost - 1)
        if self._guard is None:
            return GRANTED
        permit = LanePermit(kind, self)
        self._due.add(permit)
        return permit

    def renewal(self, now: float) -> tuple[LanePermit, float]:
        """For a native producer in place of one that failed, before it is made; when to ask again if it is denied."""
        if self._guard is None:
            return GRANTED, now
        (permit := LanePermit(Kind.FIXED_LANE, self)).may_send()
        return permit, now + self._retry_after

    def ask(self, lane: LanePermit) -> Permit | None:
        self._due.discard(lane)
        if self._guard is None:
            return None
        answer = self._guard.ask(self._request._replace(kind=lane.kind))
        self._retry_after = answer.retry_after
        if answer.permit is None:
            self._refuse()
        else:
            self.used += 1
            self._held.add(lane)
        if answer.over_limit and self._tell is not None:
            self._tell(answer)
        return answer.permit

    def note(self, permit: Permit, producer_id: int) -> None:
        if self._guard is not None:
            self._guard.note(permit, producer_id)

    def ended(self, lane: LanePermit, wrote: bool, failed: bool, replaced: bool = False) -> None:
        """A lane is no more. `failed`: it is to be replaced, or is. `wrote`: whether it was given any batch."""
        self._due.discard(lane)
        self._held.discard(lane)
        self._lost += failed and not replaced
        self._end(lane, "failed" if failed else "closed", not wrote)

    def end(self, how: str, unsent: bool) -> None:
        """The producer ends: `how` as in Guard.note(). `unsent`: nothing was sent, certainly. The first call counts."""
        for lane in tuple(self._held):  # the sender may add to it meanwhile
            self._end(lane, how, unsent)
            self._held.discard(lane)  # not before: a signal handler may raise there, and close() comes again

    def _end(self, lane: LanePermit, how: str, unsent: bool) -> None:
        if self._guard is None or lane.permit is None:
            return
        self._guard.note(lane.permit, ended=how)
        if unsent:
            self._guard.give_back(lane.permit)
            self.used -= 1
            lane.permit = None  # one step with the line above: a signal handler may raise in any call

    def _refuse(self) -> None:
        self.refused = True
        self._again_at = clock.monotonic() + PAUSE
