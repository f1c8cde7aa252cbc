"""When the sender of an idle producer may sleep longer: its turns were half of what an idle producer cost.

After a rest the first record of each partition goes alone (FirstRecords). How long a leader remembers is not known well
enough to wait for that: its clock differs, timestamps may be old, and nobody was asked in the first minute.
"""

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
_RESTS_AFTER = LONGEST_SLEEP
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
    _since: float = 0.0
    """When `_accepted` was seen to have grown last."""
    _until: float = 0.0
    _longest: float = LONGEST_SLEEP

    def begin(self, now: float, due: float) -> float:
        """A whole turn found the next thing to do at `due`, beside looks at the lanes; until when to sleep."""
        direct = self._updates.holds.direct
        waits = direct is not None and direct.first_records.waits
        if due < NEVER or not ((self._route.goes_direct or waits) and self._is_quiet):
            self._longest, self._until = LONGEST_SLEEP, 0.0
            return min(due, self._dispatcher.lanes.next_look(now), now + LONGEST_SLEEP)
        if (accepted := self._counters.accepted) != self._accepted:
            self._accepted, self._since = accepted, now
        timeout, rested = self._delivery.timeout, now >= self._since + _RESTS_AFTER
        if rested and not waits and direct is not None and self._delivery.waits_for_id:
            direct.rest()
            self._route.leave()
        idle = rested and (timeout is None or timeout >= _RESTS_WITH)
        self._longest = LONGEST_REST if idle else LONGEST_SLEEP
        self._until = now + (_TURN_EVERY if idle else LONGEST_REST if rested else LONGEST_SLEEP)
        return now + self._longest

    @property
    def _is_quiet(self) -> bool:
        """Whether nothing that was accepted is on its way, and nothing here waits for an answer."""
        holds = self._updates.holds
        direct = holds.direct
        waits = direct is not None and direct.backlogs.earliest() is not None
        starts = holds.starting and not (direct is not None and direct.first_records.waits)
        return not (waits or starts) and self._dispatcher.lanes.idle

    def goes_on(self, now: float) -> float | None:
        """Until when to sleep if nothing has come since; None when something has, or may have."""
        dispatcher = self._dispatcher
        if now >= self._until or len(self._client.native) or self._updates.changed or dispatcher.reports:
            return None
        news = self._updates.holds.cluster.throttle_is_new or dispatcher.intake.rechecks
        if news or dispatcher.schedule.alarm.at < NEVER or dispatcher.record_buffer.waiting:
            return None
        return now + self._longest
