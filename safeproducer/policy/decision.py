"""Whether the next records of a partition leave now, and by which lane: facts in, a decision out.

Pure: the caller says how things are, with `now` in seconds of any monotonic clock. RULES is the one order of the
reasons to hold. A decision takes the first rule that closes the partition's path and applies.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.never import NEVER
from safeproducer.policy.window import MOST

PATIENCE = 0.01
"""How soon to look again when nothing tells of the change that is waited for."""
LONGEST_DEPTH = 3
"""In-flight batches of one partition inside librdkafka at once: one on its way and full ones behind it, so that the
next one leaves without waiting for Python."""

DIRECT: Final = 1
"""The direct lane."""
IN_PLACE: Final = 2
"""The direct lane, in place of a batch lane that cannot be made."""
CHANGE: Final = 4
"""From the direct lane to the batch lanes, which begins when the direct lane has nothing of the partition any more."""
BATCH: Final = 8
"""The batch lanes."""
LEAVING: Final = DIRECT | IN_PLACE | BATCH
EVERY: Final = LEAVING | CHANGE


class DirectFacts(NamedTuple):
    """What the direct lane says of a partition."""

    stalled: bool = False
    """Its acknowledgements have stopped."""
    id_rejected: bool = False
    """A quota on producer IDs rejected the lane's."""
    keeps: bool = False
    """A direct record of the partition is of unknown outcome, so the partition must not leave for a batch lane."""
    pinned: bool = False
    """A record of the partition is of unknown outcome in a batch lane."""
    far: bool = False
    """The round trip is long, and a batch lane is ready."""
    waited_for_id: bool = False
    """The next record was there before the permit of the lane, which it is for."""
    draining: bool = False
    gaps: bool = False
    """A purge may have left gaps in the sequence numbers of some partition."""
    closed_by_gap: bool = False
    """It is not this partition's turn to send behind such a gap."""
    outdated: bool = False
    paced: bool = False
    starting: bool = False
    left: bool = False
    """The lane has nothing of the partition any more. Asked only if the partition is to change its path."""
    lanes: bool = True
    """There is a batch lane, or one can be made. Asked only then."""


class LaneFacts(NamedTuple):
    """Why no batch lane takes the next batch; all false when one does."""

    quarantined: bool = False
    outdated: bool = False
    gap: bool = False
    keys_wait: bool = False
    """All that waits is bound to other lanes by its keys."""
    limited: bool = False
    """More lanes are wanted, and the limit on producer IDs forbids one."""
    busy: bool = False
    lanes_come: bool = False
    """Lanes are being made, or get their producer IDs."""
    wanted: int = 0
    """How many lanes there should be."""


class BatchFacts(NamedTuple):
    """The next batch of a partition, and what librdkafka has before it."""

    known: bool = True
    """A broker has told of the topic."""
    in_flight: int = 0
    """In-flight batches to the leader, without all their reports."""
    cap: int | None = None
    """How many of those there may be (max.in.flight.requests.per.connection), None for any number."""
    outstanding: int = 0
    """In-flight batches of the partition to all lanes, without all their reports."""
    budget: int = MOST
    """How many of those there may be (KIP-1269)."""
    on_lane: int = 0
    """How many of those the lane has that would take the next one."""
    leaves_by: float = -NEVER
    """By when each of these has left librdkafka's queue; long ago for one that leaves by its count, without a flush
    trigger."""
    depth: int = 1
    """How many of these there may be."""
    full: bool = True
    """The waiting records fill a batch, by count or by size."""
    linger_ends: float = -NEVER
    lane: LaneFacts = LaneFacts()


class PartitionFacts(NamedTuple):
    """One partition at one look. What was not asked is as in a partition that nothing holds."""

    permit_at: float | None = None
    """When the permit for the producer's first ID is expected, None while records may go."""
    asks_at: float = NEVER
    """When it is asked for again."""
    rejected: bool = False
    """A quota rejected a batch of it, which goes first."""
    miscounted: bool = False
    """Its records name no partition, and lanes differ in how many there are."""
    behind_unplaced: bool = False
    """Records of the topic that have no partition yet come first."""
    node: int | None = None
    """The broker that leads it, None while that is unknown: then the throttle time of any broker counts."""
    throttled_until: float | None = None
    probing: bool = False
    """The broker gets one batch at a time: for as long again as it throttled, and 1 s (`Throttle.probes`)."""
    only_batches: bool = False
    """There is no direct lane (safeproducer.mode=held)."""
    stays: bool = True
    """So it is, or batch lanes have something of the partition that the next record must follow."""
    direct: DirectFacts = DirectFacts()
    batch: BatchFacts = BatchFacts()


class Hold(NamedTuple):
    """Wait for `reason`, until a time if that is known; look again at `again`, or when something changed before.

    `node`: the broker that leads the partition, None while it is unknown. A value, so that any thread sees it whole;
    the sentence is made when somebody asks.
    """

    until: float | None
    reason: HoldReason
    node: int | None = None
    again: float = NEVER

    def sentence(self, now: float) -> str:
        """For a person: a predicate whose subject is the partition."""
        leader = "a broker (its own is not known yet)" if self.node is None else f"broker {self.node}, its leader,"
        left = 0.0 if self.until is None else max(0.0, self.until - now)
        return self.reason.template.format(leader=leader, seconds=left)


class Send(Enum):
    """Nothing holds what waits."""

    DIRECTLY = "to the direct lane, record by record"
    BATCH = "the next batch, to a batch lane"


def _nothing_tells(_: PartitionFacts, now: float) -> float:
    return now + PATIENCE


def _lanes_come(facts: PartitionFacts, now: float) -> float:
    return now + PATIENCE if facts.batch.lane.lanes_come else NEVER


def _leaves_by(facts: PartitionFacts) -> float | None:
    batch = facts.batch
    behind = batch.full and batch.on_lane < batch.depth and batch.leaves_by < NEVER
    return batch.leaves_by if behind else None


class Rule(NamedTuple):
    """A reason, the paths that it closes, and when.

    `until(facts)`: when it ends, None while that is unknown. `again(facts, now)`: when to look again; None where
    something rings when it ends: an answer, another record, or the clock.
    """

    reason: HoldReason
    closes: int
    applies: Callable[[PartitionFacts, float], bool]
    until: Callable[[PartitionFacts], float | None] = lambda _: None
    again: Callable[[PartitionFacts, float], float] | None = _nothing_tells


RULES: tuple[Rule, ...] = (
    # Whatever the path is.
    Rule(
        HoldReason.PRODUCER_ID_LIMIT,
        EVERY,
        lambda facts, _: facts.permit_at is not None,
        lambda facts: facts.permit_at,
        lambda facts, _: facts.asks_at,
    ),
    Rule(HoldReason.QUOTA_RETRY, EVERY, lambda facts, _: facts.rejected),
    Rule(HoldReason.OUTDATED_METADATA, EVERY, lambda facts, _: facts.miscounted),
    Rule(HoldReason.UNKNOWN_TOPIC, EVERY, lambda facts, _: facts.behind_unplaced),
    # The direct lane, and the way from it.
    Rule(HoldReason.LEADER_SILENT, DIRECT | CHANGE, lambda facts, _: facts.direct.stalled),
    Rule(
        HoldReason.THROTTLED,
        DIRECT | CHANGE,
        lambda facts, _: facts.throttled_until is not None,
        lambda facts: facts.throttled_until,
    ),
    Rule(HoldReason.LANE_CHANGE, CHANGE, lambda *_: True),
    Rule(HoldReason.PROBING, DIRECT, lambda facts, _: facts.probing),
    Rule(HoldReason.MODE_HELD, DIRECT, lambda facts, _: facts.only_batches),
    Rule(HoldReason.PRODUCER_ID_QUOTA, DIRECT, lambda facts, _: facts.direct.id_rejected),
    Rule(HoldReason.UNKNOWN_OUTCOME, DIRECT, lambda facts, _: facts.direct.pinned),
    Rule(
        HoldReason.LONG_ROUND_TRIP,
        DIRECT,
        lambda facts, _: (
            facts.direct.far and not (facts.direct.keeps or facts.direct.draining or facts.direct.waited_for_id)
        ),
    ),
    Rule(HoldReason.EXPIRY, DIRECT, lambda facts, _: facts.direct.draining),
    Rule(HoldReason.SEQUENCE_GAP, DIRECT, lambda facts, _: facts.direct.closed_by_gap),
    Rule(HoldReason.OUTDATED_METADATA, DIRECT, lambda facts, _: facts.direct.outdated),
    Rule(HoldReason.PREPARING_LANE, DIRECT, lambda facts, _: facts.direct.paced),
    Rule(HoldReason.FIRST_ACKNOWLEDGEMENT, DIRECT, lambda facts, _: facts.direct.starting),
    # The next batch.
    Rule(HoldReason.UNKNOWN_TOPIC, BATCH, lambda facts, _: not facts.batch.known),
    Rule(
        HoldReason.THROTTLED,
        IN_PLACE | BATCH,
        lambda facts, _: facts.throttled_until is not None,
        lambda facts: facts.throttled_until,
        None,
    ),
    # The answer under way may bring a longer throttle time, and what is sent meanwhile would wait unread (KIP-219).
    Rule(
        HoldReason.PROBING, IN_PLACE | BATCH, lambda facts, _: facts.probing and facts.batch.in_flight > 0, again=None
    ),
    Rule(
        HoldReason.MAX_IN_FLIGHT,
        LEAVING,
        lambda facts, _: facts.batch.cap is not None and facts.batch.in_flight >= facts.batch.cap,
        again=None,
    ),
    Rule(HoldReason.WINDOW, LEAVING, lambda facts, _: facts.batch.outstanding >= facts.batch.budget, again=None),
    # It waits in librdkafka behind the batch in flight, and must not be mixed with one that has not left.
    Rule(
        HoldReason.IN_FLIGHT,
        BATCH,
        lambda facts, now: (
            facts.batch.on_lane > 0
            and not (facts.batch.full and facts.batch.on_lane < facts.batch.depth and facts.batch.leaves_by <= now)
        ),
        _leaves_by,
        None,
    ),
    Rule(
        HoldReason.LINGER,
        LEAVING,
        lambda facts, now: not facts.batch.full and facts.batch.linger_ends > now,
        lambda facts: facts.batch.linger_ends,
        None,
    ),
    # The lane that would take it.
    Rule(HoldReason.EXPIRY, BATCH, lambda facts, _: facts.batch.lane.quarantined),
    Rule(HoldReason.OUTDATED_METADATA, BATCH, lambda facts, _: facts.batch.lane.outdated),
    Rule(HoldReason.SEQUENCE_GAP, BATCH, lambda facts, _: facts.batch.lane.gap),
    Rule(HoldReason.KEY_ORDER, BATCH, lambda facts, _: facts.batch.lane.keys_wait, again=None),
    Rule(HoldReason.LANES_LIMITED, BATCH, lambda facts, _: facts.batch.lane.limited, again=_lanes_come),
    Rule(HoldReason.LANES_BUSY, BATCH, lambda facts, _: facts.batch.lane.busy, again=_lanes_come),
)


def by_path(rules: tuple[Rule, ...]) -> dict[int, tuple[Rule, ...]]:
    """Those that close each path, in their order."""
    return {way: tuple(rule for rule in rules if rule.closes & way) for way in (DIRECT, IN_PLACE, CHANGE, BATCH)}


_BY_PATH = by_path(RULES)


def path(facts: PartitionFacts) -> int:
    """The path of what waits: a partition changes it only when the lane that it leaves has nothing of it any more.

    Lanes have no common order.
    """
    direct = facts.direct
    if facts.stays:
        return BATCH
    if direct.keeps or not (
        direct.id_rejected
        or direct.gaps
        or (direct.far and not direct.waited_for_id)  # by a batch lane it would cost a second producer ID
        or direct.outdated  # a batch lane knows better
        or facts.probing
        or facts.throttled_until is not None
    ):
        return DIRECT
    if not direct.left:
        return CHANGE
    if direct.lanes:
        return BATCH
    # None can be made now. The direct lane sends well, unless it was refused for good.
    return CHANGE if direct.id_rejected or direct.gaps else IN_PLACE


def hold(facts: PartitionFacts, way: int, now: float) -> Hold | None:
    """Why nothing may go this way; None when it may."""
    for reason, _, applies, until, again in _BY_PATH[way]:
        if applies(facts, now):
            ends = until(facts)
            look = (NEVER if ends is None else ends) if again is None else again(facts, now)
            return Hold(ends, reason, facts.node, look)
    return None


def decide(facts: PartitionFacts, now: float) -> Send | Hold:
    """What to do with the records of a partition that wait."""
    way = path(facts)
    return hold(facts, way, now) or (Send.BATCH if way == BATCH else Send.DIRECTLY)


def depth(ack_time: float | None, guard: float) -> int:
    """How many in-flight batches of a partition librdkafka may have at once.

    A full batch may wait behind the one in flight only as long as it is younger than the lane's linger, `guard`: an
    older one at the head of the queue makes librdkafka busy-wait.
    """
    if ack_time is None:
        return 1
    return max(1, min(LONGEST_DEPTH, int(guard / 2 / max(ack_time, 1e-6))))
