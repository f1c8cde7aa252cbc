"""What the native clients tell, turned into knowledge: throttle times, statistics, identity."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from safeproducer.config import Settings
from safeproducer.kafka.librdkafka_clock import LibrdkafkaClock
from safeproducer.kafka.statistics import Statistics, read
from safeproducer.pipeline import throttles
from safeproducer.pipeline.cluster_view import ClusterView
from safeproducer.pipeline.delivery_counters import BatchCount, DeliveryCounters
from safeproducer.pipeline.failures import Failures
from safeproducer.pipeline.holds import Holds
from safeproducer.pipeline.outdated_leaders import DIRECT
from safeproducer.pipeline.round_trip import RoundTrip
from safeproducer.pipeline.windows import Windows
from safeproducer.policy.never import NEVER
from safeproducer.policy.topic_partition import TopicPartition

_NONE = BatchCount()
_KEPT = 16
"""Statistics that wait to be read: later ones say more."""
_STALLED_AFTER = 1.5
_STALLED_SHARE = 1 / 3
"""A record in the direct lane that is older than this share of its time: its partition takes no more."""
_BATCH_LANE = 0
_IDLE_AFTER = 3
"""Statistics of an idle producer that are read before any is skipped."""
_IDLE_READS = 5000
"""Then it rests so many times longer than it takes to read them."""


class ClientUpdates:
    """Written by the sender's thread; throttle times and texts come from the threads that serve.

    `changed` asks the lane to look again; it holds no native producer.
    """

    def __init__(self, settings: Settings, failures: Failures, counters: DeliveryCounters) -> None:
        self._counters = counters
        self._delivery = settings.delivery
        self.cluster = ClusterView(settings.delivery, throttles.of(settings.cluster))
        self._round_trip = RoundTrip(settings.delivery, counters)
        self.holds = Holds(settings.delivery, self.cluster, self._round_trip)
        self.failures = failures
        self.changed = False
        self.windows: Windows | None = None
        self.hold: Callable[[], object] = bool
        """Called as soon as a throttle time is known: a callback served next may produce."""
        self.statistics_now: Statistics | None = None
        self._empty: Statistics | None = None
        self._empty_batches: Mapping[TopicPartition, BatchCount] = {}
        self._before_purge: Statistics | None = None
        self._batches_in_purge: dict[TopicPartition, int] = {}
        self._arrived: deque[tuple[Callable[[str], None], str]] = deque(maxlen=_KEPT)
        self.observed_at = 0.0
        self.batch_statistics_now: Statistics | None = None
        self._unseen = False
        self._batch_statistics_seen: Statistics | None = None
        self._skipped: tuple[Callable[[str], None], str] | None = None
        self._idle = 0
        self._accepted = 0
        self._read_until = self._reading = 0.0
        self._clock = LibrdkafkaClock()

    @property
    def delivered(self) -> int:
        """Records delivered so far."""
        return self._counters.totals()[1]

    def throttled(self, broker: int, name: str, seconds: float) -> bool:
        """Hold back what goes to this broker; whether that is to be told, once for each time that it throttles."""
        now = time.monotonic()
        first = self.cluster.announce(broker, seconds, now)
        if self._delivery.mode == "passthrough":
            return False
        if self._delivery.holds_back:
            self.changed = True
            self.hold()
        return first

    def heard_leaders(self, topic: str, lane: int, asked_at: float) -> None:
        """This lane has asked who leads the topic's partitions."""
        self.cluster.outdated.heard(topic, lane, asked_at)
        self.changed = True

    def look_again(self) -> None:
        """The sender is to, in its next turn. Any thread."""
        self.changed = True

    def answered_within(self, seconds: float | None) -> None:
        """The first question was answered, or nobody answers it."""
        if seconds is not None:
            self.holds.round_trip.guess(seconds)
        self.changed = True

    def _skips(self, again: Callable[[str], None], text: str) -> bool:
        """Whether statistics need not be read: nothing is produced, and it takes a while with many partitions."""
        now = time.monotonic()
        before, self._accepted = self._accepted, self._counters.accepted
        quiet = self._accepted == before and not self.cluster.throttled(now)
        if quiet and not self._idle:  # once nothing is under way, that can change only with what is accepted
            accepted, delivered, failed = self._counters.totals()
            quiet = accepted == delivered + failed
        self._idle = self._idle + 1 if quiet else 0
        if self._idle > _IDLE_AFTER and now < self._read_until + _IDLE_READS * self._reading:
            self._skipped = again, text
            self.holds.backlogs.idle(now)
            return True
        self._skipped = None
        return False

    def catch_up(self, waiting: int) -> None:
        """Read what was skipped, before the first of the records that wait now is handed over."""
        if waiting and self._skipped is not None:
            (again, text), self._skipped, self._idle = self._skipped, None, 0
            again(text)

    def statistics(self, text: str) -> None:
        """Of the direct lane, from whichever thread serves it: the sender reads them.

        A signal handler may come in anywhere here, and wait for the sender.
        """
        if self._delivery.mode != "passthrough" and not self._skips(self._statistics, text):
            self._arrive(self._statistics, text)

    def batch_statistics(self, text: str) -> None:
        self._arrive(self._batch_statistics, text)

    def _arrive(self, reads: Callable[[str], None], text: str) -> None:
        self._arrived.append((reads, text))  # one queue, or what is older would be learnt last
        self.changed = True

    def read_arrived(self) -> None:
        """On the sender's thread, the only one that acts on statistics."""
        while self._arrived:
            began = time.monotonic()
            reads, text = self._arrived.popleft()
            reads(text)
            self._read_until = time.monotonic()
            self._reading = self._read_until - began

    def _statistics(self, text: str) -> None:
        if (found := self._read(text)) is None:
            return
        self.statistics_now = found
        self._unseen = True
        self._apply(found, DIRECT)
        self.holds.in_epoch(found.producer_epoch)
        if found.messages:
            self.holds.record_bytes = found.message_bytes / found.messages
        if self._delivery.owns_timeout:
            self._observe_backlogs(found)
        self.changed = True

    def _batch_statistics(self, text: str) -> None:
        found = self._read(text)
        if found is not None:
            self.batch_statistics_now = self._batch_statistics_seen = found
            self._apply(found, _BATCH_LANE)
            if found.producer_id is not None and any(broker.state == "UP" for broker in found.brokers.values()):
                self.holds.lanes_ready = True
            self.changed = True

    def _read(self, text: str) -> Statistics | None:
        found = read(text)
        if found is None:
            return None
        at = self._clock.monotonic(found.at, time.monotonic())
        return found if at == found.at else replace(found, at=at)

    def take_batch_statistics(self, alone: bool) -> Statistics | None:
        """What the batch lane said last, once; `alone` when it is the only lane."""
        if alone:
            found, self._unseen = self.statistics_now if self._unseen else None, False
            return found
        found, self.batch_statistics_now = self.batch_statistics_now, None
        return found

    def purging(self) -> None:
        """The direct lane is about to be purged: from now on it is empty for another reason."""
        self._before_purge = self._empty
        before = self._empty_batches
        self._batches_in_purge = {
            tp: count.least - before.get(tp, _NONE).most
            for tp, count in self._counters.batches(time.monotonic()).items()
        }

    def never_sent(self, found: Statistics, failed_at: float) -> dict[TopicPartition, int]:
        """How many of each partition's last records were in no request, by statistics of the direct lane.

        librdkafka counts each attempt. Since the lane was last seen empty, the records it was given without those that
        it sent were never sent; of the ones that ended since then that must be known, so none may have failed.
        """
        empty = self._before_purge
        if failed_at > (0.0 if empty is None else empty.at):
            return {}
        never = {}
        for tp, entry in found.partitions.items():
            before = None if empty is None else empty.partitions.get(tp)
            if before is not None and entry.accepted < before.accepted:
                continue  # librdkafka forgot the partition meanwhile, and began to count anew
            earlier = 0 if before is None else before.accepted - before.sent
            never[tp] = entry.accepted - entry.sent - earlier + self._batches_in_purge.get(tp, 0)
        return never

    def sent_once(self, tp: TopicPartition, lane: int | None, since: float) -> bool:
        """Whether statistics from after `since` prove that each record of a partition was in one request, if it ended.

        They count each attempt. The partition must have nothing under way, and no record may have failed unsent.
        """
        found = self.statistics_now if lane is None or self._delivery.mode == "held" else self._batch_statistics_seen
        if (
            found is None
            or lane
            or found.at <= since
            or self.failures.failed_at
            or self._counters.report_queue.failed_at
        ):
            return False
        entry = found.partitions.get(tp)
        count = self._counters.batches(found.at).get(tp, _NONE)
        return entry is not None and count.most == count.least and entry.sent == entry.accepted + count.least

    def _apply(self, found: Statistics, lane: int) -> None:
        """What statistics of either lane say."""
        self._round_trip.update(lane, found)
        self.failures.heard(found)
        self.cluster.update(lane, found)
        if self.windows is not None:
            self.windows.update(found)

    def _observe_backlogs(self, found: Statistics) -> None:
        if found.at < self.observed_at:
            return
        self.observed_at = found.at
        backlogs = self.holds.backlogs
        batches = self._counters.batches(found.at)
        for tp, entry in found.partitions.items():
            # Records without a partition leave that queue when they get one.
            acknowledged = entry.acknowledged if tp[1] >= 0 else entry.accepted - entry.queued
            backlogs.observe(tp, entry.accepted, acknowledged, found.at, *batches.get(tp, _NONE))
            self.holds.acknowledged(tp, entry.acknowledged)
        if not found.messages:
            backlogs.forgive()
            self._empty, self._empty_batches = found, batches
        timeout = self._delivery.timeout
        before = self.holds.stalled
        self.holds.stalled = backlogs.stalled(
            found.at,
            max(_STALLED_AFTER, 5 * self._round_trip.ack_time),
            NEVER if timeout is None else max(_STALLED_AFTER, timeout * _STALLED_SHARE),
        )
        for tp in before - self.holds.stalled:
            self.cluster.outdated.answered_late(tp, DIRECT, found.at - _STALLED_AFTER, found.at)
