"""When lanes are emptied: before librdkafka's own time-out, and before a leader forgets the producer ID (KIP-854).

librdkafka's time-out would start a new epoch for the whole lane, and write batches of other partitions twice whose
answers were lost. A retry after the leader has forgotten the ID is written twice, too, and reported as delivered. In
both cases the lane gets nothing for a while before, so that what is healthy gets out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from safeproducer.kafka.native import KafkaError
from safeproducer.pipeline.buffer.in_flight_batch import InFlightBatch
from safeproducer.pipeline.cluster.horizons import Horizons
from safeproducer.pipeline.cluster.round_trip import RoundTrip
from safeproducer.pipeline.lanes.batch_lane import BatchLane
from safeproducer.pipeline.notifications import Notifications
from safeproducer.pipeline.record import ACCEPTED_AT, TIMESTAMP
from safeproducer.pipeline.reports.failures import Failures
from safeproducer.pipeline.schedule import Schedule
from safeproducer.policy.backlog import Backlogs
from safeproducer.policy.expiry import BACKSTOP_MARGIN, LEAST_LIMIT, purge_at
from safeproducer.policy.types import NEVER
from safeproducer.runtime import clock
from safeproducer.settings.delivery import Delivery

_PATIENCE = 0.01
"""How soon to look again when nothing tells of the change that is waited for."""
_LOOK_EVERY = 0.1
"""Much less than any lane is closed before it is purged; to look at each batch in each turn would be felt."""
TIMEOUT = "message.timeout.ms"
_STALLED_WITH = "Local: Message timed out: it was purged with records that no broker answered"

ReportExpired = Callable[[InFlightBatch, float, float, int, str], None]


class Purge(NamedTuple):
    """The lane takes nothing from `closes` on, and is purged `at` a time, because nothing was answered `within`."""

    at: float
    closes: float
    within: str


@dataclass(eq=False)
class RetryGuard:
    """The sender's thread calls."""

    _delivery: Delivery
    horizons: Horizons
    _round_trip: RoundTrip
    _lanes: Iterable[BatchLane]
    _schedule: Schedule
    _failures: Failures
    _announcements: Notifications
    _look_at: float = 0.0

    @property
    def _age(self) -> float | None:
        """Of what may not be sent again; None while that is not known, and where nobody cares."""
        horizon = self.horizons.current
        watched = self._delivery.idempotent and not self._delivery.transactional
        return horizon.limit if horizon is not None and watched else None

    @property
    def limit(self) -> float | None:
        """The age at which what has no acknowledgement is purged; None where that is never."""
        guards = self._delivery.own.expiry == "guard" and self._delivery.owns_timeout
        return self._age if guards else None

    def look(self, now: float) -> None:
        """In each turn: learn, and see to it that lanes are purged in time."""
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_EVERY
        self.horizons.look(now)
        age, guards, horizon = self._age, self.limit is not None, self.horizons.current
        if age is None or horizon is None:
            return
        if not guards:
            self._failures.retries_beyond(age)
        due = min([self._due(batch, age) for lane in self._lanes for batch in lane.batches.copy()], default=NEVER)
        if guards and due < NEVER:
            at = due - self._lead(age)
            self._schedule.deadline.ask(at)
            self._schedule.alarm.ask(at)
        elif due <= now:
            self._tell(age)

    def direct(self, backlogs: Backlogs, now: float) -> Purge | None:
        """When the direct lane is emptied; None when nothing in it waits for an acknowledgement."""
        if (earliest := backlogs.earliest()) is None:
            return None
        rules = []
        if (timeout := self._delivery.timeout) is not None:
            rules.append(Purge(earliest + timeout, earliest + timeout - self._lead(timeout), TIMEOUT))
        if (age := self._age) is not None:
            at, within, old = earliest + age, age, self.horizons.timestamps
            if old or now >= at - self._lead(age):  # to look at each partition takes longer
                at = backlogs.purge_at(age, old.oldest)
                within = LEAST_LIMIT if at < earliest + age else age
            if self.limit is not None:
                rules.append(Purge(at, at - self._lead(within), self._within(within)))
            elif at <= now:
                self._tell(age)
        return min(rules, default=None)

    def purge(self, lane: BatchLane, now: float, report: ReportExpired) -> float:
        """Purge a batch lane if it is time; when to look again."""
        batches = lane.batches.copy()
        stalled, forgotten = self._stalled(batches), self._forgotten(batches)
        closes = min(stalled.closes, forgotten.closes)
        lane.quarantined = closes <= now
        if not lane.quarantined:
            return closes
        over = stalled.closes <= now and all(batch.stalled for batch in batches)
        if now < min(stalled.at, forgotten.at) and not over:
            return min(stalled.at, forgotten.at, now + _PATIENCE)
        why = _STALLED_WITH if forgotten.at > now else reason(forgotten.within)
        for batch in batches:
            report(batch, now, -NEVER, KafkaError._MSG_TIMED_OUT, why)
        lane.purge()
        return now + _PATIENCE

    def _stalled(self, batches: list[InFlightBatch]) -> Purge:
        limit = self._delivery.stalled_after
        at = NEVER if limit is None else min([batch.at for batch in batches], default=NEVER) + limit
        return Purge(at + BACKSTOP_MARGIN / 2, at, TIMEOUT)

    def _forgotten(self, batches: list[InFlightBatch]) -> Purge:
        if (limit := self.limit) is None:
            return Purge(NEVER, NEVER, "")
        at, handed = min([(self._due(batch, limit), batch.at) for batch in batches], default=(NEVER, 0.0))
        within = min(limit, at - handed)
        return Purge(at, at - self._lead(within), self._within(within))

    def _due(self, batch: InFlightBatch, limit: float) -> float:
        """When a batch without an acknowledgement must not be sent again."""
        if not batch.records:
            return purge_at(batch.at, batch.at, limit)
        newest, stamped = batch.records[-1], NEVER
        if self.horizons.timestamps and self.horizons.timestamps.keeps(batch.tp[0]):
            stamped = clock.monotonic() - clock.time() + newest[TIMESTAMP] / 1000
        return purge_at(batch.at, newest[ACCEPTED_AT], limit, stamped)

    def _lead(self, timeout: float) -> float:
        """For how long the lane gets nothing before it is purged."""
        return min(timeout / 4, max(0.25, 3 * self._round_trip.ack_time))

    def _within(self, limit: float) -> str:
        horizon = self.horizons.current
        known = "" if horizon is None else f" of {horizon.seconds * 1000:.0f}"
        return (
            f"{limit:g} s, and its leader forgets this producer after producer.id.expiration.ms{known} "
            f"(KIP-854, safeproducer.expiry=guard)"
        )

    def _tell(self, age: float) -> None:
        horizon = self.horizons.current
        seconds = age if horizon is None else horizon.seconds
        self._announcements.once(
            "possibly twice",
            f"records have had no acknowledgement for {age:g} s, and a leader forgets this producer after {seconds:g} "
            f"s: a retry after that is written twice, and yet reported as delivered, so these records are possibly "
            f"twice in the log (KIP-854). safeproducer.expiry=guard gives them up before",
        )


def reason(within: str) -> str:
    """As librdkafka words it."""
    return f"Local: Message timed out: no broker answered within {within}"
