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
from safeproducer.pipeline.failures import Failures
from safeproducer.pipeline.holds import Holds
from safeproducer.pipeline.ledger import BatchCount, Ledger
from safeproducer.pipeline.stale_leaders import STRAIGHT
from safeproducer.pipeline.windows import Windows
from safeproducer.policy.distance import RUSH
from safeproducer.policy.never import NEVER
from safeproducer.policy.topic_partition import TopicPartition as Place

_NONE = BatchCount()
_KEPT = 16
"""Statistics that wait to be read: later ones say more."""
_STUCK_AFTER = 1.5
_STUCK_SHARE = 1 / 3
"""A record in the straight lane that is older than this share of its time: its partition takes no more."""
_FED = 0
_MEASURE_EVERY = 0.4
_RUSH_SEEN = 0.1
_SURELY = 2
"""So many times the rate that is a rush, or a burst of some ten thousand records would be one."""
_IDLE_AFTER = 3
"""Statistics of an idle producer that are read before any is skipped."""
_IDLE_READS = 5000
"""Then it rests so many times longer than it takes to read them."""


class ClientNews:
    """Written by the sender's thread; throttle times and texts come from the threads that serve.

    `changed` asks the lane to look again; it holds no native producer.
    """

    def __init__(self, settings: Settings, failures: Failures, ledger: Ledger) -> None:
        self._ledger = ledger
        self._delivery = settings.delivery
        self._throttle = throttles.of(settings.cluster)
        self.holds = Holds(settings.delivery, self._throttle)
        self.failures = failures
        self.changed = False
        self.windows: Windows | None = None
        self.hold: Callable[[], None] = _nothing
        """Called as soon as a throttle time is known: a callback served next may produce."""
        self.statistics_now: Statistics | None = None
        self._empty: Statistics | None = None
        self._empty_batches: Mapping[Place, BatchCount] = {}
        self._before_purge: Statistics | None = None
        self._batches_in_purge: dict[Place, int] = {}
        self._arrived: deque[tuple[Callable[[str], None], str]] = deque(maxlen=_KEPT)
        self.observed_at = 0.0
        self.fed_statistics_now: Statistics | None = None
        self._unseen = False
        self._fed_seen: Statistics | None = None
        self._requests = {STRAIGHT: 0, _FED: 0}
        self._in_use: Statistics | None = None
        """Of the lane that sent Produce requests last: other requests may be answered sooner than those."""
        self._measured: tuple[float, int] = (0.0, 0)
        self._rush: tuple[float, int] | None = None
        """(since when more than a batch waits, records accepted by then)."""
        self._skipped: tuple[Callable[[str], None], str] | None = None
        self._idle = 0
        self._accepted = 0
        self._read_until = self._reading = 0.0
        self._clock = LibrdkafkaClock()

    @property
    def delivered(self) -> int:
        """Records delivered so far."""
        return self._ledger.totals()[1]

    def connected(self) -> dict[int, float]:
        """Broker -> when statistics of any lane showed it connected, if the last ones did."""
        found = sorted(filter(None, (self.statistics_now, self._fed_seen)), key=lambda one: one.at)
        return {node: one.at for one in found for node, broker in one.brokers.items() if broker.state == "UP"}

    def throttled_until(self, now: float) -> dict[int, float]:
        """Broker -> deadline, of those that throttle clients of this process."""
        return self._throttle.held(now)

    def calms(self, broker: int, now: float) -> bool:
        """Whether it gets one batch at a time because it throttled so lately."""
        return self._delivery.feeds and self._throttle.calms(broker, now)

    def throttled(self, broker: int, name: str, seconds: float) -> bool:
        """Hold back what goes to this broker; whether that is to be told, once for each time that it throttles."""
        now = time.monotonic()
        episode = self._throttle.announce(broker, seconds, now)
        if self._delivery.mode == "passthrough":
            return False
        if self._delivery.feeds:
            self.changed = True
            self.hold()
        return episode is not None

    def _skips(self, again: Callable[[str], None], text: str) -> bool:
        """Whether statistics need not be read: nothing is produced, and it takes a while with many partitions."""
        now = time.monotonic()
        before, self._accepted = self._accepted, self._ledger.accepted
        quiet = self._accepted == before and not self._throttle.held(now)
        if quiet and not self._idle:  # once nothing is under way, that can change only with what is accepted
            accepted, delivered, failed = self._ledger.totals()
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
        """Of the straight lane, from whichever thread serves it: the sender reads them.

        A signal handler may come in anywhere here, and wait for the sender.
        """
        if self._delivery.mode != "passthrough" and not self._skips(self._statistics, text):
            self._arrive(self._statistics, text)

    def fed_statistics(self, text: str) -> None:
        self._arrive(self._fed_statistics, text)

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
        self._look_for_use(found, STRAIGHT)
        self.failures.heard(found)
        self.holds.learn(found)
        self.holds.in_epoch(found.producer_epoch)
        self._learn_windows(found)
        if found.messages:
            self.holds.record_bytes = found.message_bytes / found.messages
        if self._delivery.owns_timeout:
            self._observe_backlogs(found)
        self.changed = True

    def _fed_statistics(self, text: str) -> None:
        found = self._read(text)
        if found is not None:
            self.fed_statistics_now = self._fed_seen = found
            self._look_for_use(found, _FED)
            self.failures.heard(found)
            self.holds.learn(found)
            self._learn_windows(found)
            if found.producer_id is not None and any(broker.state == "UP" for broker in found.brokers.values()):
                self.holds.fed_ready = True
            self.changed = True

    def _read(self, text: str) -> Statistics | None:
        found = read(text)
        if found is None:
            return None
        at = self._clock.monotonic(found.at, time.monotonic())
        return found if at == found.at else replace(found, at=at)

    def _look_for_use(self, found: Statistics, lane: int) -> None:
        requests = sum(broker.produce_requests for broker in found.brokers.values())
        if requests != self._requests[lane]:
            self._requests[lane] = requests
            self._in_use = found

    def take_fed(self, alone: bool) -> Statistics | None:
        """What the fed lane said last, once; `alone` when it is the only lane."""
        if alone:
            found, self._unseen = self.statistics_now if self._unseen else None, False
            return found
        found, self.fed_statistics_now = self.fed_statistics_now, None
        return found

    def purging(self) -> None:
        """The straight lane is about to be purged: from now on it is empty for another reason."""
        self._before_purge = self._empty
        before = self._empty_batches
        self._batches_in_purge = {
            place: count.least - before.get(place, _NONE).most
            for place, count in self._ledger.batches(time.monotonic()).items()
        }

    def never_sent(self, found: Statistics, failed_at: float) -> dict[Place, int]:
        """How many of each partition's last records were in no request, by statistics of the straight lane.

        librdkafka counts each attempt. Since the lane was last seen empty, the records it was given without those that
        it sent were never sent; of the ones that ended since then that must be known, so none may have failed.
        """
        empty = self._before_purge
        if failed_at > (0.0 if empty is None else empty.at):
            return {}
        never = {}
        for place, entry in found.partitions.items():
            before = None if empty is None else empty.partitions.get(place)
            if before is not None and entry.accepted < before.accepted:
                continue  # librdkafka forgot the partition meanwhile, and began to count anew
            earlier = 0 if before is None else before.accepted - before.sent
            never[place] = entry.accepted - entry.sent - earlier + self._batches_in_purge.get(place, 0)
        return never

    def sent_once(self, place: Place, lane: int | None, since: float) -> bool:
        """Whether statistics from after `since` prove that each record of a partition was in one request, if it ended.

        They count each attempt. The partition must have nothing under way, and no record may have failed unsent.
        """
        found = self.statistics_now if lane is None or self._delivery.mode == "held" else self._fed_seen
        if found is None or lane or found.at <= since or self.failures.failed_at or self._ledger.away.failed_at:
            return False
        entry = found.partitions.get(place)
        count = self._ledger.batches(found.at).get(place, _NONE)
        return entry is not None and count.most == count.least and entry.sent == entry.accepted + count.least

    def _learn_windows(self, found: Statistics) -> None:
        if self.windows is not None:
            self.windows.learn(found)

    def _observe_backlogs(self, found: Statistics) -> None:
        if found.at < self.observed_at:
            return
        self.observed_at = found.at
        backlogs = self.holds.backlogs
        batches = self._ledger.batches(found.at)
        for place, entry in found.partitions.items():
            # Records without a partition leave that queue when they get one.
            acknowledged = entry.acknowledged if place[1] >= 0 else entry.accepted - entry.queued
            backlogs.observe(place, entry.accepted, acknowledged, found.at, *batches.get(place, _NONE))
            self.holds.acknowledged(place, entry.acknowledged)
        if not found.messages:
            backlogs.forgive()
            self._empty, self._empty_batches = found, batches
        timeout = self._delivery.timeout
        before = self.holds.stuck
        self.holds.stuck = backlogs.stuck(
            found.at,
            max(_STUCK_AFTER, 5 * self.holds.ack_time),
            NEVER if timeout is None else max(_STUCK_AFTER, timeout * _STUCK_SHARE),
        )
        for place in before - self.holds.stuck:
            self.holds.stale.answered_late(place, STRAIGHT, found.at - _STUCK_AFTER, found.at)

    def measure(self, now: float) -> None:
        """Judge the distance to the brokers, from the last statistics of the lane in use."""
        if self._delivery.mode != "auto" or self.statistics_now is None:
            return
        accepted = self._ledger.totals()[0]
        then, before = self._measured
        if now - then < _MEASURE_EVERY:
            return
        self._judge(now, accepted, (accepted - before) / (now - then))

    def rushes(self, waiting: int, now: float) -> bool:
        """Whether the application has begun to rush so much that its records need not be held back any more.

        Told before statistics come, by how fast records are accepted while more than a batch of them is `waiting`.
        """
        if not self.holds.far or waiting < self._delivery.batch_records:
            self._rush = None
            return False
        rush = self._rush  # other threads serve, too
        if rush is None:
            self._rush = (now, self._ledger.accepted)
            return False
        then, before = rush
        if now - then < _RUSH_SEEN:
            return False
        accepted = self._ledger.accepted
        self._rush = (now, accepted)
        rate = (accepted - before) / (now - then)
        if rate > _SURELY * RUSH:
            self._judge(now, accepted, rate)
        return not self.holds.far

    def _judge(self, now: float, accepted: int, rate: float) -> None:
        self._measured = (now, accepted)
        if (found := self._in_use or self.statistics_now) is not None:
            self.holds.measure(found, rate)


def _nothing() -> None:
    pass
