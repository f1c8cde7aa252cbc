"""The direct lane's native producer is replaced when it failed. All of it runs on the sender's thread.

It is replaced when it is empty. Until then its records end, partitions leave for the batch lanes if there are any, and
the rest waits. Reports of what librdkafka purged are told once statistics show which records were in no request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from safeproducer.kafka.lane_client import PURGE_EVERY
from safeproducer.kafka.native import KafkaError, KafkaException, Message
from safeproducer.kafka.statistics import Statistics, repaired
from safeproducer.pipeline.cluster.metadata import FirstQuestion
from safeproducer.pipeline.cluster.outdated_leaders import DIRECT_LANE
from safeproducer.pipeline.dispatch.direct_lane_expiry import DirectDeadline
from safeproducer.pipeline.dispatch.dispatcher import Dispatcher
from safeproducer.pipeline.dispatch.updates import ClientUpdates
from safeproducer.pipeline.lanes.direct_lane import DirectLane, DirectLaneCounts
from safeproducer.pipeline.lanes.native_producers import NativeProducers
from safeproducer.pipeline.lanes.renewing import USED_UP, Failure
from safeproducer.pipeline.reports.counters import DeliveryCounters
from safeproducer.pipeline.reports.delivery_errors import FAILED
from safeproducer.pipeline.route import Route
from safeproducer.policy.decision import PATIENCE
from safeproducer.policy.outcome import Outcome
from safeproducer.policy.types import TopicPartition

_TOLD_WITHIN = 1.0
"""Seconds after which purged records are told as unknown: what is inside was not seen to be all in flight."""
_INSIDE = 2.0
"""Seconds for which a thread may be inside a native producer that failed: its statistics end any wait."""


class Former:
    """A native producer of the direct lane failed: what it purged until `purged_at` is to be told.

    `count`: how many reports wait for that, the oldest ones; None while it is not replaced, and all of them do. It
    refers to no native producer, which calls it.
    """

    def __init__(self, lane: DirectLane, reads: Callable[[str], Statistics | None], at: float) -> None:
        self.lane = lane
        self.purged_at = self.told_at = at
        self.left_at: float | None = None
        self.count: int | None = None
        self.found: Statistics | None = None
        self._reads = reads
        self._proves = True

    def leave(self, count: int, now: float) -> None:
        """Another one has taken its place, and so many reports wait."""
        self.count, self.left_at = count, now

    def is_told(self) -> bool:
        """The reports that waited are told; whether that is all."""
        self.count = None if self.count is None else 0
        return self.count is not None

    def statistics(self, text: str) -> None:
        """The native producer tells, once another one has taken its place."""
        self.hear(self._reads(text) or self.found)

    def hear(self, found: Statistics | None) -> None:
        """The same before."""
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
        return self.lane.given.unsent.counts(found, failed_at) if proves else {}


@dataclass(eq=False)
class DirectRenewal:
    """While the direct lane works there is nothing to do."""

    _route: Route
    _dispatcher: Dispatcher
    _updates: ClientUpdates
    _counters: DeliveryCounters
    _natives: NativeProducers
    _deadline: DirectDeadline
    _first: FirstQuestion
    _former: deque[tuple[Any, Former]] = field(default_factory=deque)
    _purge_at: float = 0.0

    def act(self, now: float) -> bool:
        """Whether the direct lane failed."""
        if self._former:
            self._look_after(now)
        direct = self._updates.holds.direct
        if direct is None or (failure := direct.failure) is None:
            return False
        if not self._former or self._former[-1][1].lane is not direct:
            self._begin(direct, failure, now)
        native, former = self._former[-1]
        if failure.error is not USED_UP and now >= self._purge_at:
            # librdkafka has purged its queue. What a lost connection brings back would wait for ever.
            self._purge_at = now + PURGE_EVERY
            guard = self._dispatcher.expiry.guard
            due = guard.direct(direct.backlogs, now)
            native.purge(in_queue=True, in_flight=due is not None and due.at <= now, blocking=False)
        if not (len(native) or (self._fails and self._counters.report_queue.deferred)):
            self._replace(former, failure, now)
        self._dispatcher.schedule.alarm.ask(now + PATIENCE)
        return True

    @property
    def _fails(self) -> bool:
        """Whether what waits behind a record of unknown outcome is not sent."""
        return self._natives.settings.delivery.fails_behind

    def _begin(self, direct: DirectLane, failure: Failure, now: float) -> None:
        reads = partial(_read, self._updates.read, self._natives.settings.client_id)
        self._former.append((self._route.native, Former(direct, reads, now)))
        if not self._deadline.end():
            direct.purging(now)
        self._route.hold()
        self._dispatcher.recheck(now)

    def _replace(self, former: Former, failure: Failure, now: float) -> None:
        """Its last report was served: another native producer takes its place, if one may come now."""
        lanes, counters, holds = self._dispatcher.lanes, self._counters, self._updates.holds
        made = lanes.renew(self._natives.another, failure)
        if lanes.renewing.end is not None:
            raise KafkaException(lanes.renewing.end)
        if made is None:
            return
        former.leave(len(counters.report_queue.deferred), now)
        counters.report_queue.defer(False)
        self._natives.leave(self._former[-1][0], former.statistics)
        holds.cluster.statistics.pop(DIRECT_LANE, None)
        holds.renew(former.lane.renewed(DirectLaneCounts.begun_anew(counters, now)))
        self._dispatcher.record_buffer.renew_direct(made[0])
        self._route.replace(made[0])
        self._first.again()
        lanes.renewing.replaced(failure)
        if not former.count:
            failure.end()
        lanes.renewing.settle(failure)
        self._dispatcher.recheck(now)

    def _look_after(self, now: float) -> None:
        """Tell what became of the records of the oldest one; drop it when no thread can be inside any more."""
        native, former = self._former[0]
        deferred, failures = self._counters.report_queue.deferred, self._updates.failures
        if former.count is None:
            former.hear(self._updates.holds.cluster.statistics.get(DIRECT_LANE))
        elif former.count:
            native.poll(0)
        count = len(deferred) if former.count is None else former.count
        if count:
            failed_at = max(failures.failed_at, self._counters.report_queue.failed_at)
            if (never_sent := former.never_sent(failed_at, now)) is None:
                self._dispatcher.schedule.alarm.ask(now + PATIENCE)
                return
            told = list(failures.expired(list(islice(deferred, count)), never_sent, FAILED))
            self._counters.report_queue.tell(told)
            self._note(former, told)
            self._dispatcher.schedule.hurry()
        if former.left_at is not None and now > former.left_at + _INSIDE:
            self._former.popleft()
            self._natives.forget(native)

    def _note(self, former: Former, told: list[tuple[Any, KafkaError, Message]]) -> None:
        failure = former.lane.failure
        unknown = [message for _, error, message in told if getattr(error, "outcome", None) is Outcome.UNKNOWN]
        for message in unknown if self._fails else ():
            tp: Any = message.topic(), message.partition()
            self._dispatcher.expiry.give_up(tp, {message.key()})
        if failure is not None:
            failure.count(len(unknown), len(told) - len(unknown))
            if former.is_told():
                failure.end()
                self._dispatcher.lanes.renewing.settle(failure)


def _read(reads: Callable[[str], Statistics | None], client_id: str, text: str) -> Statistics | None:
    return reads(repaired(text, client_id))
