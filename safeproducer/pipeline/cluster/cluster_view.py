"""What is known of the cluster: its partitions and brokers, who throttles, and which lanes may not know it yet.

The youngest metadata of any native producer counts; see `policy/cluster_metadata.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from operator import add
from typing import Any, NamedTuple, TypeVar

from safeproducer.kafka.statistics import UNSENT, Statistics, changed_topics
from safeproducer.pipeline.cluster.outdated_metadata import OutdatedMetadata
from safeproducer.policy.cluster_metadata import (
    SETTLES,
    BrokerInfo,
    PartitionInfo,
    PartitionMetadata,
    TopicMetadata,
    supersedes,
)
from safeproducer.policy.coordinator import Call, coordinating
from safeproducer.policy.diagnosis import SLOW, Attempts, Cause, ClientError, cut, of_errors, of_replicas, slow
from safeproducer.policy.partitioner import ANY, partitioner
from safeproducer.policy.replication import CONFIGS, Side
from safeproducer.policy.throttle import Throttle
from safeproducer.policy.types import DIRECT_LANE, NEVER, UNPLACED, TopicPartition
from safeproducer.policy.window import Said, Window, window
from safeproducer.runtime import clock, randomness
from safeproducer.settings.delivery import STATISTICS_MS, SendConfig
from safeproducer.snapshot import ReplicationSnapshot

_NONE = 0, -NEVER
_UNHEARD = PartitionInfo()
next_step = count(1).__next__
"""Numbers each change of what is known: the larger one is the later. Safe from any thread."""
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_BROKER = re.compile(r"\b[Bb]roker (\d+)\b(?! \()")
_AGAIN = 2.5  # seconds within which a connection that was lost goes on to be: statistics come each second
Configs = tuple[float, Mapping[str, str | None] | str]
"""When they were asked for; those of a topic or broker that concern replication, or which right is missing."""
_NEW = BrokerInfo()


def change(known: dict[_Key, _Value], key: _Key, none: _Value, to: Callable[[_Value], _Value]) -> tuple[_Value, _Value]:
    """Replace a value as a whole, without a lock: no thread undoes what another wrote. What it was, and what it is."""
    while True:
        before = known.setdefault(key, none)
        after = to(before)
        if known[key] is before:  # one step under the interpreter lock: it switches only at calls and backward jumps
            known[key] = after
            return before, after


class Partitions:
    """Learned from statistics and metadata; asked for each record that is held back. Any thread may use it."""

    def __init__(self, partitioner_name: str, sticky: float) -> None:
        self.partitioner = partitioner_name
        self._choose = partitioner(partitioner_name)
        self._sticky = sticky
        self._counts: dict[str, tuple[int, float]] = {}
        """(number of partitions, when the metadata that says so came); 0 when there is no such topic."""
        self._infos: dict[TopicPartition, PartitionInfo] = {}
        self._leads: dict[int, int] = {}  # broker -> how many partitions it leads
        self._sticky_choice: dict[str, tuple[int, float]] = {}
        self.looked_at: dict[str, float] = {}
        """Topic -> when the last answer that tells its replicas was asked for, until Replication takes note."""
        self.alive: Mapping[int, str] = {}  # living brokers -> their addresses, by the last answer
        self.missing: dict[str, str] = {}
        """Topic that is not there, or not any more -> that, as a clause with the name most like it. An answer or
        an acknowledgement ends it: librdkafka keeps what it knows of a topic for a while."""

    def known(self, topic: str) -> bool:
        """Whether a broker has told of this topic, if only that it does not exist."""
        return topic in self._counts

    def count(self, topic: str) -> int:
        """0 while it is not known, and when there is no such topic."""
        return self._counts.get(topic, _NONE)[0]

    def missing_clause(self, topic: str) -> str:
        """That brokers know of no such topic, as a clause; "" for another one."""
        return self.missing.get(topic, "")

    def has(self, topic: str, partition: int) -> bool:
        """False only when it is known that there is no such partition."""
        count = self.count(topic)
        return partition == UNPLACED or not count or 0 <= partition < count

    def info(self, tp: TopicPartition) -> PartitionInfo:
        """The partition, as far as it is known."""
        return self._infos.get(tp, _UNHEARD)

    def leader(self, topic: str, partition: int) -> int | None:
        """Node ID; None while unknown."""
        return self._infos.get((topic, partition), _UNHEARD).leader

    def leaders(self, topic: str, partition: int) -> set[int]:
        """Brokers that may lead a record of it: of one whose partition is not known, all that lead one of the topic."""
        numbers = range(self.count(topic)) if partition == UNPLACED else (partition,)
        found = {self.leader(topic, number) for number in numbers}
        return {node for node in found if node is not None} if None not in found else set()

    def nodes(self) -> set[int]:
        """The brokers that lead a partition."""
        return {node for node, leads in self._leads.copy().items() if leads > 0}

    def update(self, topic: str, told: TopicMetadata, at: float) -> None:
        """Learn a topic's partitions from metadata that came at `at`; empty: no such topic.

        Metadata of the same moment may come again and again: each lane's statistics tell what it knows.
        """
        if not told:
            self._counts.setdefault(topic, _NONE)
            return
        highest, (count, since) = max(told) + 1, self._counts.get(topic, _NONE)
        if not count:
            self.missing.pop(topic, None)
        if not count or supersedes(highest, at, count, since):
            self._counts[topic] = highest, at
            for partition in range(highest, count):
                self._change((topic, partition), partial(PartitionInfo.forgotten, step=next_step))
            count = highest
        for partition, metadata in told.items():
            known = self._infos.get((topic, partition), _UNHEARD)
            if partition < count and known.learnt(metadata, at, next_step) is not known:
                self._change((topic, partition), partial(PartitionInfo.learnt, told=metadata, at=at, step=next_step))
        if (replicas := next((one for one in told.values() if one.replicas is not None), None)) is not None:
            self._look(topic, replicas, max(at, self.looked_at.get(topic, at)))

    def learn_replicas(self, topic: str, told: TopicMetadata, at: float) -> None:
        """An answer that no lane has heard: replicas only, not who leads."""
        for partition, found in told.items():
            self._change((topic, partition), partial(PartitionInfo.with_replicas, told=found, at=at))
        if told:
            self._look(topic, next(iter(told.values())), at)

    def _look(self, topic: str, told: PartitionMetadata, at: float) -> None:
        self.looked_at[topic], self.alive = at, told.alive or self.alive

    def _change(self, tp: TopicPartition, to: Callable[[PartitionInfo], PartitionInfo]) -> None:
        before, after = change(self._infos, tp, _UNHEARD, to)
        if before.leader != after.leader:
            for node, more in (before.leader, -1), (after.leader, 1):
                if node is not None:
                    change(self._leads, node, 0, partial(add, more))

    def replicated(self, topic: str) -> dict[TopicPartition, PartitionInfo]:
        """The partitions whose replicas are known."""
        found = {(topic, number): self.info((topic, number)) for number in range(self.count(topic))}
        return {tp: info for tp, info in found.items() if info.replicas}

    def choose(self, topic: str, key: Any, now: float) -> int:
        """The partition librdkafka's partitioner gives this key; UNPLACED while the topic is not known."""
        if not (count := self.count(topic)):
            return UNPLACED
        partition = self._choose(key.encode() if type(key) is str else key, count)
        return partition if partition != ANY else self._any(topic, count, now)

    def _any(self, topic: str, count: int, now: float) -> int:
        """As librdkafka does: one for `sticky.partitioning.linger.ms`, and one that has a leader if possible."""
        partition, until = self._sticky_choice.get(topic, (UNPLACED, 0.0))
        if now >= until or partition >= count:
            led = [number for number in range(count) if self.leader(topic, number) is not None]
            partition = randomness.one_of(led or range(count))
            self._sticky_choice[topic] = (partition, now + self._sticky)
        return partition


class Leader(NamedTuple):
    """The broker that leads a partition; `node` None while it is unknown."""

    node: int | None
    throttled_until: float | None
    probing: bool


class ClusterView:
    """Any thread asks. Statistics are applied by the sender, throttle times announced by the threads that serve."""

    def __init__(self, delivery: SendConfig, throttle: Throttle) -> None:
        self.partitions = Partitions(delivery.partitioning.partitioner, delivery.partitioning.sticky)
        self.outdated = OutdatedMetadata()
        self.throttle = throttle
        self._only_batch_lanes = delivery.only_batch_lanes
        self.holds_back, self.spreads = delivery.holds_back, delivery.spreads
        self.statistics: dict[int, Statistics] = {}  # the last of the direct lane and of the first batch lane
        self._asked_at: dict[str, float] = {}  # when a topic's metadata were asked for last, beside by librdkafka
        self._brokers: dict[int, BrokerInfo] = {}
        self.configs: dict[str | int, Configs] = {}  # by topic and by broker
        self.attempts: dict[TopicPartition, Attempts] = {}  # attempts that leaders refuse for now, by partition
        self.replicas: dict[TopicPartition, tuple[ReplicationSnapshot, float, float]] = {}
        """What Replication found then; since when it has been so, and when brokers were asked."""
        self.listed = set[str]()  # topics with a list of throttled replicas
        self.errors: dict[tuple[int | None, bool], ClientError] = {}  # the last one of each broker
        self.calls: dict[str, Call] = {}  # methods that wait for the coordinator of transactions

    def update(self, lane: int, statistics: Statistics) -> None:
        """Leaders, partition counts and connections from statistics of the direct lane or the first batch lane."""
        # Counts in statistics are of the client's whole life: only what grew since the last ones has just happened. A
        # broker that is new in them is compared with itself, or all its past would count as news.
        before, self.statistics = self.statistics.get(lane), {**self.statistics, lane: statistics}
        for node, broker in statistics.brokers.items():
            earlier = broker if before is None else before.brokers.get(node, broker)
            if (cuts := broker.disconnects - earlier.disconnects) > 0:
                change(self._brokers, node, _NEW, partial(BrokerInfo.cut, cuts=cuts, at=statistics.at))
            elif broker.produce_requests > earlier.produce_requests and broker.received > earlier.received:
                answered = statistics.at if before is None else before.at, statistics.at
                change(self._brokers, node, _NEW, partial(BrokerInfo._replace, answered=answered))
            if broker.rtt_floor is not None and max(broker.rtt_floor, self.broker_info(node).late[0]) >= SLOW:
                quickest = partial(BrokerInfo.quickest, seconds=broker.rtt_floor, at=statistics.at)
                change(self._brokers, node, _NEW, quickest)
        if statistics.producer_id is not None:  # else no acknowledgement is counted
            self._note_attempts(
                lane, before or replace(statistics, at=statistics.at - STATISTICS_MS / 1000, partitions={}), statistics
            )
        topics: dict[str, dict[int, PartitionMetadata]] = {topic: {} for topic in changed_topics(before, statistics)}
        for (topic, partition), entry in statistics.partitions.items() if topics else ():
            if topic in topics and partition >= 0:
                topics[topic][partition] = PartitionMetadata(entry.leader, entry.leader_epoch)
        for topic, told in topics.items():
            # A topic that a lane has not heard of is listed, too, with the partitions that records were made for.
            known, age = self.partitions.count(topic), statistics.metadata_ages.get(topic, 0.0)
            if max(told.values(), default=(-1,))[0] >= 0 or (age and known and len(told) >= known):
                self._learn(topic, told, statistics.at - age, lane if lane == DIRECT_LANE else None, statistics.at)
        self._meet_brokers()

    def _note_attempts(self, lane: int, before: Statistics, after: Statistics) -> None:
        """Which partitions had records in requests that were answered, and not acknowledged."""
        cut = {node: it.cuts[2] for node, it in self._brokers.items()}
        for tp, row in after.partitions.items():
            was = before.partitions.get(tp, UNSENT)
            if row is was or (row.sent, row.acknowledged) == (was.sent, was.acknowledged):
                continue
            if row.acknowledged != was.acknowledged or row.sent < was.sent or cut.get(row.leader) == after.at:
                self.attempts.pop(tp, None)
                if row.acknowledged > was.acknowledged:
                    self.partitions.missing.pop(tp[0], None)
                continue
            if (known := self.attempts.get(tp)) is None or known.lane != lane:
                known = Attempts(lane, was.sent)
            new = after.metadata_ages.get(tp[0], NEVER) < after.at - before.at
            # What this library asks for tells nothing, nor what librdkafka asks for at first, or as it lost a broker.
            at_first = not before.partitions
            vague = new and (at_first or max([self._asked_at.get(tp[0], -NEVER), *cut.values()]) > before.at - SETTLES)
            self.attempts[tp] = known.seen(row.sent, row.in_flight, before.at, after.at, 0 if vague else 2 * new - 1)

    def heard(self, topic: str, lane: int | None, asked_at: float, told: TopicMetadata) -> bool:
        """A lane was told of a topic, None for the first one. Whether it knows all partitions now."""
        self._asked_at[topic] = clock.monotonic()
        if told:
            self.partitions.missing.pop(topic, None)
        number = next(iter(self.outdated.lanes()), DIRECT_LANE) if lane is None else lane
        self._learn(topic, told, asked_at, number, asked_at)
        self.outdated.heard(topic, number, asked_at)
        return not self.outdated.miscounts(topic, number)

    def _learn(self, topic: str, told: TopicMetadata, at: float, lane: int | None, now: float) -> None:
        """Take note of metadata; `lane`: who has them, None for the first batch lane."""
        before = self.partitions.count(topic)
        self.partitions.update(topic, told, at)
        if told:
            self.outdated.counted(topic, lane, max(told) + 1, before, self.partitions.count(topic), now)
        else:
            self.outdated.forget(topic)

    def _meet_brokers(self) -> None:
        """Note which brokers are connected, by the last statistics of all lanes."""
        found = sorted(self.statistics.values(), key=lambda one: one.at)
        up = {node: one.at for one in found for node, broker in one.brokers.items() if broker.state == "UP"}
        down = {node for one in found for node, broker in one.brokers.items() if broker.state == "DOWN"} - up.keys()
        for node in up.keys() | down | self._brokers.keys():
            seen = partial(BrokerInfo.seen, at=up.get(node), lost=node in down, step=next_step)
            change(self._brokers, node, _NEW, seen)

    def addressed(self, text: str) -> str:
        """The text with the host and port of each broker beside its number, where statistics have told them."""
        told = [(node, it.name) for one in self.statistics.copy().values() for node, it in one.brokers.items()]
        names = {node: name.rpartition("/")[0] for node, name in told}
        return _BROKER.sub(lambda it: f"{it[0]} ({names[int(it[1])]})" if names.get(int(it[1])) else it[0], text)

    def connected(self) -> dict[int, float]:
        """Broker -> when statistics of any lane showed it connected, if the last ones did."""
        return {node: it.connected_at for node, it in self._brokers.copy().items() if it.connected_at is not None}

    def cuts(self, now: float) -> dict[int, Cause]:
        """Brokers whose connections are lost again and again."""
        found = {node: info.cuts for node, info in self._brokers.copy().items()}
        return {
            node: cut(node, times, now - since, now - last)
            for node, (times, since, last, gap) in found.items()
            if times > 1 and now < last + max(_AGAIN, 2 * gap)
        }

    def of_brokers(self, delivered: int, now: float) -> Iterator[Cause]:
        """Causes that the client tells of brokers, once so many records were delivered, and cuts."""
        return of_errors(self.errors.copy().values(), self.cuts(now), self.connected(), self.away, delivered, now)

    @property
    def away(self) -> bool:
        """Whether statistics show that no broker is connected."""
        return bool(self.statistics) and not self.connected()

    def never_sent(self, tp: TopicPartition, lane: int | None, since: float, count: int) -> bool:
        """As Statistics.never_sent(), by those of a lane from after `since`."""
        found = None if lane is None else self.statistics.get(lane)
        return found is not None and found.at > since and found.never_sent(tp, count)

    def answers(self, node: int | None, since: float) -> bool:
        """Whether this broker was seen to answer Produce requests that were sent after `since`."""
        return node is not None and self.broker_info(node).answered[0] > since

    def sick(self, tp: TopicPartition, now: float, refused: bool = False) -> Iterator[Cause]:
        """The causes that replicas give, or a leader: how it answers, if it `refused` none for good, and how late."""
        if (stuck := self.coordinating(now)) is not None:
            yield stuck
            return
        node = self.partitions.leader(*tp)
        if (told := self.replicas.get(tp)) is not None and told[0].delays:
            yield of_replicas(told[0], tp)
            return
        since = -NEVER if told is None else told[1]
        if (attempts := self.attempts.get(tp)) is not None and not refused and attempts.lasts(now, since):
            yield attempts.cause(tp, node, now)
        if node is not None and (late := self.slow(now).get(node)):
            yield slow(node, *late, f"{tp[0]} [{tp[1]}]")

    def coordinating(self, now: float) -> Cause | None:
        """The wait for a producer ID, or for the coordinator of transactions; no leader is asked before that."""
        return None if self.away and not self.calls else coordinating(self.calls, self.statistics, now)

    def slow(self, now: float) -> dict[int, tuple[float, float]]:
        """Brokers whose quickest answer of late took long: how long, and for how many seconds it has been so."""
        found = {node: info.late for node, info in self._brokers.copy().items()}
        return {node: (took, at - since) for node, (took, at, since) in found.items() if now < at + 3 * took}

    def broker_info(self, node: int) -> BrokerInfo:
        """The broker, as far as it is known."""
        return self._brokers.get(node, _NEW)

    def said(self, node: int, topic: str, answer: Said) -> None:
        """A broker has told how many batches it remembers."""
        change(self._brokers, node, _NEW, lambda info: info._replace(windows={**info.windows, topic: answer}))

    def read(self, configs: Mapping[int | str, Mapping[str, str | None] | str], at: float) -> None:
        """Configs of brokers and topics that were asked for then; a text says which right is missing."""
        for key, found in configs.items():
            of_use = found if isinstance(found, str) else {name: found[name] for name in CONFIGS & found.keys()}
            self.configs[key] = at, of_use
            if isinstance(key, str):
                listed = not isinstance(of_use, str) and any(of_use.get(side("replicas")) for side in Side)
                (self.listed.add if listed else self.listed.discard)(key)

    def window(self, tp: TopicPartition, max_age: float, now: float) -> tuple[Window, int | None, int]:
        """How many batches of a partition may be unresolved; who leads it; the step at which that answer was due."""
        info = self.partitions.info(tp)
        broker = _NEW if info.leader is None else self.broker_info(info.leader)
        found = window(broker.windows.get(tp[0]), info, broker.broke, max_age, now)
        return found, info.leader, max(info.led_since, broker.broke)

    def leader_state(self, tp: TopicPartition, now: float) -> Leader:
        """The leader of a partition, and what speaks against sending to it."""
        node = self.partitions.leader(*tp)
        until = self.throttle.deadline(node, now)
        # Probing needs a batch lane, and that a known topic. One to which nothing went directly is not known yet.
        known = self._only_batch_lanes or self.partitions.known(tp[0])
        return Leader(node, until, known and self.throttle.probes(node, now))

    def hinders(self, now: float) -> bool:
        """Whether anything of it may speak against sending directly: `leader_state()`, or outdated metadata."""
        outdated, throttle = self.outdated.concerns_any(DIRECT_LANE, now), self.throttle
        return outdated or throttle.probes(None, now) or bool(throttle.deadlines(now))
