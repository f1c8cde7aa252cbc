"""The permit for the first ID of one producer, which is counted as long as the producer has it, and no longer.

A signal handler may raise at any place. So the guard notes each permit in `_asked` before it counts it. One that was
counted, and that nobody took, is the answer to the next ask(); one that came beside it goes back. What is done twice
changes nothing.
"""

from __future__ import annotations

from safeproducer.producer_ids.guard import Guard
from safeproducer.producer_ids.permit import Answer, Permit, Request

_OPEN, _ENDING, _NOTED = range(3)
"""How far end() has come."""


class OwnPermit:
    """Any thread, and signal handlers. `permit`: what the producer writes with."""

    permit: Permit | None = None
    _producer_id: int | None = None
    _end = _OPEN
    _unsent = False
    # Defaults of the class: each constructor pays for what it sets.

    def __init__(self, guard: Guard, request: Request) -> None:
        self._guard = guard
        self._asked = [] if request.asked is None else request.asked
        self._request = request if request.asked is self._asked else request._replace(asked=self._asked)

    def ask(self) -> Answer:
        """What the guard answers. A permit is the producer's from then on, unless it has one or has ended."""
        answer = self._guard.ask(self._request)
        # One step: what follows a call, a handler may have come between.
        if self.permit is None and self._end == _OPEN:
            self.permit = answer.permit
        if answer.permit is not None and (len(self._asked) > 1 or self.permit is not answer.permit):
            self._give_back_others()
        return answer

    def note(self, producer_id: int) -> None:
        """It came of the permit. Only the first one counts."""
        if self._producer_id is None and self.permit is not None:
            self._producer_id = producer_id
            self._guard.note(self.permit, producer_id)

    def end(self, how: str, unsent: bool) -> None:
        """The producer ends: `how` as in Guard.note(). `unsent`: nothing was sent, certainly. The first call counts."""
        if self._end == _NOTED:
            return
        self._unsent = self._unsent or (unsent and self._end == _OPEN)
        self._end = _ENDING
        self._give_back_others()
        if self.permit is not None:
            self._guard.note(self.permit, self._producer_id, how)
            if self._unsent:
                self._guard.give_back(self.permit)
                self.permit = None
        self._end = _NOTED  # not before: a signal handler may raise there, and close() comes again

    def _give_back_others(self) -> None:
        """Two threads have asked, or the producer was closed meanwhile."""
        for permit in tuple(self._asked):
            if permit is not self.permit:
                self._guard.give_back(permit)
