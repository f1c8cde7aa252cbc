"""KIP-73: what replication quotas and the in-sync set do to a partition, and what a move of replicas needs.

1. A listed replica out of sync gets at most the rate of either side. One in sync is never held back (KAFKA-4313), but
   its bytes count.
2. An acknowledgement waits for all replicas in sync, and for a living one that was in sync less than
   `replica.lag.time.max.ms` ago. A throttle therefore delays acknowledgements only by a listed follower that came back.
3. A follower has its rate less the bytes of all partitions that are listed for it, a leader its rate less bytes x
   followers. At 0 or below a replica never catches up. One fetch passes in each time window, whatever the rate is.
4. A missing replica matters at `min.insync.replicas`, and below it writes are refused. A complete set is healthy.
5. A replica is being added if an earlier answer did not have it, or if only the follower list has it.
6. A list is `partition:broker,...` or `*` alone. A rate is a broker's, in bytes/s.

A producer knows its own bytes only. Therefore "never" is certain, and "it ends" is not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
from typing import NamedTuple

from safeproducer.policy.types import ReplicationState, TopicPartition

_LIST = re.compile(r"([0-9]{1,10}:[0-9]{1,10})?(,([0-9]{1,10}:[0-9]{1,10})?)*")
_REMOVE = "If no move runs, remove both lists of throttled replicas of {}, and the rates of the brokers."
WINDOW = 11.0  # seconds over which a broker measures a rate (replication.quota.window.num x .size.seconds)
FETCH, ANSWER = 1 << 20, 10 << 20
"""Bytes of a partition, and of all, in a fetch (replica.fetch.max.bytes, replica.fetch.response.max.bytes)."""
Moves = Mapping[TopicPartition, tuple[frozenset[int], frozenset[int]]]  # partition -> its sources and its destinations
Brokers = Mapping[TopicPartition, Iterable[int]]
MINIMUM, LAG_TIME = "min.insync.replicas", "replica.lag.time.max.ms"


class Side(StrEnum):
    """The broker that sends, and the one that receives. `side("rate")` and `side("replicas")` name their configs."""

    LEADER = "leader"
    FOLLOWER = "follower"

    def __call__(self, what: str) -> str:
        return f"{self}.replication.throttled.{what}"


_SIDES = tuple(Side)
CONFIGS = frozenset({MINIMUM, LAG_TIME, *(side(what) for side in Side for what in ("rate", "replicas"))})


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """A list of a topic. `entries`: (partition, broker); `every`: all replicas; `text`: as somebody has written it."""

    entries: frozenset[tuple[int, int]] = frozenset()
    every: bool = False
    text: str = field(default="", compare=False)

    @classmethod
    def read(cls, text: str) -> ThrottledReplicas | None:
        """None: it cannot be read. Kafka 4.4.0 takes empty entries and leading zeros, and shows no spaces."""
        if not _LIST.fullmatch(text):
            return cls(every=True) if text == "*" else None
        return cls(frozenset(_entry(entry) for entry in text.split(",") if entry), text=text)

    def written(self, entries: Collection[tuple[int, int]]) -> str:
        """The text of these entries in each form that it has: brokers take away by the text, one for one."""
        return ",".join(text for text in (self.text or str(self)).split(",") if text and _entry(text) in entries)

    def __bool__(self) -> bool:
        return self.every or bool(self.entries)

    def has(self, partition: int, broker: int) -> bool:
        return self.every or (partition, broker) in self.entries

    def __str__(self) -> str:
        return "*" if self.every else ",".join(sorted(f"{partition}:{broker}" for partition, broker in self.entries))


def _entry(text: str) -> tuple[int, int]:
    partition, _, broker = text.partition(":")
    return int(partition), int(broker)


class Replicas(NamedTuple):
    """A partition by metadata. `alive`: brokers of the cluster; `added`: replicas that an earlier answer lacked.

    `lost`: replica that was in sync -> when it was first seen out of sync.
    """

    leader: int | None
    replicas: Sequence[int]
    in_sync: frozenset[int]
    alive: frozenset[int]
    added: frozenset[int] = frozenset()
    lost: Mapping[int, float] = {}


class FreeRate(NamedTuple):
    """Bytes/s that are free to catch up with: a broker's rate less what its replicas in sync need of it."""

    free: float
    side: Side
    broker: int
    rate: float
    needed: float


@dataclass(frozen=True, slots=True)
class Facts:
    """`lists` and `rates` lack what was not read; a rate that is not set is None. `bytes_in`: bytes/s on the wire.

    `minimum`: min.insync.replicas, by topic. `lag_time`: replica.lag.time.max.ms, in seconds. `moving`: topics that
    gain a replica now, whose throttle is not left over. `rooms`: what was computed of these facts.
    """

    known: Mapping[TopicPartition, Replicas]
    lists: Mapping[tuple[str, Side], ThrottledReplicas] = field(default_factory=dict)
    rates: Mapping[tuple[int, Side], float | None] = field(default_factory=dict)
    bytes_in: Mapping[TopicPartition, float] = field(default_factory=dict)
    minimum: Mapping[str, int] = field(default_factory=dict)
    lag_time: float = 30.0
    moving: Container[str] = ()
    rooms: dict[tuple[Side, int, float], FreeRate] = field(default_factory=dict, init=False, compare=False)

    def unusual(self, tp: TopicPartition) -> bool:
        """Whether more is to be read: a replica is out of sync, or a throttle holds, or may hold as its list says."""
        one = self.known[tp]
        listed = self.listed(tp[0])
        limits = (self.limited(side, tp, broker) is not False for side in listed for broker in one.replicas)
        return not one.in_sync.issuperset(one.replicas) or any(limits)

    def listed(self, topic: str) -> list[Side]:
        """The sides on which a throttle is for some replica of it. Most topics have none, and may be thousands."""
        return [side for side in _SIDES if self.lists.get((topic, side))]

    def limited(self, side: Side, tp: TopicPartition, broker: int) -> bool | None:
        """Whether a rate holds for this replica on this side; None: that was not read."""
        found = self.lists.get((tp[0], side))
        if self.rates.get((broker, side), 0) is None or (found is not None and not found.has(tp[1], broker)):
            return False
        return True if found is not None and (broker, side) in self.rates else None

    def room(self, side: Side, broker: int, rate: float) -> FreeRate:
        """By rule 3, from all partitions that are known and listed."""
        if (known := self.rooms.get((side, broker, rate))) is not None:
            return known
        needed, behind = 0.0, 0
        for tp, one in self.known.items():
            others = set(one.replicas) & one.alive - {one.leader}
            copies = others if broker == one.leader else others & {broker}
            found = self.lists.get((tp[0], side))
            if found is not None and found.has(tp[1], broker) and (broker == one.leader) is (side is Side.LEADER):
                needed += self.bytes_in.get(tp, 0.0) * len(copies)
                behind += not copies <= one.in_sync
        room = FreeRate(max(rate, min(behind * FETCH, ANSWER) / WINDOW) - needed, side, broker, rate, needed)
        return self.rooms.setdefault((side, broker, rate), room)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`broker`: the replica behind. `moving`: it is being added. `delays_until`: acknowledgements may wait for it.

    `spare`: so many more replicas may fail before writes are refused; below 0 they are. None: that is not known.
    """

    state: ReplicationState
    sentence: str
    cure: str = ""
    broker: int | None = None
    moving: bool | None = False
    left_over: bool = False
    spare: int | None = None
    room: FreeRate | None = None
    delays_until: float | None = None


def judge(facts: Facts, tp: TopicPartition, now: float) -> Verdict:
    """The state of one partition. `now` is by the clock of `Replicas.lost`."""
    one, (topic, partition) = facts.known[tp], tp
    out = [broker for broker in one.replicas if broker not in one.in_sync]
    minimum = facts.minimum.get(topic)
    # Kafka asks for no more replicas than the partition has.
    spare = None if minimum is None else len(one.in_sync) - min(minimum, len(one.replicas))
    if not out:
        left = not one.added and topic not in facts.moving
        left = left and any(facts.limited(side, tp, broker) for side in facts.listed(topic) for broker in one.replicas)
        rest = ", and a throttle is still set: a broker that restarts catches up at its rate, and acknowledgements wait"
        sentence, cure = f"all replicas of {topic} [{partition}] are in sync{left * rest}", left * _REMOVE.format(topic)
        return Verdict(ReplicationState.IN_SYNC, sentence, cure, None, bool(one.added), left, spare)
    tail = f"; {len(one.in_sync)} of {len(one.replicas)} replicas are in sync"
    tail += f", min.insync.replicas is {minimum}" if minimum else ""
    if spare is not None and spare <= 0:
        tail += f": {'' if spare else 'one more failure, and '}writes with acks=all are refused (NOT_ENOUGH_REPLICAS)"
    limits = {broker: _limit(facts, tp, broker) for broker in out if broker in one.alive}
    if limits:
        worst = min(limits, key=lambda broker: limits[broker][:2])
        verdict = _behind(facts, tp, worst, limits[worst][2], limits[worst][0] == 1, now)
        return replace(verdict, sentence=verdict.sentence + tail, spare=spare)
    who = " and ".join([f"broker {broker}" for broker in out])
    has, is_ = ("has a replica", "is") if len(out) == 1 else ("have replicas", "are")
    sentence = f"{who}, which {has} of {topic} [{partition}], {is_} not in the cluster{tail}"
    return Verdict(ReplicationState.BROKER_DOWN, sentence, f"Bring {who} back.", out[0], spare=spare)


def _limit(facts: Facts, tp: TopicPartition, broker: int) -> tuple[int, float, FreeRate | None]:
    """The limit of a replica, worst first: a room (0), a throttle that was not read (1), nothing (2)."""
    sides = {Side.FOLLOWER: broker, Side.LEADER: facts.known[tp].leader}
    limited = {(at, side): facts.limited(side, tp, at) for side, at in sides.items() if at is not None}
    rooms = [facts.room(side, at, facts.rates[at, side] or 0) for (at, side), holds in limited.items() if holds]
    if rooms:
        return 0, min(rooms).free, min(rooms)
    return 1 if None in limited.values() else 2, 0.0, None


def _behind(facts: Facts, tp: TopicPartition, broker: int, room: FreeRate | None, unread: bool, now: float) -> Verdict:
    """A replica that is out of sync on a living broker."""
    one, (topic, partition) = facts.known[tp], tp
    leaders, followers = (facts.lists.get((topic, side)) for side in Side)
    new = leaders is not None and followers is not None and (partition, broker) in followers.entries
    new = new and leaders is not None and not leaders.has(partition, broker)
    moving = True if broker in one.added else False if broker in one.lost else new or None
    action = f"replica {broker} of {topic} [{partition}] is {'being added' if moving else 'catching up'}"
    if room is None and unread:
        sentence, cure = f"{action}; its throttle could not be read", "Grant DESCRIBE_CONFIGS on topic and cluster."
        return Verdict(ReplicationState.UNREADABLE, sentence, cure, broker, moving)
    if room is None:
        return Verdict(ReplicationState.CATCHING_UP, f"{action} without a throttle", "", broker, moving)
    until = one.lost.get(broker, -inf) + facts.lag_time
    config = f"{room.side('rate')} of broker {room.broker}"
    own = f"{config} is {rate_text(room.rate)}, and this producer alone needs {rate_text(room.needed)} of it"
    state, sentence = ReplicationState.NEVER_ENDS, f"{action} and never ends: {own}"
    if room.free > 0:
        state = ReplicationState.THROTTLED
        sentence = f"{action} at {rate_text(room.free)} at most: {own}; the bytes of others are not known here"
    if now < until:
        sentence += f"; it was in sync lately, so acknowledgements may wait for it for {until - now:.0f} s"
    cure = f"Raise {config} above {rate_text(max(room.rate, room.needed))}{', or write less' * (room.free <= 0)}."
    cure += "" if moving else f" {_REMOVE.format(topic)}"
    return Verdict(state, sentence, cure, broker, moving, moving is False, None, room, until if now < until else None)


def rate_text(rate: float) -> str:
    return f"{rate / 1e6:.1f} MB/s" if rate >= 1e5 else f"{rate / 1e3:.0f} kB/s"


def moves(current: Brokers, ongoing: Brokers, target: Brokers) -> Moves:
    """Moves as of Kafka's tool: `current` has all replicas, `ongoing` those being added, `target` the wanted ones."""
    found = {tp: (frozenset(current[tp]) - frozenset(adding), frozenset(adding)) for tp, adding in ongoing.items()}
    for tp, wanted in target.items():
        sources = found[tp][0] if tp in found else frozenset(current[tp])
        found[tp] = sources, frozenset(wanted) - sources
    return found


def throttled(moves: Moves) -> dict[tuple[str, Side], ThrottledReplicas]:
    """The lists that limit these moves and nothing else: leaders are sources, followers destinations."""
    found: dict[tuple[str, Side], set[tuple[int, int]]] = {}
    for (topic, partition), move in moves.items():
        for side, brokers in zip(Side, move, strict=True):
            found.setdefault((topic, side), set()).update((partition, broker) for broker in brokers)
    return {key: ThrottledReplicas(frozenset(entries)) for key, entries in found.items()}


def move_time(moved: int, partitions: int, log: float, brokers: int, rate: float, bytes_in: float) -> float | None:
    """MoveTime = MoveRatio x TotalLogSizePerBroker x #Brokers / (quota - max(BytesInPerSec)); None: never."""
    return None if rate <= bytes_in else moved / partitions * log * brokers / (rate - bytes_in)


def first_answers(brokers: int, answer: float, rate: float, network: float) -> float:
    """#brokers x replica.fetch.response.max.bytes / min(QuotaLeader x #brokers, NetworkSpeed), below WINDOW."""
    return brokers * answer / min(rate * brokers, network)


def estimate(size: float, free: float, partitions: int) -> tuple[float, float] | None:
    """Seconds for so many bytes, as a range; None: never. First answers may exceed a rate; few partitions wait more."""
    if free <= 0:
        return None
    return max(0.0, size - min(partitions * FETCH, ANSWER)) / free, size / free * (1.15 + 0.4 / max(1, partitions)) + 2
