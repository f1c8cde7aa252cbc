"""Whether the next records of a partition leave now, and by which lane: facts in, a decision out.

Pure: the caller says how things are, with `now` in seconds of any monotonic clock. RULES is the one order of the
reasons to hold: the first rule counts that closes the partition's path and applies. Three places add to it.
`HoldFacts.waits_for()` shows a missing topic before all rules, and a silent leader instead of a wait for its answer.
`Dispatcher._send_directly()` asks a partition's probation record by record. `Inspection._inside()` says why records
wait that librdkafka has.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from itertools import compress
from operator import attrgetter
from typing import Final, NamedTuple

from safeproducer.policy.hold_reason import HoldReason as Why
from safeproducer.policy.types import NEVER
from safeproducer.policy.window import MOST

LOOK_AGAIN = 0.01  # how soon to look again when nothing tells of the change that is waited for
_LEADER_COMES = 0.1  # seconds between two looks whether the leader is known: it may be one that does not throttle
LONGEST_DEPTH = 3
"""In-flight batches of one partition inside librdkafka at once: one on its way and full ones behind it, so that the
next one leaves without waiting for Python."""
DIRECT: Final = 1  # by the direct lane
IN_PLACE: Final = 2  # by the direct lane, in place of a batch lane that cannot be made
CHANGE: Final = 4  # from the direct lane to the batch lanes, as soon as it has nothing of the partition any more
BATCH: Final = 8  # by a batch lane
LEAVING: Final = DIRECT | IN_PLACE | BATCH
EVERY: Final = LEAVING | CHANGE


class Wish(Enum):
    """A look does nothing itself. That at a partition may want its topic asked for, records placed, the first batch
    lane made; that at the direct lane, nothing more sent there, a purge, another look at partitions."""

    ASK, PLACE, LANE, HOLD, PURGE, LOOK = range(6)


class LaneFacts(NamedTuple):
    """A lane's word on a partition: the direct lane's, or what the batch lanes lack when none takes the next batch.

    - `draining`: it is about to be purged. `outdated`: another one knows better who leads.
    - `gap`: another partition has the lane to itself, or sequence numbers have a gap that wants it empty.
    - `renewing`: one failed, and another one comes in its place, at `renews_at` if that is known.

    Of the direct lane alone:

    - `silent`: its leader owes an acknowledgement. `old`: a record of it has used up a third of its time.
    - `keeps`: a direct record of the partition is of unknown outcome, and must not be overtaken on a batch lane.
      `pinned`: the outcome of a record that was in a batch lane is unknown.
    - `many`: partitions are many for the brokers, and wait for connections: no lane is made for a throttle time.
    - `prefers_batches`: the round trip is long, a batch lane is ready, and the next record came after the permit.
    - `id_rejected`: a quota on producer IDs rejected it. `starting`, `paced`: what waits is on probation, or waits for
      a batch lane that is being made.
    - `gaps`: sequence numbers of some partition may have a gap.
    - `emptied`: the lane has nothing of it; `batch_lane`: one can be had. Asked only for a change of path.

    Of batch lanes alone: `wanted`: how many there should be; `limited`: there are fewer for want of permits.
    `keys_wait`: the keys that wait are bound to lanes that are full. `busy`: each lane is; `lanes_come`: one is made.
    """

    draining: bool = False
    outdated: bool = False
    gap: bool = False
    renewing: bool = False
    renews_at: float | None = None
    silent: bool = False
    old: bool = False
    id_rejected: bool = False
    keeps: bool = False
    pinned: bool = False
    many: bool = False
    prefers_batches: bool = False
    gaps: bool = False
    paced: bool = False
    starting: bool = False
    emptied: bool = False
    batch_lane: bool = True
    keys_wait: bool = False
    limited: bool = False
    busy: bool = False
    lanes_come: bool = False
    wanted: int = 0


class BatchFacts(NamedTuple):
    """The next batch of a partition, and the batches without all their reports.

    - `in_flight`: those to the leader; `cap`: how many there may be (max.in.flight.requests.per.connection).
    - `outstanding`: those of the partition; `budget`: how many there may be (KIP-1269).
    - `on_lane`: those of the partition in the lane that would take the next one; `depth`: how many there may be;
      `leaves_by`: by when each has left librdkafka's queue, long ago for one that leaves by its count.
    - `full`: what waits fills a batch, by count or by size; `due`: when its linger is over, 0 where it is full.
    - `probe_is_out`: its leader is probed, and has as much under way as one batch may have.
    """

    in_flight: int = 0
    cap: float = NEVER
    outstanding: int = 0
    budget: int = MOST
    on_lane: int = 0
    depth: int = 1
    leaves_by: float = -NEVER
    full: bool = True
    due: float = 0.0
    probe_is_out: bool = False


class PartitionFacts(NamedTuple):
    """A partition at one look. What was not asked is as where nothing holds records back, but for `must_batch`: without
    facts of the direct lane the partition takes a batch lane.

    - `node`: the leader, None while unknown. `probing`: it gets as much as one batch at a time (`Throttle.probes`). By
      position: the fields of `Leader` are first, `batch` is last.
    - `id_at`: when the producer may get its first ID, None once it has; `asks_at`: when it is asked for again.
    - `apart_until`: it, or its topic, made one native producer after the other fail, and waits alone.
    - `rejected`: a quota rejected a batch, which goes first.
    - `unknown`: no broker has told of the topic, or records without a partition are before these; or these name none,
      and lanes differ in how many partitions the topic has.
    - `only_batch_lanes`: no direct lane. `must_batch`: that, or it must follow others. `wishes`: what may end the wait.
    """

    node: int | None = None
    throttled_until: float | None = None
    probing: bool = False
    id_at: float | None = None
    asks_at: float = NEVER
    apart_until: float | None = None
    rejected: bool = False
    unknown: bool = False
    only_batch_lanes: bool = False
    must_batch: bool = True
    lane: LaneFacts = LaneFacts()
    wishes: tuple[Wish, ...] = ()
    batch: BatchFacts = BatchFacts()


class Hold(NamedTuple):
    """Wait for `reason`, until a time if it is known; look again at `again`, or when something changed before.

    A value, so that any thread sees it whole; the sentence is made when somebody asks.
    """

    until: float | None
    reason: Why
    node: int | None = None
    again: float = NEVER

    def lasts(self, leader: int | None, now: float) -> bool:
        """Whether the noted reason still holds: its time is not over, and it is not any broker's throttle time now that
        the leader is known."""
        own = self.reason is not Why.THROTTLED or self.node is not None or leader is None
        return own and (self.until is None or self.until > now)

    def sentence(self, now: float) -> str:
        """For a person: a predicate whose subject is the partition."""
        leader = "a broker (its own is not known yet)" if self.node is None else f"broker {self.node}, its leader,"
        left = 0.0 if self.until is None else max(0.0, self.until - now)
        return self.reason.template.format(leader=leader, seconds=left)


class Rule(NamedTuple):
    """A reason, the paths that it closes, the fact without which it is not asked, and until when it closes them.

    `until` may be unknown: None. `again` says when to look again; it is None where something rings at the end: an
    answer, another record, statistics, or the clock.
    """

    reason: Why
    closes: int
    fact: str
    applies: Callable[[PartitionFacts, float], bool] = lambda *_: True
    until: Callable[[PartitionFacts], float | None] = lambda _: None
    again: Callable[[PartitionFacts, float], float] | None = lambda _, now: now + LOOK_AGAIN


def _when_it_ends(f: PartitionFacts, now: float) -> float:
    if path(f) == CHANGE or f.throttled_until is None:
        return now + LOOK_AGAIN
    return f.throttled_until if f.node is not None else min(f.throttled_until, now + _LEADER_COMES)


def _lanes_come(f: PartitionFacts, now: float) -> float:
    return now + LOOK_AGAIN if f.lane.lanes_come else NEVER


def _batches_itself(f: PartitionFacts) -> bool:
    """Whether the direct lane would take them: librdkafka says which batch probes, and nothing tells of its answer."""
    return not (f.must_batch or f.lane.emptied)


def _probe_ends(f: PartitionFacts, now: float) -> float:
    return now + LOOK_AGAIN if _batches_itself(f) else NEVER


def _behind(f: PartitionFacts) -> float | None:
    """From when on a batch may wait in librdkafka behind the one in flight: that has left the queue, never mixed."""
    return f.batch.leaves_by if f.batch.full and f.batch.on_lane < f.batch.depth and f.batch.leaves_by < NEVER else None


RULES: tuple[Rule, ...] = (
    Rule(Why.PRODUCER_ID_LIMIT, EVERY, "id_at", until=lambda f: f.id_at, again=lambda f, _: f.asks_at),
    Rule(Why.RENEWING, EVERY, "apart_until", until=lambda f: f.apart_until, again=lambda f, _: f.apart_until or NEVER),
    Rule(Why.QUOTA_RETRY, EVERY, "rejected"),
    Rule(Why.OUTDATED_METADATA, EVERY, "unknown"),
    Rule(Why.THROTTLED, EVERY, "throttled_until", until=lambda f: f.throttled_until, again=_when_it_ends),
    Rule(Why.LEADER_SILENT, DIRECT | CHANGE, "lane.silent", again=None),
    Rule(Why.BACKLOG, DIRECT | CHANGE, "lane.old", again=None),
    Rule(Why.RENEWING, DIRECT | CHANGE | BATCH, "lane.renewing", until=lambda f: f.lane.renews_at),
    Rule(Why.LANE_CHANGE, CHANGE, "lane"),  # always there
    # The answer under way may bring a longer throttle time, and what is sent meanwhile would wait unread (KIP-219).
    Rule(Why.PROBING, LEAVING, "probing", lambda f, _: f.batch.probe_is_out or _batches_itself(f), again=_probe_ends),
    Rule(Why.MODE_HELD, DIRECT, "only_batch_lanes"),
    Rule(Why.PRODUCER_ID_QUOTA, DIRECT, "lane.id_rejected"),
    Rule(Why.UNKNOWN_OUTCOME, DIRECT, "lane.pinned"),
    Rule(Why.LONG_ROUND_TRIP, DIRECT, "lane.prefers_batches", lambda f, _: not (f.lane.keeps or f.lane.draining)),
    Rule(Why.EXPIRY, DIRECT | BATCH, "lane.draining"),
    Rule(Why.OUTDATED_METADATA, DIRECT | BATCH, "lane.outdated"),
    Rule(Why.SEQUENCE_GAP, DIRECT | BATCH, "lane.gap"),
    Rule(Why.PREPARING_LANE, DIRECT, "lane.paced"),
    Rule(Why.FIRST_ACKNOWLEDGEMENT, DIRECT, "lane.starting"),
    Rule(Why.MAX_IN_FLIGHT, LEAVING, "batch.in_flight", lambda f, _: f.batch.in_flight >= f.batch.cap, again=None),
    Rule(Why.WINDOW, LEAVING, "batch.outstanding", lambda f, _: f.batch.outstanding >= f.batch.budget, again=None),
    Rule(Why.IN_FLIGHT, BATCH, "batch.on_lane", lambda f, now: (by := _behind(f)) is None or by > now, _behind, None),
    Rule(Why.LINGER, LEAVING, "batch.due", lambda f, now: f.batch.due > now, lambda f: f.batch.due, None),
    Rule(Why.KEY_ORDER, BATCH, "lane.keys_wait", again=None),
    Rule(Why.LANES_LIMITED, BATCH, "lane.limited", again=_lanes_come),
    Rule(Why.LANES_BUSY, BATCH, "lane.busy", again=_lanes_come),
)


def by_path(rules: tuple[Rule, ...]) -> dict[int, tuple[tuple[Rule, ...], attrgetter[tuple[object, ...]]]]:
    """Path -> the rules that close it, and how their facts are read."""
    ways = {way: tuple(rule for rule in rules if rule.closes & way) for way in (DIRECT, IN_PLACE, CHANGE, BATCH)}
    return {way: (found, attrgetter(*[rule.fact for rule in found])) for way, found in ways.items()}


_RULES_OF = by_path(RULES)


def path(facts: PartitionFacts) -> int:
    """The path of the next record. A partition leaves a lane only when that has nothing of it: lanes share no order."""
    lane = facts.lane
    if facts.must_batch:
        return BATCH
    if (lane.keeps and not lane.renewing) or not (
        lane.id_rejected
        or lane.renewing
        or lane.gaps
        or lane.prefers_batches
        or lane.outdated  # a batch lane knows better
        or facts.probing
        or (facts.throttled_until is not None and not lane.many)
    ):
        return DIRECT
    if not lane.emptied:
        return CHANGE
    if lane.batch_lane:
        return BATCH
    # The direct lane sends well, unless it was refused for good.
    return CHANGE if lane.id_rejected or lane.renewing or lane.gaps else IN_PLACE


def hold(facts: PartitionFacts, way: int, now: float) -> Hold | None:
    """Why nothing may go this way; None when it may."""
    rules, read = _RULES_OF[way]
    for rule in compress(rules, read(facts)):
        if rule.applies(facts, now):
            ends = rule.until(facts)
            rings = NEVER if ends is None else ends
            return Hold(ends, rule.reason, facts.node, rings if rule.again is None else rule.again(facts, now))
    return None


def decide(facts: PartitionFacts, now: float) -> int | Hold:
    """The path by which the records of a partition leave that wait, or why they wait on."""
    way = path(facts)
    return hold(facts, way, now) or way


def depth(ack_time: float | None, longest_wait: float) -> int:
    """How many in-flight batches of a partition librdkafka may have at once.

    A full batch may wait behind the one in flight for `longest_wait` seconds: librdkafka busy-waits for an older one.
    """
    if ack_time is None:
        return 1
    return max(1, min(LONGEST_DEPTH, int(longest_wait / 2 / max(ack_time, 1e-6))))


TURN: Final = Hold(None, Why.TURN)  # the sender has not looked at the partition yet
