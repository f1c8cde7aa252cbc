"""The direct lane's native producer is replaced when it failed. All of it runs on the sender's thread.

It is replaced when it is empty. Until then its records end, partitions leave for the batch lanes if there are any, and
the rest waits. Reports of what librdkafka purged are told once statistics show which records were in no request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from safeproducer.kafka.lane_client import PURGE_EVERY
from safeproducer.kafka.native import KafkaException, NativeProducer
from safeproducer.kafka.statistics import Statistics, repaired
from safeproducer.pipeline.cluster.metadata import FirstQuestion
from safeproducer.pipeline.dispatch.dispatcher import Dispatcher
from safeproducer.pipeline.dispatch.hold_facts import HoldFacts
from safeproducer.pipeline.dispatch.updates import ClientUpdates
from safeproducer.pipeline.lanes.direct_lane import DirectLane, DirectLaneCounts
from safeproducer.pipeline.lanes.lane import USED_UP, LaneFailure
from safeproducer.pipeline.lanes.native_producers import NativeProducers
from safeproducer.pipeline.reports.counters import DeliveryCounters
from safeproducer.pipeline.reports.report_queue import Deferred
from safeproducer.pipeline.route import Route
from safeproducer.policy.decision import LOOK_AGAIN
from safeproducer.policy.outcome import Outcome
from safeproducer.policy.types import DIRECT_LANE, TopicPartition
from safeproducer.runtime import clock

_TOLD_WITHIN = 1.0  # seconds until purged records are told as unknown: not all inside was seen to be in flight
_INSIDE = 2.0  # seconds for which a thread may be inside a native producer that failed: its statistics end any wait


class Former:
    """A native producer of the direct lane failed: what it purged until `purged_at` is to be told.

    `left_at`: when another one took its place; what failed by then is of it, or of an earlier one. It refers to no
    native producer, which calls it.
    """

    def __init__(self, lane: DirectLane, reads: Callable[[str], Statistics | None], at: float) -> None:
        self.lane = lane
        self.purged_at = self.told_at = at
        self.left_at: float | None = None
        self.found: Statistics | None = None
        self._reads = reads
        self._proves = True

    def waiting(self, kept: Iterable[Deferred]) -> list[Deferred]:
        """The kept reports that are to be told with it."""
        left_at = self.left_at
        return list(kept if left_at is None else takewhile(lambda report: report.by <= left_at, kept))

    def statistics(self, text: str) -> None:
        """The native producer tells, once another one has taken its place."""
        self.hear(self._reads(text) or self.found)

    def hear(self, found: Statistics | None) -> None:
        self.found = found

    def never_sent(self, failed_at: float, now: float) -> Mapping[TopicPartition, int] | None:
        """How many of the last records of each partition were in no request; None while that is not known.

        Told once, by statistics that show all that is inside to be in flight: nothing is between a queue and a request
        then, and each record that was purged has its report.
        """
        found = self.found
        if found is None or found.at <= self.told_at:
            return None if self.left_at is None or now < self.left_at + _TOLD_WITHIN else {}
        all_in_flight = found.messages == sum(entry.in_flight for entry in found.partitions.values())
        if self._proves and not all_in_flight and found.at < self.purged_at + _TOLD_WITHIN:
            return None
        proves, self._proves, self.told_at = self._proves and all_in_flight, False, found.at
        return self.lane.counts.unsent.counts(found, failed_at) if proves else {}


def change(native: NativeProducer, route: Route, dispatcher: Dispatcher, holds: HoldFacts) -> None:
    """Let this one go on in place of the direct lane's native producer."""
    holds.cluster.statistics.pop(DIRECT_LANE, None)
    if holds.direct is not None:
        holds.renew(holds.direct.renewed(DirectLaneCounts(clock.monotonic())))
    dispatcher.record_buffer.replace_direct_native(native)
    route.replace(native)
    if route.goes_direct:
        route.go(direct=True)


@dataclass(eq=False)
class DirectRenewal:
    """While the direct lane works there is nothing to do."""

    _route: Route
    _dispatcher: Dispatcher
    _updates: ClientUpdates
    _counters: DeliveryCounters
    _natives: NativeProducers
    _first: FirstQuestion
    _former: deque[tuple[Any, Former]] = field(default_factory=deque)
    _purge_at: float = 0.0

    def act(self, now: float) -> bool:
        """Whether the direct lane failed."""
        untold = bool(self._former) and self._look_after(now)
        direct = self._updates.holds.direct
        failure = None if direct is None else direct.failure
        if direct is not None and failure is not None:
            self._go_on(direct, failure, now)
        if untold or failure is not None:
            self._dispatcher.schedule.alarm.ask(now + LOOK_AGAIN)
        return failure is not None

    def _go_on(self, direct: DirectLane, failure: LaneFailure, now: float) -> None:
        """Empty the failed one, until another one has taken its place."""
        if not self._former or self._former[-1][1].lane is not direct:
            read, client_id = self._updates.read, self._natives.settings.client_id
            former = Former(direct, lambda text: read(repaired(text, client_id)), now)
            self._former.append((self._route.native, former))
            direct.purging(now)
            self._route.hold()
            self._dispatcher.recheck(now)
        native, former = self._former[-1]
        if failure.error is not USED_UP and now >= self._purge_at:
            # librdkafka has purged its queue. What a lost connection brings back would wait for ever.
            self._purge_at = now + PURGE_EVERY
            due = self._dispatcher.expiry.direct_lane(direct.backlogs, now)
            native.purge(in_queue=True, in_flight=due is not None and due.at <= now, blocking=False)
        if not (len(native) or (self._updates.delivery.fails_behind and self._counters.report_queue.deferred)):
            self._replace(former, failure, now)

    def _replace(self, former: Former, failure: LaneFailure, now: float) -> None:
        """The last report was served: another native producer takes its place, if one may come now."""
        lanes, counters, holds = self._dispatcher.lanes, self._counters, self._updates.holds
        made = lanes.maker.renew(self._natives.another, failure)
        if lanes.renewing.end is not None:
            raise KafkaException(lanes.renewing.end)
        if made is None:
            return
        counters.report_queue.defer(False)
        former.left_at = now = clock.monotonic()
        self._natives.leave(self._former[-1][0], former.statistics)
        change(made[0], self._route, self._dispatcher, holds)
        self._first.again()
        lanes.renewing.replaced(failure)
        self._dispatcher.recheck(now)

    def _look_after(self, now: float) -> bool:
        """Tell of former producers' records, the oldest first; drop what no thread is in. Whether some are untold."""
        # Only statistics tell which records of a failed producer were in no request, and they may take a while. Reports
        # are to keep the order of records: those of the oldest producer come first, and younger ones wait for them.
        kept = self._counters.report_queue.deferred
        for native, former in self._former:
            reports = former.waiting(kept.copy())
            if former.left_at is None:
                former.hear(self._updates.holds.cluster.statistics.get(DIRECT_LANE))
            elif reports:
                native.poll(0)
            if reports and not self._tell(former, reports, now):
                return True
            failure = former.lane.failure
            if former.left_at is not None and failure is not None and not failure.ended:
                failure.end()
                self._dispatcher.lanes.renewing.settle(failure)
        native, former = self._former[0]
        if former.left_at is not None and now > former.left_at + _INSIDE:
            self._former.popleft()
            self._natives.forget(native)
        return False

    def _tell(self, former: Former, reports: list[Deferred], now: float) -> bool:
        """Whether it is known what is to be told."""
        failures, queue, failure = self._updates.failures, self._counters.report_queue, former.lane.failure
        if (never_sent := former.never_sent(max(failures.failed_at, queue.failed_at), now)) is None:
            return False
        told = list(failures.expired(reports, never_sent, USED_UP if failure is None else failure.error))
        queue.tell(told)
        unknown = [message for _, error, message in told if getattr(error, "outcome", None) is Outcome.UNKNOWN]
        for message in unknown if self._updates.delivery.fails_behind else ():
            tp: Any = message.topic(), message.partition()
            self._dispatcher.expiry.give_up(tp, {message.key()})
        if failure is not None:
            failure.count(len(unknown), len(told) - len(unknown))
        self._dispatcher.schedule.hurry()
        return True
