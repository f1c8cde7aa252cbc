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
from safeproducer.producer_ids.permit import Answer, Claim, Permit
from safeproducer.records import CallSite
from safeproducer.runtime import clock

PAUSE = 1.0
"""Seconds for which the guard is not asked again after it refused a lane: it costs a round each time."""


class OwnPermit:
    """One native producer has it for its life. Any thread, and signal handlers. `permit`: what it writes with."""

    permit: Permit | None = None
    _producer_id: int | None = None
    _end: tuple[str, bool] | None = None
    _noted = False
    # Defaults of the class: each constructor pays for what it sets.

    def __init__(self, guard: Guard, request: Claim) -> None:
        self._guard = guard
        self._request = request

    def ask(self) -> Answer:
        """The guard's answer. A permit is the producer's from then on, unless it has one or has ended."""
        answer = self._guard.ask(self._request)
        # One step: what follows a call, a handler may have come between.
        if self.permit is None and self._end is None:
            self.permit = answer.permit
        elif answer.permit is not None:  # another thread has asked, too, or the producer was closed meanwhile
            self._guard.give_back(answer.permit)
        return answer

    def note(self, producer_id: int) -> None:
        """This producer ID came of the permit. Only the first one counts."""
        if self._producer_id is None and self.permit is not None:
            self._producer_id = producer_id
            self._guard.note(self.permit, producer_id)

    def end(self, how: str, unsent: bool) -> None:
        """The producer ends: `how` as in Guard.note(). `unsent`: nothing was sent, certainly. The first call counts."""
        self._end = how, unsent = self._end or (how, unsent)
        if self.permit is not None and not self._noted:
            self._guard.note(self.permit, self._producer_id, how)
            if unsent:
                self._guard.give_back(self.permit)
                self.permit = None
            self._noted = True  # not before: a signal handler may raise there, and close() comes again


class LanePermit(OwnPermit):
    """A batch lane has it. `asked`: its producer ID is in use. `denied`: there is none, and the lane must not send."""

    asked = denied = False

    def __init__(self, guard: Guard, request: Claim, heard: Callable[[LanePermit, Answer], object]) -> None:
        super().__init__(guard, request)
        self.kind, self._heard = request.kind, heard

    def may_send(self, producer_id: int | None = None) -> bool:
        """Ask for the permit, the first time that a batch is to leave; whether it may.

        `producer_id`: the one that came of it, once it is known.
        """
        if not self.asked:
            self.asked = True
            answer = self.ask()
            self.denied = self.permit is None
            self._heard(self, answer)
        if producer_id is not None:
            self.note(producer_id)
        return not self.denied


GRANTED: Final = LanePermit(Guard(), Claim(Kind.FIRST, 1.0, False, CallSite("", 0, "")), lambda *_: None)
"""The permit of a lane that needs none of its own: somebody else asked for it, or nobody counts."""
GRANTED.asked = True


class LanePermits:
    """The sender's thread calls; any thread may ask how many are `used`, and `end()`s.

    - `guard`: None without idempotence: lanes take no producer IDs, and there is nothing to guard.
    - `request`: that of an additional lane.
    - `tell(answer)` is called when a permit is over the limit; it must return at once.
    """

    def __init__(self, guard: Guard | None, request: Claim, tell: Callable[[Answer], object] | None = None) -> None:
        self._guard = guard
        self._request = request
        self._tell = tell
        self._lanes: set[LanePermit] = set()
        """The permits of the lanes that exist."""
        self._kept = self._lost = 0
        """How many had a permit and are no more; how many of them failed and are to be replaced."""
        self._again_at = self._retry_after = 0.0
        self.refused = False
        """Whether the additional lane that was wanted last is not made, to keep to the limit."""

    @property
    def used(self) -> int:
        """How many permits lanes have taken, and not given back."""
        return self._kept + sum(lane.permit is not None for lane in list(self._lanes))

    @property
    def paused(self) -> bool:
        """Whether it is too early to ask the guard again."""
        return self.refused and clock.monotonic() < self._again_at

    def kind(self, needed: bool) -> Kind | None:
        """The kind of the lane that is to be made next; None while it is not to be made.

        `needed`: records cannot go on without it. So it is with the replacement of one that failed.
        """
        additional = self._request.kind
        if needed or self._lost:
            return Kind.FURTHER
        if self._guard is None or not self._request.enforce:
            return additional
        if self.paused:
            return None
        # Lanes that have not sent yet may all ask at once.
        due = sum(lane.kind is additional and not lane.asked for lane in self._lanes) + 1
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
        permit = LanePermit(self._guard, self._request._replace(kind=kind), self._heard)
        self._lanes.add(permit)
        return permit

    def renewal(self, now: float) -> tuple[LanePermit, float]:
        """The permit of a native producer in place of one that failed; when to ask again if it is denied."""
        (permit := self.of_lane(Kind.FIXED_LANE)).may_send()
        return permit, now + self._retry_after

    def _heard(self, lane: LanePermit, answer: Answer) -> None:
        self._retry_after = answer.retry_after
        if lane.denied:
            self._lanes.discard(lane)
            self._refuse()
        if answer.over_limit and self._tell is not None:
            self._tell(answer)

    def ended(self, lane: LanePermit, wrote: bool, failed: bool, replaced: bool = False) -> None:
        """A lane is no more. `failed`: it is to be replaced, or is. `wrote`: whether it was given any batch."""
        self._lost += failed and not replaced
        lane.end("failed" if failed else "closed", not wrote)
        self._lanes.discard(lane)
        self._kept += lane.permit is not None

    def end(self, how: str, unsent: bool) -> None:
        """The producer ends: `how` as in Guard.note(). `unsent`: nothing was sent, certainly. The first call counts."""
        for lane in list(self._lanes):  # the sender may add to it meanwhile
            lane.end(how, unsent)

    def _refuse(self) -> None:
        self.refused = True
        self._again_at = clock.monotonic() + PAUSE
