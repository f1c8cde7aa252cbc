"""When the sender of an idle producer may sleep longer: its turns were half of what an idle producer cost."""

from __future__ import annotations

from dataclasses import dataclass

from safeproducer.delivery import Delivery
from safeproducer.pipeline.dispatch.dispatcher import Dispatcher
from safeproducer.pipeline.dispatch.updates import ClientUpdates
from safeproducer.pipeline.process.sender import LONGEST_REST, LONGEST_SLEEP
from safeproducer.pipeline.reports.delivery_counters import DeliveryCounters
from safeproducer.pipeline.route import Client, Route
from safeproducer.policy.never import NEVER

_TURN_EVERY = 5.0
"""Seconds from one whole turn of an idle producer to the next: what comes by time alone is noticed by then."""
_RESTS_WITH = 8 * LONGEST_REST
"""A shorter message.timeout.ms, in seconds, wants its records looked at oftener."""


@dataclass(eq=False, repr=False)
class Rest:
    """Skips turns that would find nothing, and makes sleeps longer. The sender's thread calls."""

    _delivery: Delivery
    _client: Client
    _route: Route
    _dispatcher: Dispatcher
    _updates: ClientUpdates
    _counters: DeliveryCounters
    _accepted: int = 0
    _until: float = 0.0
    _longest: float = LONGEST_SLEEP

    def begin(self, now: float, due: float) -> float:
        """A whole turn found the next thing to do at `due`, beside looks at the lanes; until when to sleep."""
        if due < NEVER or not (self._route.goes_direct and self._is_quiet):
            self._longest, self._until = LONGEST_SLEEP, 0.0
            return min(due, self._dispatcher.lanes.next_look(now), now + LONGEST_SLEEP)
        before, self._accepted = self._accepted, self._counters.accepted
        timeout = self._delivery.timeout
        idle = before == self._accepted and (timeout is None or timeout >= _RESTS_WITH)
        self._longest = LONGEST_REST if idle else LONGEST_SLEEP
        self._until = now + (_TURN_EVERY if idle else LONGEST_REST)
        return now + self._longest

    @property
    def _is_quiet(self) -> bool:
        """Whether nothing that was accepted is on its way, and nothing here waits for an answer."""
        holds = self._updates.holds
        waits = holds.direct is not None and holds.direct.backlogs.earliest() is not None
        return not (waits or holds.starting) and self._dispatcher.lanes.idle

    def goes_on(self, now: float) -> float | None:
        """Until when to sleep if nothing has come since; None when something has, or may have."""
        dispatcher = self._dispatcher
        if now >= self._until or len(self._client.native) or self._updates.changed or dispatcher.reports:
            return None
        news = self._updates.holds.cluster.throttle_is_new or dispatcher.intake.rechecks
        if news or dispatcher.schedule.alarm.at < NEVER or dispatcher.record_buffer.waiting:
            return None
        return now + self._longest
