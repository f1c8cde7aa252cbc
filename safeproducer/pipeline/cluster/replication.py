"""Looks at the replicas of the topics in use, and says what replication quotas and the in-sync set do to them (KIP-73).

Metadata is asked for when a topic is first used, then each minute, and every 5 s while a replica is out of sync: by a
lane, and for many topics by the admin client, in bunches. A lane may be bound to the broker that hangs, and so may an
admin client that was kept. So while a leader is silent, or refuses for now, a client that is made for one question
asks: the leader, or else another broker. Configs are asked for only while something is unusual; beside that the hourly
question of KIP-854 brings those of topics along.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from heapq import heappop, heappush
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from safeproducer.kafka.native import KafkaException
from safeproducer.kafka.statistics import Statistics, sent_between
from safeproducer.pipeline.cluster.asker import Asker, Question
from safeproducer.pipeline.cluster.cluster_view import ClusterView, Configs, next_step
from safeproducer.pipeline.cluster.metadata import NO_LANE, Metadata
from safeproducer.pipeline.notifications import Notifications
from safeproducer.policy.cluster_metadata import BUNCH, MANY, PartitionInfo, TopicMetadata
from safeproducer.policy.replication import LAG_TIME, MINIMUM, Facts, Replicas, Side, ThrottledReplicas, Verdict, judge
from safeproducer.policy.types import NEVER, ReplicationState, TopicPartition
from safeproducer.runtime import clock
from safeproducer.settings.delivery import SendConfig
from safeproducer.snapshot import ReplicationSnapshot

if TYPE_CHECKING:
    from safeproducer.kafka.admin import Admin

REPLICAS = "which replicas are in sync of"
CONFIGS = "what limits its replicas, and those of"
FIRST, QUIET, UNUSUAL, SILENT = 0.4, 60.0, 5.0, 1.0
"""Seconds from the first record of a topic to the first look, so that a crash loop looks at nothing; between looks."""
_REFUSED = 3600.0
_LOOK_EVERY = 0.5
_SLEEPS = 1.0  # seconds for which an idle sender may sleep although a topic is due
_MEASURED = 10.0  # seconds over which this producer's bytes are counted
_LEFT_FOR = 600.0
_BROKERS_ASKED = 3
_PATIENCE = 4.0  # seconds after which a broker that was asked does not tell
_UNREAD: Configs = (-NEVER, {})
_NONE: Mapping[Any, Any] = MappingProxyType({})
_SOON = QUIET / 4
_IN_USE, _LED = "the topics in use", "its partitions"


@dataclass(eq=False)
class _Topic:
    """`look_at`: when to ask for its replicas. `since`: it has had a replica out of sync since then.

    `judged`: of which answer the verdicts are. `busy`: there is more to read. `warned`: of what, in this episode.
    """

    look_at: float = NEVER
    judged: float = -NEVER
    since: float = -NEVER
    busy: bool = False
    warned: set[str] = field(default_factory=set)

    @property
    def every(self) -> float:
        """Seconds from one look, or question for configs, to the next."""
        return QUIET if self.since == -NEVER else UNUSUAL

    def answered(self, at: float, complete: bool, now: float) -> None:
        """Whether all replicas are in sync, by the answer that was asked for `at` then."""
        self.judged, self.since = at, -NEVER if complete else now if self.since == -NEVER else self.since

    def asks(self, more: bool) -> None:
        """Whether there is more to read; else the episode is over."""
        self.busy, self.warned = more, self.warned if more else set()


@dataclass(eq=False)
class Replication:
    """`look()` on the sender's thread, the asker asks, any thread has `known()`.

    - `topics()`: those in use. `silent`: partitions whose leader owes an acknowledgement, or refuses for now.
    - `schedule`: a heap of when to look at which topic. `due`: those that a bunch is to be asked for.
    - `wanted`: by broker to be asked, whose configs. `asked`: by broker or topic, when they were asked for last.
    - `sent`: when that was measured last, by which statistics, and bytes/s by partition.
    """

    _delivery: SendConfig
    _cluster: ClusterView
    _metadata: Metadata
    _asker: Asker
    _topics: Callable[[], Collection[str]]
    _notifications: Notifications
    _look_at: float = 0.0
    _by_topic: dict[str, _Topic] = field(default_factory=dict)
    _schedule: list[tuple[float, str]] = field(default_factory=list)
    _due: dict[str, None] = field(default_factory=dict)
    _silent: Collection[TopicPartition] = ()
    _wanted: dict[int, set[int | str]] = field(default_factory=dict)
    _asked: dict[int | str, float] = field(default_factory=dict)
    _sent: tuple[float, Mapping[int, Statistics], Mapping[TopicPartition, float]] = 0.0, _NONE, _NONE

    def known(self, now: float | None) -> dict[TopicPartition, ReplicationSnapshot]:
        """Each partition that was looked at; without ages where `now` is None."""
        known = self._cluster.replicas.copy().items()
        if now is None:
            return {tp: told for tp, (told, *_) in known}
        return {tp: replace(told, since=now - since, age=now - at) for tp, (told, since, at) in known}

    def look(self, now: float, silent: Callable[[float], Collection[TopicPartition]]) -> float:
        """Have asked what is due, and judge the answers; `silent(now)`: whose leader owes an acknowledgement.

        When to look again, as answers are left or a topic is due soon; else NEVER.
        """
        # To judge thousands of topics at once would keep the sender from its records: only those with a new answer are
        # judged, BUNCH at a time, and what is left has this called again soon.
        if self._delivery.own.replication == "off":
            return NEVER
        if now < self._look_at:
            return self._next(now)
        tried = {tp for tp, it in self._cluster.attempts.copy().items() if it.refused and now < it.at + UNUSUAL}
        self._look_at, self._silent = now + _LOOK_EVERY / (2 if tried else 1), tried.union(silent(now))
        self._measure(now)
        if len(topics := self._topics()) != len(self._by_topic):
            self._meet(set(topics), now)
        connected = bool(self._silent and self._cluster.connected())
        self._ask_for(self._scheduled({tp[0] for tp in self._silent} if connected else (), now), now)
        for node in {self._cluster.partitions.leader(*tp) for tp in self._silent} if connected else ():
            self._asker.want(Question(REPLICAS, node, _LED), self._ask_leader, now, for_seconds=2 * SILENT)
        answered = self._cluster.partitions.looked_at
        news = {topic: answered.pop(topic, at) for topic, at in list(answered.copy().items())[:BUNCH]}
        states = [(topic, at, self._by_topic.get(topic)) for topic, at in news.items()]
        if due := {topic: at for topic, at, state in states if state and (state.busy or at > state.judged)}:
            self._judge_all(due, now)
        return self._next(now)

    def _next(self, now: float) -> float:
        soon = bool(self._schedule) and self._schedule[0][0] <= now + _SLEEPS
        return self._look_at if self._cluster.partitions.looked_at or soon else NEVER

    def _meet(self, topics: set[str], now: float) -> None:
        for topic in topics - self._by_topic.keys():
            self._by_topic[topic] = _Topic()
            self._plan(topic, now + FIRST)
        for topic in self._by_topic.keys() - topics:
            del self._by_topic[topic]
            for number in range(self._cluster.partitions.count(topic)):
                self._cluster.replicas.pop((topic, number), None)

    def _plan(self, topic: str, at: float) -> None:
        self._by_topic[topic].look_at = at
        heappush(self._schedule, (at, topic))

    def _scheduled(self, silent: Collection[str], now: float) -> list[str]:
        """Topics to look at now, but no `silent` ones; of many also those that are due soon, for one question."""
        found: dict[str, float] = {}
        schedule = self._schedule
        soon = now + (_SOON if len(self._by_topic) > MANY else 0.0)
        while schedule and schedule[0][0] <= (soon if found else now) and len(found) < BUNCH:
            at, topic = heappop(schedule)
            if (state := self._by_topic.get(topic)) is not None and state.look_at == at:
                found[topic] = SILENT if topic in silent else state.every
        for topic, every in found.items():
            self._plan(topic, now + every)
        return [topic for topic in found if topic not in silent]

    def _ask_for(self, topics: list[str], now: float) -> None:
        if len(topics) > MANY:
            self._due.update(dict.fromkeys(topics))
            self._asker.want(Question(REPLICAS, None, _IN_USE), self._ask_bunch, now, next_step(), 2 * QUIET)
        else:
            for topic in topics:
                self._metadata.look_at(topic)

    def _ask_bunch(self, admin: Admin, question: Question) -> float:
        """Ask for all that are due; a lane for topics that are not told, or have another number of partitions."""
        topics, at, partitions = list(self._due)[:BUNCH], clock.monotonic(), self._cluster.partitions
        found: dict[str, TopicMetadata] = {}
        with suppress(KafkaException):
            found = admin.replicas(topics) if topics else {}
        for topic in topics:
            self._due.pop(topic, None)
            told = found.get(topic)
            if told and not partitions.known(topic):
                self._cluster.heard(topic, NO_LANE, at, told)
            elif told and max(told) + 1 == partitions.count(topic):
                partitions.learn_replicas(topic, told, at)
            else:
                self._metadata.look_at(topic)
        return 0.0 if self._due else QUIET

    def _ask_leader(self, admin: Admin, question: Question) -> float:
        """The leader, or else another living broker, by a client of its own, for what is silent there."""
        partitions, node = self._cluster.partitions, question.node
        silent = {tp[0]: partitions.info(tp).looked_at for tp in self._silent if partitions.leader(*tp) == node}
        topics = sorted(silent, key=silent.__getitem__)[:BUNCH]
        addresses = [address for _, address in sorted(partitions.alive.items(), key=lambda it: it[0] != node)]
        for address in addresses[:_BROKERS_ASKED] or [""]:
            at = clock.monotonic()
            with suppress(KafkaException):
                found = (admin.at(address) if address else admin).replicas(topics) if topics else {}
                for topic in topics:
                    partitions.learn_replicas(topic, found.get(topic, {}), at)
                    if not found.get(topic):  # it may have been deleted: a lane asks, and tells
                        self._metadata.look_at(topic, gone=True)
                break
        return SILENT

    def _ask_configs(self, admin: Admin, question: Question) -> float:
        node, at, alive = cast("int", question.node), clock.monotonic(), self._cluster.partitions.alive
        keys, address = self._wanted.pop(node, ()), alive.get(node)
        with suppress(KafkaException):
            asked = admin.at(address) if self._silent and address else admin
            self._cluster.read(asked.configs(keys) if keys else {}, at)
        return NEVER

    def _judge_all(self, due: Mapping[str, float], now: float) -> None:
        """Judge these topics, by when their answers were asked for; topics that are listed as throttled count, too."""
        partitions = self._cluster.partitions
        infos = {topic: partitions.replicated(topic) for topic in {*due, *self._cluster.listed}}
        known = {tp: _replicas(info) for found in infos.values() for tp, info in found.items()}
        facts = cache(partial(self._facts, known))
        for topic, at in due.items():
            state, own = self._by_topic[topic], {tp: known[tp] for tp in infos[topic]}
            state.answered(at, all(set(one.replicas) <= one.in_sync for one in own.values()), now)
            if now + state.every < state.look_at:
                self._plan(topic, now + state.every)
            self._judge(topic, own, facts(state.since), now)
            if state.busy:
                partitions.looked_at.setdefault(topic, at)

    def _judge(self, topic: str, own: Mapping[TopicPartition, Replicas], facts: Facts, now: float) -> None:
        """The partitions of one topic, by what was read since it has a replica out of sync."""
        state = self._by_topic[topic]
        unusual = [tp for tp in own if facts.unusual(tp)]
        state.asks(bool(unusual))
        for tp in unusual:
            self._read(tp, own[tp], state, now)
        if any(judge(facts, tp, now).moving for tp in unusual):
            facts = replace(facts, moving={topic})
        for tp, one in own.items():
            verdict = judge(facts, tp, now)
            keys: list[int | str] = [topic, *(node for node in one.alive if node in (one.leader, verdict.broker))]
            if any(self._waits(key, state, now) for key in keys):
                continue  # until its configs are read
            if verdict.state is ReplicationState.UNREADABLE and not any(map(self._is_refused, keys)):
                verdict = replace(verdict, cure="")
            self._note(tp, verdict, facts, now)

    def _facts(self, known: Mapping[TopicPartition, Replicas], since: float) -> Facts:
        """Facts by the configs that were read since then."""
        facts = Facts(known, lists := {}, rates := {}, self._sent[2], minimum := {})
        lag_times = []
        brokers = {node for one in known.values() for node in (*one.replicas, *one.alive)}
        keys: set[int | str] = {*brokers, *(topic for topic, _ in known)}
        for key in keys:
            at, values = self._cluster.configs.get(key, _UNREAD)
            if isinstance(values, str) or at < since:
                continue
            for side in Side:
                if isinstance(key, int):
                    rates[key, side] = _number(values, side("rate"))
                elif (found := ThrottledReplicas.read(values.get(side("replicas")) or "")) is not None:
                    lists[key, side] = found
            if isinstance(key, str) and (least := _number(values, MINIMUM)) is not None:
                minimum[key] = int(least)
            elif (milliseconds := _number(values, LAG_TIME)) is not None:
                lag_times.append(milliseconds / 1000)
        return replace(facts, lag_time=max(lag_times)) if lag_times else facts

    def _read(self, tp: TopicPartition, one: Replicas, state: _Topic, now: float) -> None:
        """Have configs read that are due, of each living broker that has a replica; the leader tells the topic's."""
        for node in sorted(set(one.replicas) & one.alive, key=lambda node: node != one.leader):
            for key in (node, tp[0]):
                asked = self._asked.get(key, -NEVER)
                if now >= asked + (_REFUSED if self._is_refused(key) else state.every if asked >= state.since else 0.0):
                    self._asked[key] = now
                    self._wanted.setdefault(node, set()).add(key)
                    self._asker.want(Question(CONFIGS, node, ""), self._ask_configs, now)

    def _waits(self, key: int | str, state: _Topic, now: float) -> bool:
        """Whether the answer to a question may still come."""
        asked, (at, _) = self._asked.get(key, -NEVER), self._cluster.configs.get(key, _UNREAD)
        return at < state.since and now < asked + _PATIENCE and not self._is_refused(key)

    def _is_refused(self, key: int | str) -> bool:
        return isinstance(self._cluster.configs.get(key, _UNREAD)[1], str)

    def _note(self, tp: TopicPartition, found: Verdict, facts: Facts, now: float) -> None:
        # Each look finds the same again, while hooks and the log want changes. `since` goes on as long as the finding
        # is the same, and each alarm is warned of once in an episode of its topic.
        state, one, before = self._by_topic[tp[0]], facts.known[tp], self._cluster.replicas.get(tp)
        refused = (found.spare or 0) < 0 or not one.in_sync
        delays = self._delivery.acks < 0 and (refused or found.delays_until is not None)
        in_sync, replicas, minimum = tuple(sorted(one.in_sync)), tuple(one.replicas), facts.minimum.get(tp[0])
        limit: tuple[str | None, float | None, float | None] = None, None, None
        if (room := found.room) is not None:
            limit = room.side.value, room.rate, room.needed
        head = found.state, found.moving, found.left_over
        after = ReplicationSnapshot(
            *head, in_sync, replicas, minimum, found.broker, *limit, 0.0, 0.0, delays, found.sentence, found.cure
        )
        same = before is not None and _same(before[0]) == _same(after)
        since = before[1] if before is not None and same else now
        self._cluster.replicas[tp] = after, since, state.judged
        if not same and (before is not None or after.unusual):
            self._notifications.replication(tp, before and before[0], after)
        alarms = {  # each rolling restart comes to the minimum
            "below the minimum": delays and refused,
            "acknowledgements wait": delays and not refused and tp in self._silent,
            "never ends": found.state is ReplicationState.NEVER_ENDS,
            "left over": found.left_over and now >= since + _LEFT_FOR,
        }
        if new := {alarm for alarm, rings in alarms.items() if rings} - state.warned:
            state.warned.update(new)
            self._notifications.warn(self._cluster.addressed(f"{found.sentence}. {found.cure}"))

    def _measure(self, now: float) -> None:
        """The bytes that this producer sends. A silent partition gets no bytes, and will get as many as before."""
        at, before, rates_before = self._sent
        if now < at + _MEASURED:
            return
        found = {tp: rate for tp, rate in rates_before.items() if tp in self._silent}
        for lane, after in self._cluster.statistics.items():
            rates = sent_between(before[lane], after) if lane in before and after.at > before[lane].at else {}
            found.update({tp: rate + found.get(tp, 0.0) for tp, rate in rates.items() if tp not in self._silent})
        self._sent = now, self._cluster.statistics, found


def _same(told: ReplicationSnapshot) -> tuple[object, ...]:
    """The parts of a finding whose changes are told."""
    return told.state, told.moving, told.left_over, told.broker, told.delays


def _replicas(info: PartitionInfo) -> Replicas:
    return Replicas(info.leader, info.replicas, frozenset(info.in_sync), frozenset(info.alive), info.added, info.lost)


def _number(values: Mapping[str, str | None], name: str) -> float | None:
    found = values.get(name)
    return float(found) if found is not None and found.isdecimal() else None
