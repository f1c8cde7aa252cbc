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
        holds, timeout, lanes = self._updates.holds, self._delivery.timeout, self._dispatcher.lanes
        waits = holds.starting or (holds.direct is not None and holds.direct.backlogs.earliest() is not None)
        quiet = due == NEVER and self._route.goes_direct and not waits and lanes.idle
        if not quiet:
            due = min(due, lanes.next_look(now))
        before, self._accepted = self._accepted, self._counters.accepted
        idle = quiet and before == self._accepted and (timeout is None or timeout >= _RESTS_WITH)
        self._longest = LONGEST_REST if idle else LONGEST_SLEEP
        self._until = now + LONGEST_REST if quiet else 0.0
        return min(due, now + self._longest)

    def goes_on(self, now: float) -> float | None:
        """Until when to sleep if nothing has come since; None when something has, or may have."""
        dispatcher = self._dispatcher
        if now >= self._until or len(self._client.native) or self._updates.changed or dispatcher.reports:
            return None
        news = self._updates.holds.cluster.throttle_is_new or dispatcher.intake.rechecks
        if news or dispatcher.schedule.alarm.at < NEVER or dispatcher.record_buffer.waiting:
            return None
        return now + self._longest
