"""Why partitions are held back: what is known of brokers, throttle times and acknowledgements, put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from safeproducer.delivery import Delivery
from safeproducer.kafka.statistics import Statistics
from safeproducer.pipeline.accumulator import Accumulator
from safeproducer.pipeline.partitions import Partitions
from safeproducer.pipeline.stale_leaders import STRAIGHT, StaleLeaders
from safeproducer.pipeline.throttles import SharedThrottle
from safeproducer.policy.admission import Hold
from safeproducer.policy.backlog import Backlogs
from safeproducer.policy.distance import is_far
from safeproducer.policy.hold_reason import HoldReason

HELD = Hold(None, HoldReason.MODE_HELD)
COLD = Hold(None, HoldReason.FIRST_ACKNOWLEDGEMENT)
FAR = Hold(None, HoldReason.LONG_ROUND_TRIP)
QUOTA = Hold(None, HoldReason.PRODUCER_ID_QUOTA)
PINNED = Hold(None, HoldReason.UNKNOWN_OUTCOME)
STALE = Hold(None, HoldReason.OUTDATED_METADATA)
BRIDGING = Hold(None, HoldReason.SEQUENCE_GAP)
PACED = Hold(None, HoldReason.PREPARING_LANE)
DRAINING = Hold(None, HoldReason.EXPIRY)
OVERDUE = 1.5
"""Seconds after which the leader of an unanswered batch is in doubt."""
_LATE_THREADS = 0.05
"""A thread that was on its straight way when the hold began has given its record away by then."""
_FIRST_PART = 0.1
_LONGEST_PACE = 10.0
"""Seconds after which a lane that is still not ready is not waited for any more."""
_WHATEVER_RATE = float("inf")


@dataclass(frozen=True, slots=True)
class Leader:
    """The broker that leads a partition; `node` None while it is unknown."""

    node: int | None
    throttled_until: float | None
    probing: bool


class Measuring(Protocol):
    """Who finds out how far away the brokers are."""

    @property
    def open(self) -> bool:
        """Whether it still does."""


class Holds:
    """Changed by the threads that serve, read by those that produce; each change is one assignment.

    `quota_refused`: a quota on producer IDs refused the straight lane's: from then on the other lanes' are used alone.
    `far`: acknowledgements take longer than linger; acted on once the fed lane is `fed_ready`. `cold`: more was
    accepted than may go before the first acknowledgement. `pacing`: brokers are known to be far away and the fed lane
    is not ready: a batch of each partition goes straight, the next one when all that went is answered. `draining`: the
    straight lane is about to be purged. `gaps`: partitions whose sequence numbers that may have broken; as in
    FedLane.takes(), no others use the lane until each has had an acknowledgement, or a new epoch has begun, and one at
    a time. `stuck`: partitions whose acknowledgements stopped. `record_bytes`: what a record of the straight lane
    takes, on average.
    """

    PATIENCE = 0.01
    """How soon to look again when nothing tells of the change that is waited for."""

    def __init__(self, delivery: Delivery, throttle: SharedThrottle) -> None:
        self.partitions = Partitions(delivery.partitioner, delivery.sticky)
        self.far = False
        self.fed_ready = False
        self.ack_time = 0.0
        self.record_bytes = 0.0
        self.warming = delivery.mode == "auto" and delivery.feeds
        self.cold = False
        self.measuring: Measuring | None = None
        self.pacing = False
        self._unready_since: float | None = None
        self._opened_at = 0.0
        self._room: dict[tuple[str, int], tuple[int, int]] | None = None
        """While pacing: (records, bytes) that may still go of each partition, a batch if it is not there; None while
        nothing may."""
        self.quota_refused = False
        self.draining = False
        self.gaps: set[tuple[str, int]] = set()
        self._gap_epoch: int | None = None
        self._bridging: tuple[str, int] | None = None
        self.stuck: frozenset[tuple[str, int]] = frozenset()
        self.backlogs = Backlogs()
        self._straight_empty_at = 0.0
        self.stale = StaleLeaders()
        self._always = delivery.mode == "held"
        self._delivery = delivery
        self._throttle = throttle
        self._latest = throttle.latest
        self._suspects: dict[tuple[str, int], int | None] = {}
        self._sent = 0
        self._needed: int | None = None
        self._begun: set[tuple[str, int]] = set()
        self._warming_records = delivery.batch_records
        self._warming_bytes = delivery.batch_bytes

    # --- questions ---------------------------------------------------------------------------------------------------

    def any(self, moment: float) -> bool:
        """Whether there is a reason to hold anything back."""
        return bool(
            self._always
            or self.quota_refused
            or (self.far and self.fed_ready)
            or self.warming
            or self.pacing
            or self.draining
            or self.gaps
            or self.stuck
            or self.stale.concern(STRAIGHT, moment)
            or self._throttle.calms(None, moment)
            or self._throttle.held(moment)
        )

    def reason(self, accumulator: Accumulator, moment: float) -> Hold | None:
        """Why this partition is held back; None when its records may go straight."""
        place = accumulator.place
        if place in self.stuck:
            return Hold(None, HoldReason.LEADER_SILENT, self.partitions.leader(*place))
        leader = self.broker(accumulator, moment)
        if leader.throttled_until is not None:
            return Hold(leader.throttled_until, HoldReason.THROTTLED, leader.node)
        if leader.probing:
            return Hold(None, HoldReason.PROBING, leader.node)
        if (always := self._for_good(accumulator)) is not None:
            return always
        if self.far and self.fed_ready and place not in self._suspects and not self.draining:
            return FAR
        return self._closed(place, moment)

    def _closed(self, place: tuple[str, int], moment: float) -> Hold | None:
        """Why the straight lane takes nothing of this partition for now."""
        if self.draining:
            return DRAINING
        if self.gaps and place != self._bridging:
            return BRIDGING
        if self.stale.concerns(STRAIGHT, place, moment):
            return STALE
        if self.pacing and not self._has_room(place):
            return PACED
        return COLD if self.cold or (self.warming and self._closed_to_others() and place not in self._begun) else None

    def _for_good(self, accumulator: Accumulator) -> Hold | None:
        """Why this partition is held back whatever the brokers do."""
        if self._always:
            return HELD
        if self.quota_refused:
            return QUOTA
        return PINNED if accumulator.pinned else None

    def broker(self, accumulator: Accumulator, moment: float) -> Leader:
        node = self.partitions.leader(*accumulator.place)
        until = self._throttle.deadline(node, moment)
        # In a lane for batches a topic must be known, and nobody tells of one to which nothing has gone straight yet.
        known = self._always or self.partitions.known(accumulator.topic)
        return Leader(node, until, known and self._throttle.calms(node, moment))

    def throttle_changed(self) -> bool:
        """Whether a throttle time was announced since the last call, to any producer of this process."""
        before, self._latest = self._latest, self._throttle.latest
        return before != self._latest

    def blocks(self, accumulator: Accumulator, moment: float) -> bool:
        """Whether this partition waits for something that may take long: its broker's throttle time, or its return."""
        place = accumulator.place
        return (
            place in self.stuck
            or self.broker(accumulator, moment).throttled_until is not None
            or bool(accumulator.unresolved and accumulator.unresolved[0].at + OVERDUE < moment)
        )

    def serves_others(self, node: int | None, moment: float) -> bool:
        """Whether a broker other than `node` takes records."""
        throttled = self._throttle.held(moment)
        stuck = {self.partitions.leader(*place) for place in self.stuck}
        return any(other != node and other not in throttled and other not in stuck for other in self.partitions.nodes())

    def wants_fed(self, accumulator: Accumulator, moment: float) -> bool:
        """Whether what waits should leave as counted batches.

        Not while a record of this partition that the straight lane had is of unknown outcome: there its late copy is
        fenced by the new epoch, and on another lane it would appear behind its successors.
        """
        if accumulator.place in self._suspects:
            return False
        if self.quota_refused or (self.far and self.fed_ready) or self.gaps:
            return True
        if self.stale.concerns(STRAIGHT, accumulator.place, moment):
            return True  # the fed lane knows better
        leader = self.broker(accumulator, moment)
        return leader.probing or leader.throttled_until is not None

    def drained(self, accumulator: Accumulator, straight_records: int, moment: float) -> bool:
        """Whether the straight lane has nothing of this partition any more; it has so many records and events.

        Seen empty once is enough: what is in it later is of others, or an event that nobody has asked for yet.
        """
        if not straight_records:
            self._straight_empty_at = moment
        since = accumulator.held_since + _LATE_THREADS
        return self._straight_empty_at > since or self.backlogs.drained(accumulator.place, since)

    def bridges(self, accumulator: Accumulator, straight_records: int) -> bool:
        """Whether it is the turn of this partition to use the straight lane, which has so many records and events."""
        place = accumulator.place
        if place in self.gaps and not straight_records:
            self._bridging = place
        return not self.gaps or place == self._bridging

    def hopeless_until(self, accumulator: Accumulator, moment: float) -> float:
        """A deadline at or before this time cannot be met: the broker's throttle time is known to last longer."""
        node = self.partitions.leader(*accumulator.place)
        return 0.0 if node is None else self._throttle.deadline(node, moment) or 0.0

    def cools(self, place: tuple[str, int], size: int) -> bool:
        """Whether a record more would be too much for brokers that have not acknowledged anything yet.

        About one batch may go to find out how they are: an answer may announce a throttle time, and what was sent
        behind that batch would wait unread until it times out. Its first part says which partitions it is made of, so
        that no batch of another one is cut in two by the end of it.
        """
        if self.pacing:
            return not self._takes_room(place, size)
        if not self.warming or self.cold:
            return self.cold
        first = not self._sent  # goes whatever its size: nothing else would end the wait
        if place not in self._begun:
            if self._closed_to_others():
                return True
            self._begun.add(place)
        self._sent += 1
        self._warming_records -= 1
        self._warming_bytes -= size
        self.cold = self._warming_records < 0 or self._warming_bytes < 0
        return self.cold and not first

    def refused(self, size: int) -> None:
        """A record was not sent after all, so no answer to it will end the wait."""
        if self.warming:
            self._sent -= 1
            self._warming_records += 1
            self._warming_bytes += size
            self.cold = self._warming_records < 0 or self._warming_bytes < 0

    def _has_room(self, place: tuple[str, int]) -> bool:
        room = self._room
        return room is not None and room.get(place, (1, 1)) > (0, 0)

    def _takes_room(self, place: tuple[str, int], size: int) -> bool:
        """Whether a record more may go straight, as the last one of its batch perhaps."""
        room = self._room
        if room is None:
            return False
        records, left = room.get(place, (self._delivery.batch_records, self._delivery.batch_bytes))
        fits = records > 0 and (left >= size or records == self._delivery.batch_records)
        room[place] = (records - 1, left - size) if fits else (0, 0)
        return fits

    def _closed_to_others(self) -> bool:
        share = 1 - _FIRST_PART
        return self._sent > 0 and (
            self._warming_records < share * self._delivery.batch_records
            or self._warming_bytes < share * self._delivery.batch_bytes
        )

    def drain_time(self, timeout: float) -> float:
        """How long before a deadline the straight lane stops taking records, so that healthy ones are out of it."""
        return min(timeout / 4, max(0.25, 3 * self.ack_time))

    # --- news --------------------------------------------------------------------------------------------------------

    def warms(self, resolved: int, in_lane: int) -> bool:
        """Whether what was sent by the time of the first report has been answered: so many records are `resolved`.

        The first answer alone says little: that of a small batch comes before a large one's, and without its throttle.
        """
        if self._needed is None and resolved:
            self._needed = self._sent
        if self.measuring is not None and self.measuring.open:
            return False  # or all that comes would go straight, just before it turns out that the brokers are far away
        if self._needed is not None and (resolved >= self._needed or not in_lane):
            self.warming = self.cold = False
        return not self.warming

    def paces(self, in_lane: int, moment: float) -> bool:
        """Note that the straight lane has so many records and events; whether that changes what may go straight.

        Far away it sends one batch of a partition at a time, and what is more in it than that would keep the partition
        from leaving it when the fed lane is ready.
        """
        before, self.pacing = self.pacing, self._is_to_pace(moment)
        if self.pacing and in_lane:
            if not before or self._opened_at + self._delivery.linger <= moment:
                self._room = None  # what comes now goes with the next batch
        elif self.pacing:
            before = before and self._room == {}
            self._room, self._opened_at = {}, moment
        return self.pacing is not before

    def _is_to_pace(self, moment: float) -> bool:
        if not self.far or self.fed_ready or self._always or not self._delivery.feeds:
            self._unready_since = None
            return False
        if self._unready_since is None:
            self._unready_since = moment
        return not self.warming and moment <= self._unready_since + _LONGEST_PACE

    def expired(self) -> None:
        """The straight lane is purged: what it had of these partitions may be in the log, or get there late."""
        self._suspects.update(dict.fromkeys(self.backlogs.waiting()))
        self.stuck = frozenset()

    def purged(self, places: set[tuple[str, int]], epoch: int | None) -> None:
        """Records of these partitions were purged from the straight lane, which was in this epoch after that."""
        self._suspects.update(dict.fromkeys(places))
        self.gaps |= places
        self._gap_epoch = epoch
        self._bridging = None

    def in_epoch(self, epoch: int | None) -> None:
        """The straight lane's epoch: a new one has new sequence numbers, without gaps."""
        if self.gaps and epoch is not None and self._gap_epoch is not None and epoch > self._gap_epoch:
            self.gaps.clear()

    def acknowledged(self, place: tuple[str, int], count: int) -> None:
        """What the straight lane's statistics say of a partition: an acknowledgement clears it of suspicion."""
        if place in self._suspects:
            known = self._suspects[place]
            if known is None:
                self._suspects[place] = count
            elif count > known:
                del self._suspects[place]
                self.gaps.discard(place)

    def learn(self, statistics: Statistics) -> None:
        """Leaders and partition counts from statistics of any lane."""
        topics: dict[str, dict[int, int]] = {}
        for (topic, partition), entry in statistics.partitions.items():
            if partition >= 0:
                topics.setdefault(topic, {})[partition] = entry.leader
        for topic, leaders in topics.items():
            # A topic that librdkafka has not heard of is listed, too, with the partitions that records were made for.
            if self.partitions.count(topic) or max(leaders.values()) >= 0:
                self.partitions.learn(topic, leaders)

    def guess(self, distance: float) -> None:
        """What is known before any statistics: an answer took that long, or longer."""
        delivery = self._delivery
        if not self.ack_time and delivery.idempotent and not delivery.transactional:
            self.far = is_far(distance, delivery.linger, _WHATEVER_RATE, was_far=False)
            self.ack_time = distance if self.far else 0.0

    def measure(self, statistics: Statistics, rate: float) -> None:
        """How far away the brokers are, from the statistics of the lane that is in use."""
        floors = [broker.rtt_floor for broker in statistics.brokers.values() if broker.rtt_floor is not None]
        if not floors:
            return
        self.ack_time = max(floors)
        if self._delivery.idempotent and not self._delivery.transactional:  # others wait for nothing
            self.far = is_far(max(floors), self._delivery.linger, rate, self.far)
