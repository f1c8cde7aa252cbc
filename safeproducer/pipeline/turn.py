"""The turns of the sender. All of it runs on its thread."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import partial

from safeproducer.errors import RENEWED, FatalError
from safeproducer.kafka.native import KafkaException
from safeproducer.pipeline.calls import Calls
from safeproducer.pipeline.cluster.metadata import Metadata
from safeproducer.pipeline.cluster.replication import Replication
from safeproducer.pipeline.dispatch.dispatcher import Dispatcher
from safeproducer.pipeline.dispatch.updates import ClientUpdates
from safeproducer.pipeline.notifications import Notifications
from safeproducer.pipeline.polling import Serving
from safeproducer.pipeline.renewal import DirectRenewal
from safeproducer.pipeline.route import Route
from safeproducer.pipeline.sender import LONGEST_IDLE_SLEEP, LONGEST_SLEEP
from safeproducer.policy import diagnosis
from safeproducer.policy.decision import Wish
from safeproducer.policy.expiry import rest
from safeproducer.policy.types import NEVER
from safeproducer.runtime import clock

_NOT_POLLING = 0.1
_AFTER_ERROR = 0.1
_LOGGED_AFTER = 2.0  # seconds: what is told when somebody asks may be over sooner
_ASKING = 0.01  # between two looks while a lane asks for its producer ID
_MAKES_ROOM = 0.01  # between two looks while somebody waits for room, which any thread that serves may make
_TURN_EVERY = 5.0  # seconds between whole turns of an idle producer: what comes by time alone is noticed by then
_RESTS_AFTER = LONGEST_SLEEP
_RESTS_WITH = 8 * LONGEST_IDLE_SLEEP  # a shorter message.timeout.ms, in seconds, wants its records looked at oftener


@dataclass(eq=False, repr=False)
class Turns:
    """The work of the sender. Its own exceptions end no turn but the one they come in.

    It acts on what the client told: which way records go, whether they go at all, and how many lanes there are. It also
    says when the sender of an idle producer may sleep longer: its turns were half of what an idle producer cost. After
    a rest in which leaders may have forgotten the producer, first batches are on probation again.
    """

    _route: Route
    _dispatcher: Dispatcher
    _updates: ClientUpdates
    _serving: Serving
    _calls: Calls
    _metadata: Metadata
    _replication: Replication
    _renewal: DirectRenewal | None
    _told: set[str] = field(default_factory=set)
    _accepted: int = 0
    _accepted_at: float = 0.0  # when `_accepted` was seen to have grown last
    _next_turn: float = 0.0
    _causes: frozenset[object] = frozenset()  # causes that were logged and go on
    _longest: float = LONGEST_SLEEP

    @property
    def _notifications(self) -> Notifications:
        return self._calls.events.notifications

    def turn(self, now: float) -> float:
        """Do what is due, serve when the application does not; when to come again."""
        if not self._route.usable:
            return NEVER
        try:
            until = self._sleeps_on(now)
            return self._sleep_until(now, self._turn(now)) if until is None else until
        except:  # noqa: E722 - as in Calls.attempt()
            error = self._calls.instead_of(sys.exc_info()[1])
        if self._route.state in ("closed", "forked"):  # in the middle of it
            return NEVER
        if isinstance(error, FatalError):
            # For the application's next poll().
            self._dispatcher.reports.add_event(self._calls.tell_fatal, error, None)
        elif error is not RENEWED and (kind := f"{type(error).__name__}: {error}") not in self._told:
            self._told.add(kind)
            self._notifications.turn_failed(error)
        return now + _AFTER_ERROR

    def _turn(self, now: float) -> float:
        # Before reports are served: what is needed to send is made and asked for.
        dispatcher, topic = self._dispatcher, self._dispatcher.intake.any_topic
        again = self._metadata.look(topic, now) if self._updates.holds.slow_start else NEVER
        self._resize(now)
        if topic is not None and dispatcher.lanes.ask_for_ids(topic, now):
            again = min(again, now + _ASKING)
        dispatcher.find_unwoken(now)
        dispatcher.serve()
        self._updates.holds.served_at = now
        polling = self._serving.is_polling(now)
        if not polling:
            self._serving.stand_by()
        now = clock.monotonic()
        dispatcher.expiry.look(now)
        again = min(again, self._replication.look(now, dispatcher.record_buffer.silent))
        self._act(now)
        self._serving.release_when_idle(now)
        if dispatcher.record_buffer.room_wanted and dispatcher.record_buffer.tell_of_room():
            again = min(again, now + _MAKES_ROOM)
        due = min(again, dispatcher.schedule.alarm.at)
        # Whether a report or an event may come: to count them, as `queued` does, takes long with many lanes.
        waits = dispatcher.record_buffer.busy or dispatcher.reports
        if waits or (not polling if dispatcher.only_batch_lanes else len(self._route.native)):
            return min(due, now + _NOT_POLLING)
        return due

    # --- the path ----------------------------------------------------------------------------------------------------

    def _act(self, now: float) -> None:
        """Hold, hand over, time out, go directly again."""
        # A record that goes directly must not pass one that waits. So the way is chosen last, by what is left when
        # statistics were read and all that may go was handed over.
        dispatcher, updates, holds = self._dispatcher, self._updates, self._updates.holds
        updates.read_arrived()
        gate, buffer = holds.gate, dispatcher.record_buffer
        counts = gate.hold is not None or updates.skipped or holds.round_trip.long  # it takes long with many partitions
        waiting = sum([it.waiting for it in list(buffer.busy.values())]) if counts else 0
        if (
            gate.hold is not None
            and waiting
            and (gate.look(now) or gate.is_too_late(self._updates.delivery.timeout, now))
        ):
            dispatcher.recheck(now)  # it is time to ask again, or what waits fails
        updates.catch_up(waiting)
        first, acquired, native = self._metadata.first, dispatcher.lanes.acquired, self._route.native
        changed = holds.starting and holds.look(first, acquired, len(native), now)  # probation lets more go, or less
        changed = holds.round_trip.has_high_rate(waiting, now) or changed
        if updates.take_changed() or changed:
            self._recheck(now)
        elif dispatcher.intake.suspended or holds.throttles_anew():
            dispatcher.recheck(now)
        elif topics := updates.take_heard():
            dispatcher.recheck(now, topics)
        if dispatcher.schedule.alarm.rings(now) or dispatcher.lanes.completed:
            dispatcher.pump(now)
        renews = self._renewal is not None and self._renewal.act(now)
        if not renews and (wish := dispatcher.expiry.empty_direct(now)) is not None:
            looks = partial(dispatcher.recheck, now)
            {Wish.HOLD: self._route.hold, Wish.PURGE: self._route.native.purge, Wish.LOOK: looks}[wish]()
        # Reports that wait here take room that the native producer does not know of.
        waits = holds.any(now) or dispatcher.intake.suspended or bool(dispatcher.reports)
        self._route.choose(not waits and dispatcher.empty)

    def _recheck(self, now: float) -> None:
        holds, dispatcher = self._updates.holds, self._dispatcher
        self._tell(now)
        holds.round_trip.measure(now)
        statistics = self._updates.take_batch_statistics()
        if statistics is not None and (splits := dispatcher.lanes.observe(statistics)):
            self._notifications.split(splits)
        waiting = list(dispatcher.record_buffer.busy.values()) if holds.gate.opened_at else ()
        waits = holds.gate.hold is not None or any(map(holds.waited_for_id, waiting))
        renews = holds.direct is not None and holds.direct.failure is not None
        if holds.far and not (waits or renews):
            dispatcher.lanes.prepare()
        if not holds.slow_start:
            dispatcher.intake.release_reports()
        dispatcher.recheck(now)

    def _tell(self, now: float) -> None:
        """Log what leaders answer, and which callback others wait for, once while it is so."""
        cluster, blocked = self._updates.holds.cluster, self._serving.blocked(now)
        tried = [tp for tp in cluster.attempts.copy() if not cluster.partitions.missing_clause(tp[0])]
        losses = self._updates.failures.losses
        found = [cause for tp in tried for cause in cluster.sick(tp, now, losses.refused(tp))]
        found = [cause for cause in found if cause.code != "replication"]  # Replication warns
        found += [diagnosis.slow(node, *late) for node, late in cluster.slow(now).items()]
        found += [one for one in (blocked and blocked[0], cluster.coordinating(now)) if one is not None]
        lasts = [cause for cause in found if (cause.since or 0.0) >= _LOGGED_AFTER]
        told = {cause.clause if cause.what.kind == "partition" else cause.what: cause for cause in lasts}
        for each in told.keys() - self._causes:
            self._notifications.warn(cluster.addressed(f"{told[each].sentence}. {told[each].cure}"))
        self._causes = frozenset(told)

    # --- lanes --------------------------------------------------------------------------------------------------------

    def _resize(self, now: float) -> None:
        """Make the lanes that are wanted, release those that are not."""
        dispatcher, lanes = self._dispatcher, self._dispatcher.lanes
        if lanes.settled or self._updates.holds.gate.hold is not None:
            return  # with a gate that is closed each lane would ask for an ID of its own
        self._grow()
        if (spare := lanes.spare(now)) is None or not dispatcher.retire(spare):
            return
        why = "it was not needed any more" if (failed := spare.client.failed) is None else f"one failed: {failed.str()}"
        why = "its producer ID would be beyond the limit" if spare.permit.denied else why
        self._notifications.lanes(len(lanes) + 1, len(lanes), why)
        if not (dispatcher.only_batch_lanes and failed) and spare.client.native is not self._route.native:
            spare.client.close()
            return
        # Not closed: another thread may be inside a call of it. The last one that refers to it destroys it.
        self._grow()

    def _grow(self) -> None:
        lanes = self._dispatcher.lanes
        before = len(lanes)
        if lanes.grow():
            self._updates.failures.sent_by_many()
            why = "one failed" if lanes.renewing.began else "batches were ready and waited only for a lane"
            self._notifications.lanes(before, len(lanes), why)
        if lanes.renewing.end is not None:
            raise KafkaException(lanes.renewing.end)
        if self._dispatcher.only_batch_lanes and (first := lanes.first) is not None and not first.client.failed:
            self._route.replace(first.client.native)

    # --- sleep --------------------------------------------------------------------------------------------------------

    def _sleep_until(self, now: float, due: float) -> float:
        """Until when to sleep: at `due` there is something to do, beside looks at the lanes."""
        # Turns were half of what an idle producer cost. But who sleeps long notices late what comes without a ring: a
        # deadline, a leader that forgets the producer. So it sleeps long only while nothing is under way, and first
        # batches are on probation behind it.
        direct = self._updates.holds.direct
        waits = direct is not None and direct.probation.waits
        if due < NEVER or not ((self._route.goes_direct or waits) and self._is_quiet):
            self._longest, self._next_turn = LONGEST_SLEEP, 0.0
            return min(due, self._dispatcher.lanes.next_look(now), now + LONGEST_SLEEP)
        if (accepted := self._calls.counters.accepted) != self._accepted:
            self._accepted, self._accepted_at = accepted, now
        delivery, rested = self._updates.delivery, now >= self._accepted_at + _RESTS_AFTER
        known = self._dispatcher.expiry.expirations  # a leader may forget the producer, as it counts from timestamps
        rests_at = self._accepted_at + (_RESTS_AFTER if known.timestamps else rest(known.current))
        if now >= rests_at and not waits and direct is not None and delivery.waits_for_id:
            direct.rest()
            self._route.leave()
        idle = rested and (delivery.timeout is None or delivery.timeout >= _RESTS_WITH)
        self._longest = LONGEST_IDLE_SLEEP if idle else LONGEST_SLEEP
        self._next_turn = now + (_TURN_EVERY if idle else LONGEST_IDLE_SLEEP if rested else LONGEST_SLEEP)
        return now + self._longest

    @property
    def _is_quiet(self) -> bool:
        """Whether nothing that was accepted is on its way, and nothing here waits for an answer."""
        holds = self._updates.holds
        direct = holds.direct
        waits = direct is not None and direct.backlogs.earliest() is not None
        starts = holds.starting and not (direct is not None and direct.probation.waits)
        return not (waits or starts) and self._dispatcher.lanes.idle

    def _sleeps_on(self, now: float) -> float | None:
        """Until when to sleep if nothing has come since; None when something has, or may have."""
        dispatcher = self._dispatcher
        if now >= self._next_turn or len(self._route.native) or self._updates.changed or dispatcher.reports:
            return None
        news = self._updates.holds.throttles_anew() or dispatcher.intake.suspended
        if news or dispatcher.schedule.alarm.at < NEVER or dispatcher.record_buffer.waiting:
            return None
        return now + self._longest
