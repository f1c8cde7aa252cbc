"""Looks at the replicas of the topics in use, and says what replication quotas and the in-sync set do to them (KIP-73).

Metadata is asked for when a topic is first used, then each minute, and every 5 s while a replica is out of sync. A lane
may be bound to the broker that hangs, and so may an admin client that was kept. So while a leader is silent a client
that is made for one question asks: the leader, or else another broker. Configs are asked for only while something is
unusual; beside that the hourly question of KIP-854 brings those of topics along.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from safeproducer.kafka.native import KafkaException
from safeproducer.kafka.statistics import Statistics, sent_between
from safeproducer.pipeline.cluster.asker import Asker, Question
from safeproducer.pipeline.cluster.cluster_view import ClusterView, Configs
from safeproducer.pipeline.cluster.metadata import Metadata
from safeproducer.pipeline.notifications import Notifications
from safeproducer.policy.client_reports import PartitionInfo
from safeproducer.policy.replication import (
    LAG_TIME,
    MINIMUM,
    Facts,
    Replicas,
    ReplicationState,
    Side,
    ThrottledReplicas,
    Verdict,
    judge,
)
from safeproducer.policy.types import NEVER, TopicPartition
from safeproducer.runtime import clock
from safeproducer.settings.delivery import Delivery
from safeproducer.snapshot import ReplicationSnapshot

if TYPE_CHECKING:
    from safeproducer.kafka.admin import Admin

REPLICAS = "which replicas are in sync of"
CONFIGS = "what limits its replicas, and those of"
FIRST, QUIET, UNUSUAL, SILENT = 0.4, 60.0, 5.0, 1.0
"""Seconds from the first record of a topic to the first look, so that a crash loop looks at nothing; between looks."""
_REFUSED = 3600.0
_LOOK_EVERY = 0.5
_MEASURED = 10.0
"""Seconds over which this producer's bytes are counted."""
_LEFT_FOR = 600.0
_BROKERS_ASKED = 3
_PATIENCE = 4.0
"""Seconds after which a broker that was asked does not tell."""
_UNREAD: Configs = (-NEVER, {})


@dataclass(eq=False)
class _Topic:
    """`since`: it has had a replica out of sync since then. `busy`: there is more to read.

    `judged`: of which answer the verdicts are. `warned`: of what, in this episode.
    """

    _look_at: float
    judged: float = -NEVER
    since: float = -NEVER
    busy: bool = False
    warned: set[str] = field(default_factory=set)

    @property
    def every(self) -> float:
        """Seconds from one look, or question for configs, to the next."""
        return QUIET if self.since == -NEVER else UNUSUAL

    def looks(self, now: float) -> bool:
        """Whether metadata is to be asked for now."""
        if due := now >= self._look_at:
            self._look_at = now + self.every
        return due

    def answered(self, at: float, complete: bool, now: float) -> None:
        """Whether all replicas are in sync, by the answer that was asked for `at` then."""
        self.judged, self.since = at, -NEVER if complete else now if self.since == -NEVER else self.since
        self._look_at = min(self._look_at, now + self.every)

    def asks(self, more: bool) -> None:
        """Whether there is more to read; else the episode is over."""
        self.busy, self.warned = more, self.warned if more else set()


_Told = tuple[ReplicationSnapshot, float, float]
"""As it was then; since when it has been so, and when brokers were asked."""


@dataclass(eq=False)
class Replication:
    """`look()` on the sender's thread, the asker asks, any thread has `known()`.

    - `topics()`: those in use. `silent`: partitions whose leader owes an acknowledgement.
    - `brokers`: living ones -> their addresses. `wanted`: by broker to be asked, whose configs.
    - `asked`: by broker or topic, when its configs were asked for last. `bytes_in`: what this producer sends.
    """

    _delivery: Delivery
    _cluster: ClusterView
    _metadata: Metadata
    _asker: Asker
    _topics: Callable[[], Iterable[str]]
    _notifications: Notifications
    _look_at: float = 0.0
    _by_topic: dict[str, _Topic] = field(default_factory=dict)
    _told: dict[TopicPartition, _Told] = field(default_factory=dict)
    _silent: Collection[TopicPartition] = ()
    _brokers: Mapping[int, str] = field(default_factory=dict)
    _wanted: dict[int, set[int | str]] = field(default_factory=dict)
    _asked: dict[int | str, float] = field(default_factory=dict)
    _measured: tuple[float, Mapping[int, Statistics]] = (0.0, MappingProxyType({}))
    _bytes_in: Mapping[TopicPartition, float] = field(default_factory=dict)

    def known(self, now: float) -> dict[TopicPartition, ReplicationSnapshot]:
        """Each partition that was looked at."""
        known = self._told.copy().items()
        return {tp: replace(told, since=now - since, age=now - at) for tp, (told, since, at) in known}

    def look(self, now: float, silent: Callable[[float], Collection[TopicPartition]]) -> None:
        """Have asked what is due, and judge the answers; `silent(now)`: whose leader owes an acknowledgement."""
        if now < self._look_at or self._delivery.own.replication == "off":
            return
        self._look_at, self._silent = now + _LOOK_EVERY, silent(now)
        self._measure(now)
        partitions, configs = self._cluster.partitions, self._cluster.configs
        states = {topic: self._by_topic.setdefault(topic, _Topic(now + FIRST)) for topic in list(self._topics())}
        for topic, state in states.items():
            self._ask_for(topic, state, now)
        due = {topic for topic, it in states.items() if it.busy or partitions.looked_at.get(topic, -NEVER) > it.judged}
        if not due:
            return
        infos = {topic: partitions.replicated(topic) for topic in states if topic in due or topic in configs}
        known = {tp: _replicas(info) for found in infos.values() for tp, info in found.items()}
        for topic in due:
            self._brokers = next((info.alive for info in infos[topic].values()), self._brokers)
            self._judge(topic, {tp: known[tp] for tp in infos[topic]}, known, now)

    def _ask_for(self, topic: str, state: _Topic, now: float) -> None:
        if (silent := [tp for tp in self._silent if tp[0] == topic]) and self._cluster.connected():
            question = Question(REPLICAS, self._cluster.partitions.leader(*min(silent)), topic)
            self._asker.want(question, self._ask_replicas, now, for_seconds=2 * SILENT)
        elif state.looks(now):
            self._metadata.want(topic)

    def _ask_replicas(self, admin: Admin, question: Question) -> float:
        """The leader, or else another living broker, by a client of its own."""
        node, topic, brokers = question.node, question.topic, self._brokers
        addresses = [brokers[broker] for broker in sorted(brokers, key=lambda broker: broker != node)]
        for address in addresses[:_BROKERS_ASKED] or [""]:
            at = clock.monotonic()
            try:
                asked = admin.at(address) if address else admin
                self._cluster.partitions.learn_replicas(topic, asked.replicas(topic), at)
                break
            except KafkaException:
                continue
        return SILENT

    def _ask_configs(self, admin: Admin, question: Question) -> float:
        node, at = cast("int", question.node), clock.monotonic()
        keys, address = self._wanted.pop(node, ()), self._brokers.get(node)
        with suppress(KafkaException):
            asked = admin.at(address) if self._silent and address else admin
            self._cluster.read(asked.configs(keys) if keys else {}, at)
        return NEVER

    def _judge(
        self, topic: str, own: Mapping[TopicPartition, Replicas], known: Mapping[TopicPartition, Replicas], now: float
    ) -> None:
        """The partitions of one topic, by what was read since it has a replica out of sync."""
        state, partitions = self._by_topic[topic], self._cluster.partitions
        complete = all(set(one.replicas) <= one.in_sync for one in own.values())
        state.answered(partitions.looked_at[topic], complete, now)
        facts = self._facts(known, state.since)
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
        """By the configs that were read since then."""
        facts = Facts(known, lists := {}, rates := {}, self._bytes_in, minimum := {})
        lag_times = []
        for key, (at, values) in self._cluster.configs.copy().items():
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
        state, one, before = self._by_topic[tp[0]], facts.known[tp], self._told.get(tp)
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
        self._told[tp] = after, since, state.judged
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
        """What this producer sends. A silent partition gets no bytes, and will get as many as before."""
        at, before = self._measured
        if now < at + _MEASURED:
            return
        self._measured = now, self._cluster.statistics
        found = {tp: rate for tp, rate in self._bytes_in.items() if tp in self._silent}
        for lane, after in self._cluster.statistics.items():
            rates = sent_between(before[lane], after) if lane in before and after.at > before[lane].at else {}
            found.update({tp: rate + found.get(tp, 0.0) for tp, rate in rates.items() if tp not in self._silent})
        self._bytes_in = found


def _same(told: ReplicationSnapshot) -> tuple[object, ...]:
    """What is told when it changes."""
    return told.state, told.moving, told.left_over, told.broker, told.delays


def _replicas(info: PartitionInfo) -> Replicas:
    return Replicas(info.leader, info.replicas, frozenset(info.in_sync), frozenset(info.alive), info.added, info.lost)


def _number(values: Mapping[str, str | None], name: str) -> float | None:
    found = values.get(name)
    return float(found) if found is not None and found.isdecimal() else None
