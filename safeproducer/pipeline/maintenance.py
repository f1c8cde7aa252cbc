"""What the sender does, turn by turn. All of it runs on its thread."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from safeproducer import clock
from safeproducer.announcements import Announcements
from safeproducer.delivery import Delivery
from safeproducer.errors import FatalError
from safeproducer.kafka.lane_client import LaneClient
from safeproducer.pipeline.calls import NativeErrors
from safeproducer.pipeline.cluster.first_question import FirstQuestion
from safeproducer.pipeline.dispatch.direct_deadline import DirectDeadline
from safeproducer.pipeline.dispatch.dispatcher import Dispatcher
from safeproducer.pipeline.dispatch.holds import Holds
from safeproducer.pipeline.dispatch.updates import ClientUpdates
from safeproducer.pipeline.flush import CallbackRelease
from safeproducer.pipeline.process import stack
from safeproducer.pipeline.process.sender import get_ident
from safeproducer.pipeline.reports.delivery_counters import DeliveryCounters
from safeproducer.pipeline.reports.report_queue import ReportQueue
from safeproducer.pipeline.rest import Rest
from safeproducer.pipeline.route import Client, Route
from safeproducer.pipeline.serving import Serving
from safeproducer.policy.never import NEVER

_NOT_POLLING = 0.1
_AFTER_ERROR = 0.1
_ASKING = 0.01
"""Between two looks while a lane asks for its producer ID."""


@dataclass(eq=False, repr=False)
class Standby:
    """Takes the direct lane's reports while the application does not poll.

    `limit`: bytes of the buffer, None when that has no limit.
    """

    _client: Client
    _route: Route
    _dispatcher: Dispatcher
    _report_queue: ReportQueue
    _limit: int | None

    @stack.calls_natively
    def serve(self) -> None:
        """Queue them, so that the lane has room, and until half of ours is used up."""
        if self._dispatcher.alone or not len(self._client.native):
            return
        if self._limit is not None and self._report_queue.bytes > self._limit / 2:
            return
        self._route.leave()  # its room is not the producer's any more
        self._report_queue.serve_on(get_ident())
        try:
            if not self._client.busy:
                self._client.native.poll(0)
        finally:
            self._report_queue.serve_on(0)


@dataclass(eq=False, repr=False)
class LaneUpkeep:
    """Makes the batch lanes that are wanted, and retires those that are not."""

    _client: Client
    _dispatcher: Dispatcher
    _announcements: Announcements
    _updates: ClientUpdates

    def resize(self, now: float) -> None:
        """Make the lanes that are wanted, release those that are not."""
        lanes = self._dispatcher.lanes
        if self._updates.holds.gate.hold is not None:
            return  # each lane would ask for an ID of its own
        self._grow()
        if (spare := lanes.spare(now)) is None or not self._dispatcher.release(spare):
            return
        why = "it was not needed any more" if (failed := spare.client.failed) is None else f"one failed: {failed.str()}"
        why = "its producer ID would be beyond the limit" if spare.permit.denied else why
        self._announcements.lanes(len(lanes) + 1, len(lanes), why)
        if spare.client.native is not self._client.native:
            spare.client.close()
            return
        # Not closed: another thread may be inside a call of it. The last one that refers to it destroys it.
        self._grow()
        if lanes.first is not None:
            self._client.replace(lanes.first.client.native)

    def _grow(self) -> None:
        lanes = self._dispatcher.lanes
        before = len(lanes)
        if lanes.grow():
            self._updates.failures.many_lanes = True
            self._announcements.lanes(before, len(lanes), "batches were ready and waited only for a lane")

    def look_for_splits(self) -> None:
        """Whether librdkafka cut batches that were to be one request each."""
        statistics = self._updates.take_batch_statistics()
        if statistics is not None and (found := self._dispatcher.lanes.observe(statistics)):
            self._announcements.split(found)


@dataclass(eq=False, repr=False)
class Control:
    """Acts on what the client told: which way records go, and whether they go at all."""

    _delivery: Delivery
    _client: Client
    _route: Route
    _dispatcher: Dispatcher
    _updates: ClientUpdates
    _counters: DeliveryCounters
    _lanes: LaneUpkeep
    _direct_deadline: DirectDeadline | None
    _first_question: FirstQuestion

    def act(self, now: float) -> None:
        """Hold, hand over, time out, go directly again."""
        dispatcher, updates, holds = self._dispatcher, self._updates, self._updates.holds
        updates.read_arrived()
        waiting = dispatcher.record_buffer.known
        gate = holds.gate
        if gate.hold is not None and waiting and (gate.look(now) or gate.is_too_late(self._delivery.timeout, now)):
            dispatcher.recheck(now)  # it is time to ask again, or what waits fails
        updates.catch_up(waiting)
        changed = self._starts(now)
        changed = holds.round_trip.has_high_rate(waiting, now) or changed
        if updates.take_changed() or changed:
            self._look_again(now)
        elif dispatcher.intake.rechecks or holds.cluster.throttle_changed():
            dispatcher.recheck(now)
        if dispatcher.schedule.alarm.rings(now) or dispatcher.lanes.completed:
            dispatcher.pump(now)
        if self._delivery.mode == "held":
            return
        if self._direct_deadline is not None and self._delivery.owns_timeout:
            self._direct_deadline.act(now, self._route.hold, self._client.native.purge)
        # Reports that wait here take room that the native producer does not know of.
        reason = holds.any(now) or dispatcher.intake.rechecks or dispatcher.reports
        self._route.choose(not reason and dispatcher.empty)

    def _starts(self, now: float) -> bool:
        """Whether the slow start or the paced start lets more go, or less."""
        holds, native = self._updates.holds, self._client.native
        if not holds.starting:
            return False
        resolved = self._counters.resolved + self._dispatcher.reports.count if holds.slow_start else 0
        return holds.start(resolved, len(native), self._first_question.open, self._dispatcher.lanes.acquired, now)

    def _look_again(self, now: float) -> None:
        holds, dispatcher = self._updates.holds, self._dispatcher
        holds.round_trip.measure(now)
        self._lanes.look_for_splits()
        waits = holds.gate.hold is not None or any(map(holds.waited_for_id, dispatcher.record_buffer.all))
        if holds.round_trip.long and not waits:
            dispatcher.lanes.prepare()
        if not holds.slow_start:
            dispatcher.intake.release_reports()
        dispatcher.recheck(now)


@dataclass(eq=False, repr=False)
class Maintenance:
    """What the sender works for. Its own exceptions end no turn but the one they come in."""

    _client: Client
    _dispatcher: Dispatcher
    _serving: Serving
    _standby: Standby
    _lanes: LaneUpkeep
    _control: Control
    _release: CallbackRelease
    _first_question: FirstQuestion
    _errors: NativeErrors
    _announcements: Announcements
    _holds: Holds
    _rest: Rest
    _told: set[str] = field(default_factory=set)

    def turn(self, now: float) -> float:
        """Do what is due, serve when the application does not; when to come again."""
        if not self._client.usable:
            return NEVER
        try:
            until = self._rest.goes_on(now)
            return self._rest.begin(now, self._turn(now)) if until is None else until
        except:  # noqa: E722 - as in Calls.attempt()
            raised: Any = sys.exc_info()[1]
            error = self._errors.instead_of(raised)
        if self._client.state in ("closed", "forked"):  # in the middle of it
            return NEVER
        if isinstance(error, FatalError):
            # For the application's next poll().
            self._dispatcher.reports.add_event(self._errors.tell_fatal, error, None)
        elif (kind := f"{type(error).__name__}: {error}") not in self._told:
            self._told.add(kind)
            self._announcements.turn_failed(error)
        return now + _AFTER_ERROR

    def near(self, now: float) -> tuple[LaneClient, float] | None:
        """The lane whose answer may come at any moment, and how long to wait for it."""
        return self._dispatcher.lanes.near(now) if self._client.usable else None

    def _turn(self, now: float) -> float:
        dispatcher = self._dispatcher
        topic = dispatcher.intake.any_topic
        again = self._first_question.look(topic, now) if self._holds.slow_start else NEVER
        self._lanes.resize(now)
        if topic is not None and dispatcher.lanes.ask_for_ids(topic, now):
            again = min(again, now + _ASKING)
        dispatcher.find_unrung(now)
        dispatcher.serve()
        polling = self._serving.is_polling(now)
        if not polling:
            self._standby.serve()
        now = clock.monotonic()
        dispatcher.expiry.guard.look(now)
        self._control.act(now)
        self._release.when_idle(now)
        due = min(again, dispatcher.schedule.alarm.at)
        if self._expects or (dispatcher.alone and not polling):
            return min(due, now + _NOT_POLLING)
        return due

    @property
    def _expects(self) -> bool:
        """Whether a report or an event may come; to count them, as `queued` does, takes long with many lanes."""
        dispatcher = self._dispatcher
        waits = dispatcher.record_buffer.busy or dispatcher.reports
        return bool(waits or (not dispatcher.alone and len(self._client.native)))
