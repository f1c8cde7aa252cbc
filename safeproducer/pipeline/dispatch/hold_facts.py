"""Facts about a partition that is held back, for policy.decision; any thread may ask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from safeproducer.pipeline.buffer.partition_buffer import PartitionBuffer, Times
from safeproducer.pipeline.cluster.cluster_view import ClusterView
from safeproducer.pipeline.cluster.metadata import FirstQuestion
from safeproducer.pipeline.cluster.round_trip import RoundTrip
from safeproducer.pipeline.lanes.direct_lane import DirectLane
from safeproducer.pipeline.record import ACCEPTED_AT
from safeproducer.policy import decision
from safeproducer.policy.decision import TURN, Hold, LaneFacts, PartitionFacts
from safeproducer.policy.diagnosis import Cause, silent, told_first
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.pacing import LATE, LATE_TIMES
from safeproducer.policy.probation import Seen
from safeproducer.policy.types import DIRECT_LANE, NEVER, UNPLACED, TopicPartition
from safeproducer.producer_ids.gate import Gate
from safeproducer.runtime import clock

_MANY = 20  # partitions for each broker: as many full batches as its connection takes in four round trips
_OF_LEADERS = HoldReason.LEADER_SILENT, HoldReason.OUTDATED_METADATA, HoldReason.FIRST_ACKNOWLEDGEMENT
_NEVER_HELD = PartitionFacts(must_batch=False)


class HoldFacts:
    """What speaks against sending records of a partition now.

    Any thread asks; the sender calls look(), of_each(), renew() and lane_is_ready(). `direct`: None with
    safeproducer.mode=held. `times`: the partition buffers write it. `buffers`: those that RecordBuffer has opened.
    """

    def __init__(self, cluster: ClusterView, round_trip: RoundTrip, direct: DirectLane | None, gate: Gate) -> None:
        self.gate = gate
        self.cluster = cluster
        self.partitions = cluster.partitions
        self.round_trip = round_trip
        self.direct = direct
        self.lane_ready = False
        self.times: Times = {}
        self.buffers: dict[TopicPartition, PartitionBuffer] = {}
        self._held_until: Mapping[int, float] = {}  # broker -> until when all its partitions are held at least
        self.apart: dict[TopicPartition, float] = {}
        """Until when a partition waits alone whose batches made native producers fail; UNPLACED: all of the topic."""
        self._told: dict[tuple[TopicPartition, str], float] = {}
        self.served_at = NEVER  # by when batch lanes' reports were queued; on a busy machine that may be long ago

    def lane_is_ready(self) -> None:
        self.lane_ready = True

    def throttles_anew(self) -> bool:
        """Whether a broker throttles, whichever producer of this process it told, and perhaps not all of its partitions
        are held yet.

        One that goes on before its time is over changes nothing: nobody has let a partition of it go.
        """
        deadlines = self.cluster.throttle.deadlines(-NEVER)
        now, held_until = clock.monotonic(), self._held_until  # read last: who lets one go by now looked before
        anew = any(until > now >= held_until.get(node, -NEVER) for node, until in deadlines.items())
        if not anew:  # what another thread writes meanwhile may be older, and as true
            self._held_until = deadlines
        return anew

    def renew(self, direct: DirectLane) -> None:
        """Another direct lane is there."""
        self.direct = direct

    @property
    def many(self) -> bool:
        """Whether partitions are many for the brokers, and each stays on one lane.

        Batches wait for connections, which take five requests each. Another lane would only be another queue.
        """
        return len(self.buffers) > _MANY * max(1, len(self.partitions.nodes())) and not self.cluster.spreads

    @property
    def far(self) -> bool:
        """Whether round trips are so long that buffering pays."""
        return self.round_trip.long and not self.many

    @property
    def prefers_batches(self) -> bool:
        """Whether round trips are that long, and the first batch lane has its producer ID."""
        return self.far and self.lane_ready

    @property
    def slow_start(self) -> bool:
        """Whether some partition waits for its first answer, at the beginning or after a rest."""
        return self.direct is not None and self.direct.probation.starts

    @property
    def starting(self) -> bool:
        """Whether `look()` is needed: on probation, or while round trips are long and no batch lane is ready."""
        direct = self.direct
        return direct is not None and (direct.probation.open or (self.far and not self.lane_ready))

    def look(self, first: FirstQuestion, lane_ready: bool, in_lane: int, now: float) -> bool:
        """Look whether probation is over, or begins; whether that changes what may go directly."""
        self.lane_ready = self.lane_ready or lane_ready
        seen = Seen(first.unreached, first.open, self.far and not self.lane_ready)
        return self.direct is not None and self.direct.look(seen, in_lane, now)

    def any(self, now: float) -> bool:
        """Whether there is a reason to hold anything back."""
        return (self.direct is not None and self.direct.probation.open) or self.beside_probation(now)

    def beside_probation(self, now: float) -> bool:
        """Whether there is a reason to hold beside probation."""
        if self.gate.hold is not None or not self.cluster.holds_back:
            return self.gate.hold is not None
        waits = self.apart and any(self.waits_apart(tp, now) for tp in list(self.apart))
        waits = waits or self.direct is None or self.direct.limited
        return bool(waits) or self.prefers_batches or self.cluster.hinders(now)

    def facts(self, buffer: PartitionBuffer, now: float) -> PartitionFacts:
        """All that says whether records of this partition may go directly."""
        if (limit := self.gate.hold) is not None:
            return PartitionFacts(id_at=limit.until, asks_at=self.gate.ask_at)
        if not self.cluster.holds_back:
            return _NEVER_HELD
        if (until := self.waits_apart(buffer.tp, now)) is not None:
            return PartitionFacts(apart_until=until)
        tp, direct = buffer.tp, self.direct
        leader = self.cluster.leader_state(tp, now)
        if direct is None:
            return PartitionFacts(*leader, only_batch_lanes=True)
        if many := self.many:  # one batch after the other of each broker would take a round trip for each partition
            leader = leader._replace(probing=False)
        of_direct = LaneFacts(
            silent=direct.is_silent(tp),
            old=tp in direct.old,
            id_rejected=direct.rejected,
            keeps=direct.keeps(tp),
            pinned=buffer.pinned,
            many=many,
            prefers_batches=self.prefers_batches and not self.waited_for_id(buffer),
            draining=direct.draining,
            gaps=bool(direct.gaps),
            gap=direct.gaps.closed_to(tp, now),
            outdated=self.cluster.outdated.concerns(DIRECT_LANE, tp, now),
            paced=(waits := bool(buffer.records) and direct.closes(tp, now)) and direct.probation.paced,
            starting=waits,  # the intake asks for each record where none waits
            renewing=direct.failure is not None,
            renews_at=None if direct.failure is None else direct.failure.due,
        )
        return PartitionFacts(*leader, must_batch=False, lane=of_direct)

    def waits_apart(self, tp: TopicPartition, now: float) -> float | None:
        """Until when this partition waits alone, or its topic, None if it does not."""
        for one in (tp, (tp[0], UNPLACED)) if self.apart else ():
            if (until := self.apart.get(one, now)) > now:
                return until
            self.apart.pop(one, None)
        return None

    def direct_hold(self, buffer: PartitionBuffer, now: float) -> Hold | None:
        """Why this partition is held back; None when its records may go directly."""
        if not (buffer.pinned or buffer.records or self.beside_probation(now)):
            return None
        return decision.hold(self.facts(buffer, now), decision.DIRECT, now)

    def of_each(self, some: list[PartitionBuffer] | None, now: float) -> Iterator[tuple[PartitionBuffer, Hold | None]]:
        """Why each of these is held back, or of all that there are; which is asked once for those of a broker that
        throttles, and for all others that are alike and idle: they may be thousands."""
        deadlines, direct = self.cluster.throttle.deadlines(now), self.direct
        differ = (direct is not None and direct.limited) or self.cluster.outdated.concerns_any(DIRECT_LANE, now)
        of_kind: dict[tuple[object, ...], Hold | None] = {}
        for buffer in list(self.buffers.values()) if some is None else some:
            node = self.partitions.info(buffer.tp).leader
            alone = node not in deadlines and (differ or buffer.pinned or buffer.records)
            if alone or self.waits_apart(buffer.tp, now) is not None:
                yield buffer, self.direct_hold(buffer, now)
                continue
            kind = node, self.partitions.known(buffer.topic), direct is not None and direct.keeps(buffer.tp)
            if kind not in of_kind:
                of_kind[kind] = self.direct_hold(buffer, now)
            yield buffer, of_kind[kind]
        if some is None:
            self._held_until = deadlines

    def waited_for_id(self, buffer: PartitionBuffer) -> bool:
        """Whether its next record waited for the producer's permit: a batch lane would cost a second producer ID."""
        return bool(buffer.records) and buffer.records[0][ACCEPTED_AT] < self.gate.opened_at

    def throttled_lately(self, tp: TopicPartition, now: float) -> bool:
        """Whether its leader throttles, or has had no time yet to answer what lay there unread meanwhile (KIP-219)."""
        return self.cluster.throttle.deadline(self.partitions.leader(*tp), now - LATE) is not None

    def silent_from(self, buffer: PartitionBuffer) -> float:
        """From when on the leader owes this partition an acknowledgement, of either lane, for longer than usual."""
        if self.direct is not None and self.direct.is_silent(buffer.tp):
            return -NEVER
        patience = max(LATE, LATE_TIMES * (buffer.ack.seconds or 0.0))
        return min([batch.queued_at + patience for batch in buffer.unresolved[:1]], default=NEVER)

    def is_silent(self, buffer: PartitionBuffer, now: float) -> bool:
        """Whether its leader owes it an acknowledgement for longer than usual. A batch that waits in librdkafka behind
        others is in no request yet; an answer that the sender has not read is one."""
        return self.silent_from(buffer) < min(now, self.served_at) and not self._queues(buffer)

    def _queues(self, buffer: PartitionBuffer) -> bool:
        """Whether statistics from after the oldest batch show that its leader answers, and it was in no request."""
        batch = buffer.unresolved[0] if buffer.unresolved else None
        if batch is None or not batch.left:  # the second: its reports are here
            return batch is not None
        if (found := self.cluster.statistics.get(batch.lane)) is None:
            return False
        entry = found.partitions.get(buffer.tp)
        asked = entry is None or entry.in_flight or entry.sent > entry.acknowledged
        if queues := not asked and self.cluster.answers(self.partitions.leader(*buffer.tp), batch.at):
            batch.queued_at = found.at  # its own request is made after that
        return queues

    def is_owed(self, buffer: PartitionBuffer, hold: Hold, now: float) -> bool:
        """Whether a broker owes the answer that this waits for, for longer than usual. None leads UNPLACED."""
        owed = hold.reason.waits_for_answer and buffer.partition != UNPLACED and self.is_silent(buffer, now)
        return owed and not self.throttled_lately(buffer.tp, now) and self.cluster.coordinating(now) is None

    def waits_for(self, buffer: PartitionBuffer, now: float) -> Hold:
        """The reason for which records wait there, also before the sender has looked at them."""
        # What the sender noted may be over, and the wait for an answer looks alike when the leader is slow, silent,
        # gone or was never asked. What is shown to be so replaces the noted reason, in this order.
        if self.partitions.missing_clause(buffer.topic):
            return Hold(None, HoldReason.UNKNOWN_TOPIC)
        known, leader = buffer.why, self.partitions.leader(*buffer.tp)
        hold = known if known is not None and known.lasts(leader, now) else self.direct_hold(buffer, now) or TURN
        owed = self.is_owed(buffer, hold, now)
        if self._finds_nobody(hold, owed):
            return Hold(None, HoldReason.NO_BROKER)
        silent = owed or hold.reason is HoldReason.LEADER_SILENT
        if silent and leader in self.cluster.slow(now):  # it answers
            return Hold(None, HoldReason.IN_FLIGHT)
        if owed:  # look at the broker
            return Hold(None, HoldReason.LEADER_SILENT, leader)
        if silent and self.cluster.coordinating(now) is not None:
            return Hold(None, HoldReason.FIRST_ACKNOWLEDGEMENT)  # nobody has asked a leader
        return hold

    def _finds_nobody(self, hold: Hold, owed: bool) -> bool:
        """Whether it waits for a broker, and none is connected."""
        return self.cluster.away and (owed or hold.reason in _OF_LEADERS)

    def of_brokers(self, now: float) -> Iterator[Cause]:
        return self.cluster.of_brokers(self.round_trip.delivered, now)

    def causes(self, tp: TopicPartition, now: float) -> Iterator[Cause]:
        """Why its leader owes it an acknowledgement, and what the client tells of that one, or of all."""
        node = self.partitions.leader(*tp)
        yield from self.cluster.sick(tp, now)
        yield from [one for one in self.of_brokers(now) if not one.over and (node is None or one.node in (None, node))]

    def sick(self, tps: Iterable[TopicPartition], now: float) -> Cause | None:
        """The first cause why a leader owes one of these an acknowledgement."""
        for tp in sorted(tps):
            if (node := self.partitions.leader(*tp)) is not None:
                return told_first([*self.causes(tp, now), silent(tp, node)])[0]
        return None

    def code(self, buffer: PartitionBuffer, hold: Hold, owed: bool, now: float) -> str:
        """The code of the cause why the next batch of a partition waits."""
        first = self.sick((buffer.tp,), now) if owed or hold.reason is HoldReason.LEADER_SILENT else None
        if first is None and self._finds_nobody(hold, owed):  # none can tell who leads it
            first = next(iter(told_first(self.causes(buffer.tp, now))), None)
        return hold.reason if first is None else first.code

    def hold_times(self, until: float = NEVER) -> dict[tuple[TopicPartition, str], float]:
        """(partition, code) -> seconds for which it has waited; waits that go on count up to now, or `until` then.

        A figure never falls. While a batch gathers, it waits for its linger.
        """
        now = min(clock.monotonic(), until)
        for key, (waits, seconds) in self.times.copy().items():
            # The sender dates the end of a wait by the beginning of its turn, and another thread may have asked since.
            self._told[key] = max(self._told.get(key, 0.0), waits * now + seconds)
        return self._told.copy()
