"""Followers fetch from their leaders, in the cluster's time: each pair of brokers has one fetcher, as in Kafka.

A fetcher has one request under way. Its answer has 1 MB of a partition and 10 MB at most, and takes as long as the link
needs for it. Either side leaves out what it holds back (KIP-73):

- The follower leaves out a listed partition that lacks committed bytes, while it received more than its rate. With
  nothing left to ask for it rests for a second.
- The leader leaves out a listed partition whose replica is out of sync, while it sent more than its rate. An answer
  without anything comes after half a second, unless there is something to send before.

It goes from event to event: what nobody writes to costs nothing, and an hour is as cheap as its fetches. A replica that
has everything is up to date until more is written.
"""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import Protocol

from safeproducer.testing.fake.rules import replication as rules
from safeproducer.testing.fake.state.topics import NO_LEADER, Partition, Topic

_BACK_OFF_MS = 1000
_WAIT_MS = 500
_Key = tuple[str, int]


class _Cluster(Protocol):
    def is_listed(self, side: rules.Side, broker: int, topic: Topic, index: int) -> bool: ...
    def replication_rate(self, side: rules.Side, broker: int) -> int: ...
    def minimum(self, topic: Topic, partition: Partition) -> int: ...
    def lag_ms(self, broker: int) -> int: ...


@dataclass(slots=True, eq=False)
class _Fetcher:
    """One follower at one leader. ``behind``: the partitions that have something to fetch, in the order of asking.

    ``idle``: more to fetch begins a request at once. An event of an earlier ``turn`` counts no more.
    """

    follower: int
    leader: int
    follows: dict[_Key, tuple[Topic, Partition]] = field(default_factory=dict)
    behind: dict[_Key, None] = field(default_factory=dict)
    idle: bool = True
    turn: int = 0


class Fetchers:
    """All fetchers of a cluster, and what they measure. ``link``: bytes/s of each. Used on the cluster's thread only.

    ``news``: something has changed that a waiting request may care about.
    """

    def __init__(self, link: float, cluster: _Cluster, living: set[int]) -> None:
        self.link = link
        self._cluster = cluster
        self._living, self._working = living, {*living}
        self._pairs: dict[tuple[int, int], _Fetcher] = {}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self._now = 0
        self._meters: dict[tuple[rules.Side, int], rules.ReplicaRate] = defaultdict(rules.ReplicaRate)
        self._bytes_in: dict[tuple[int, _Key], rules.ReplicaRate] = defaultdict(rules.ReplicaRate)
        self._alarm: asyncio.TimerHandle | None = None
        self.news = False

    # ---- time

    def run(self, now: int) -> None:
        while self._events and self._events[0][0] <= now:
            self._now, _, work = heappop(self._events)
            work()
        self._now = max(self._now, now)

    def call_when_due(self, work: Callable[[], None]) -> None:
        """Call this when the next event is due, instead of what was to be called before; in real time."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._events:
            left = max(self._events[0][0] - self._now, 0) / 1000
            self._alarm = asyncio.get_running_loop().call_later(left, work)

    def _at(self, time: int, work: Callable[[], None]) -> None:
        heappush(self._events, (time, next(self._number), work))

    # ---- what happens to partitions and brokers

    def add(self, topic: Topic, partition: Partition) -> None:
        partition.copies = rules.Copies.new(partition.replicas)
        self._wire(topic, partition)

    def remove(self, topic: Topic) -> None:
        for partition in topic.partitions:
            partition.copies = None
            for fetcher in self._pairs.values():
                fetcher.follows.pop((topic.name, partition.index), None)
                fetcher.behind.pop((topic.name, partition.index), None)
        for place in [place for place in self._bytes_in if place[1][0] == topic.name]:
            del self._bytes_in[place]

    def append(self, topic: Topic, partition: Partition, size: int, *, replicated: bool = False) -> None:
        """The leader has so many bytes more, or all replicas in sync have."""
        copies, leader = partition.copies, partition.leader
        if copies is None:
            return
        if replicated:
            copies.grow(size)
            size = 0
        before, copies.ends[leader] = copies.ends[leader], partition.log.end_bytes
        self._bytes_in[leader, (topic.name, partition.index)].record(size, self._now)
        for follower, end in copies.ends.items():
            if follower != leader:
                if end == before and follower in self._working:
                    copies.caught_up[follower] = self._now
                self._offer(topic, partition, follower)
        self._settle(topic, partition)

    def lead(self, topic: Topic, partition: Partition, leader: int) -> None:
        """Let another replica lead, or none. Bytes that it does not have are gone."""
        log, copies = partition.log, partition.copies
        if leader != NO_LEADER and copies is not None:
            end = copies.lead(leader, self._now)
            if end < log.end_bytes:
                partition.truncate(end)
        partition.lead(leader)
        self.news = True
        self._wire(topic, partition)
        self._settle(topic, partition, joins=True)

    def interrupt(self, broker: int, *, lives: bool, works: bool) -> None:
        """A broker stops, starts, hangs or goes on: what it was fetching or sending does not arrive."""
        for brokers, belongs in ((self._living, lives), (self._working, works)):
            (brokers.add if belongs else brokers.discard)(broker)
        for pair, fetcher in self._pairs.items():
            if broker in pair:
                fetcher.turn += 1
                fetcher.idle = True

    def review(self, topic: Topic, partition: Partition) -> None:
        """After a change of brokers, configs or replicas: who is in sync, who leads, what is committed."""
        copies = partition.copies
        if copies is None:
            return
        copies.pause(partition.leader, self._working, self._now)
        living = copies.in_sync & self._living
        if living and living != copies.in_sync:
            copies.in_sync, self.news = living, True
        if partition.leader not in living:
            leader = next((one for one in partition.replicas if one in living), NO_LEADER)
            if leader != partition.leader:
                self.lead(topic, partition, leader)
                return
        self._wire(topic, partition)
        self._settle(topic, partition, joins=True)

    def _wire(self, topic: Topic, partition: Partition) -> None:
        """Let each follower fetch from the leader there is now."""
        key = topic.name, partition.index
        for fetcher in self._pairs.values():
            fetcher.follows.pop(key, None)
            fetcher.behind.pop(key, None)
        for follower in partition.replicas if partition.leader != NO_LEADER else ():
            if follower != partition.leader:
                pair = follower, partition.leader
                self._pairs.setdefault(pair, _Fetcher(*pair)).follows[key] = topic, partition
                self._offer(topic, partition, follower)

    def _offer(self, topic: Topic, partition: Partition, follower: int) -> None:
        """Fetch what this follower does not have yet."""
        copies, leader = partition.copies, partition.leader
        if copies is None or copies.ends[follower] >= copies.ends[leader]:
            return
        fetcher = self._pairs[follower, leader]
        fetcher.behind.setdefault((topic.name, partition.index))
        if fetcher.idle and follower in self._working and leader in self._working:
            fetcher.idle = False
            fetcher.turn += 1
            self._at(self._now, partial(self._fetch, fetcher, fetcher.turn))

    # ---- a fetch

    def _fetch(self, fetcher: _Fetcher, turn: int) -> None:
        if turn != fetcher.turn:
            return
        fetcher.idle = not fetcher.behind
        if fetcher.idle:
            return
        asked = self._asked(fetcher)
        got = self._answered(fetcher, asked)
        if got:
            took = max(1, round(sum(size for _, size, _ in got) / self.link * 1000))
            self._at(self._now + took, partial(self._arrive, fetcher, turn, got, self._now))
            return
        # A request names the partitions that are up to date, too: more of them ends the wait for an answer.
        fetcher.idle = bool(asked) or len(fetcher.behind) < len(fetcher.follows)
        rest = _WAIT_MS if fetcher.idle else _BACK_OFF_MS
        self._at(self._now + rest, partial(self._fetch, fetcher, turn))

    def _asked(self, fetcher: _Fetcher) -> list[tuple[_Key, Topic, Partition, rules.Copies]]:
        """The partitions of a request: without what the follower holds back."""
        follower = fetcher.follower
        over = self._is_over(rules.FOLLOWER, follower)
        return [
            (key, topic, partition, copies)
            for key, (topic, partition) in ((key, fetcher.follows[key]) for key in fetcher.behind)
            if (copies := partition.copies) is not None
            and not (
                over
                and copies.ends[follower] < copies.committed
                and self._cluster.is_listed(rules.FOLLOWER, follower, topic, partition.index)
            )
        ]

    def _answered(
        self, fetcher: _Fetcher, asked: list[tuple[_Key, Topic, Partition, rules.Copies]]
    ) -> list[tuple[_Key, int, int]]:
        """Partitions, how much of each the leader sends, and its end: without what the leader holds back."""
        follower, leader, got, left, counted = fetcher.follower, fetcher.leader, [], rules.ANSWER_BYTES, 0
        over = self._is_over(rules.LEADER, leader)
        listed = {
            key for key, topic, one, _ in asked if self._cluster.is_listed(rules.LEADER, leader, topic, one.index)
        }
        for key, _, partition, copies in asked:
            if over and key in listed and follower not in copies.in_sync:
                continue
            # Retention may have been faster than the follower.
            mine = copies.ends[follower] = max(copies.ends[follower], partition.log.start_bytes)
            size = min(rules.FETCH_BYTES, copies.ends[leader] - mine, left)
            got.append((key, size, copies.ends[leader]))
            counted += size if key in listed else 0
            left -= size
            if not left:
                break
        if listed:
            self._meters[rules.LEADER, leader].record(counted, self._now)
        return got

    def _arrive(self, fetcher: _Fetcher, turn: int, got: list[tuple[_Key, int, int]], asked: int) -> None:
        if turn != fetcher.turn:
            return
        follower = fetcher.follower
        for key, size, end in got:
            topic, partition = fetcher.follows.get(key, (None, None))
            if topic is None or partition is None or partition.copies is None:
                continue  # it moved meanwhile
            copies = partition.copies
            newest = copies.ends[fetcher.leader]
            mine = copies.ends[follower] = min(copies.ends[follower] + size, newest)
            if mine >= end:
                copies.caught_up[follower] = self._now if mine == newest else asked
            if self._cluster.is_listed(rules.FOLLOWER, follower, topic, partition.index):
                self._meters[rules.FOLLOWER, follower].record(size, self._now)
            self._bytes_in[follower, key].record(size, self._now)
            fetcher.behind.pop(key, None)
            if mine < newest:
                fetcher.behind[key] = None  # behind the others
            self._settle(topic, partition, joins=True)
        self._fetch(fetcher, turn)

    # ---- what follows from it

    # Whatever moves a replica ends here. Order matters: who joins the set must have what was committed before, and a
    # commit counts the set with it; the end of a move may take the leader away, which settles anew. What nobody moves
    # must not be forgotten either: a replica that is late is looked at when its time is over, by one event at a time.
    def _settle(self, topic: Topic, partition: Partition, *, joins: bool = False) -> None:
        """Let replicas join the set, if one may have fetched; commit, and finish a move."""
        copies, leader = partition.copies, partition.leader
        if copies is None or leader not in self._working:
            return
        lag = self._cluster.lag_ms(leader)
        if joins and len(copies.in_sync) < len(copies.ends) and (joining := copies.joining(self._working)):
            copies.in_sync |= joining
            self.news = True
        if len(copies.in_sync) >= self._cluster.minimum(topic, partition):
            self.news |= copies.commit(leader, self._living, self._now, lag)
        if (partition.adding or partition.removing) and partition.finish_move(copies.in_sync):
            stays = leader in partition.replicas
            found = (one for one in partition.replicas if one in copies.in_sync & self._living)
            self.lead(topic, partition, leader if stays else next(found, NO_LEADER))
        elif not copies.watched:
            due = copies.next_late(leader, self._living, self._now, lag)
            if due is not None:
                copies.watched = True
                self._at(due, partial(self._look, topic, partition, copies))

    def _look(self, topic: Topic, partition: Partition, copies: rules.Copies) -> None:
        """Take late replicas out of the set."""
        copies.watched = False
        if partition.copies is None or partition.leader not in self._working:
            return
        late = copies.late(partition.leader, self._now, self._cluster.lag_ms(partition.leader))
        if late:
            copies.in_sync -= late
            self.news = True
        self._settle(topic, partition)

    # ---- meters

    def _is_over(self, side: rules.Side, broker: int) -> bool:
        return self.rate(side, broker) > self._cluster.replication_rate(side, broker)

    def rate(self, side: rules.Side, broker: int) -> float:
        """Bytes/s of the listed replicas that this broker sends or receives."""
        return self._meters[side, broker].per_second(self._now)

    def bytes_in(self, broker: int) -> dict[_Key, float]:
        """Bytes/s that are written to, or fetched for, each replica of this broker."""
        return {key: rate.per_second(self._now) for (one, key), rate in self._bytes_in.items() if one == broker}

    def lag(self, broker: int) -> int:
        """Bytes that the replicas of this broker do not have yet."""
        followed = (
            (fetcher.leader, partition.copies)
            for fetcher in self._pairs.values()
            if fetcher.follower == broker
            for _, partition in fetcher.follows.values()
        )
        return sum(copies.ends[leader] - copies.ends[broker] for leader, copies in followed if copies is not None)
