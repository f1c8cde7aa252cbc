"""Cluster metadata: which of the reports of several clients on partitions and brokers counts.

Brokers learn of a change one after the other, and a native producer asks for metadata every few minutes
(`topic.metadata.refresh.interval.ms`). Partitions are only added and leader epochs only grow, until a topic is made
anew: it may have fewer partitions then, and its epochs begin at 0 (KIP-320).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from safeproducer.policy.diagnosis import RECURS_WITHIN, SLOW
from safeproducer.policy.types import NEVER

SETTLES = 1.0  # seconds within which brokers may still differ: metadata younger by more count, whatever they say
SAME = 0.01  # seconds by which the time of the same metadata differs each time that statistics tell its age
NO_EPOCH = -1
MANY, BUNCH = 8, 500  # more topics than that are asked for in bunches; how many one question is for, at most
_CUTS_RECUR_WITHIN = RECURS_WITHIN + 2.0
"""Seconds between two connections that are lost for one cause, as statistics tell of them: once a second."""
_IN_TIME = 0.0, -NEVER, NEVER


class PartitionMetadata(NamedTuple):
    """A partition as an answer or statistics tell of it: `leader` -1 for none, `epoch` None where it is not told.

    `replicas` and `in_sync`: node IDs; None where they are not told. `alive`: living brokers -> their addresses.
    """

    leader: int
    epoch: int | None = None
    replicas: tuple[int, ...] | None = None
    in_sync: tuple[int, ...] | None = None
    alive: Mapping[int, str] = {}


TopicMetadata = Mapping[int, PartitionMetadata]


def _address(broker: Any) -> str:
    return f"[{broker.host}]:{broker.port}" if ":" in broker.host else f"{broker.host}:{broker.port}"


def partitions_of(answer: Any, topic: str) -> TopicMetadata:
    """The partitions of this topic in what list_topics() of a client returned."""
    alive = {node: _address(broker) for node, broker in answer.brokers.items()}
    found = answer.topics[topic].partitions.items()
    return {
        number: PartitionMetadata(it.leader, None, tuple(it.replicas), tuple(it.isrs), alive) for number, it in found
    }


def described(answers: Mapping[str, Iterable[Any]]) -> dict[str, TopicMetadata]:
    """The partitions of several topics, by describe_topics(). Of brokers it tells the living ones with a replica."""
    nodes = {node.id: node for told in answers.values() for it in told for node in it.replicas if node.host}
    alive = {number: _address(node) for number, node in nodes.items()}

    def told_of(it: Any) -> PartitionMetadata:
        replicas, in_sync = (tuple(node.id for node in nodes) for nodes in (it.replicas, it.isr))
        return PartitionMetadata(-1 if it.leader is None else it.leader.id, None, replicas, in_sync, alive)

    return {topic: {it.id: told_of(it) for it in told} for topic, told in answers.items()}


class PartitionInfo(NamedTuple):
    """A partition, as far as is known. `leader` None and `epoch` NO_EPOCH while unknown; replicas empty.

    - `at`: when that metadata came, in seconds of the monotonic clock.
    - `led_since`: the step at which its leader, or the leader's epoch, was learnt to have changed; 0: never. Steps
      count what is learnt: of two of them, the larger one is the later.
    - `alive`: living brokers -> their addresses; `added`: replicas out of sync that an earlier answer lacked; `lost`:
      replicas that were in sync -> when they were first seen out of sync. `looked_at`: when that answer was asked for.
    """

    leader: int | None = None
    epoch: int = NO_EPOCH
    at: float = -NEVER
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    led_since: int = 0
    alive: Mapping[int, str] = {}
    added: frozenset[int] = frozenset()
    lost: Mapping[int, float] = {}
    looked_at: float = -NEVER

    def with_replicas(self, told: PartitionMetadata, at: float) -> PartitionInfo:
        """After an answer that was asked for `at` then; an older one, and one without replicas, change nothing."""
        if told.replicas is None or at < self.looked_at:
            return self
        out = frozenset(told.replicas) - frozenset(told.in_sync or ())
        added = out & (self.added | out - set(self.replicas) if self.replicas else self.added)
        lost = {broker: self.lost.get(broker, at) for broker in out if broker in self.lost or broker in self.in_sync}
        known = self._replace(replicas=told.replicas, in_sync=told.in_sync or (), alive=told.alive)
        return known._replace(added=added, lost=lost, looked_at=at)

    def learnt(self, told: PartitionMetadata, at: float, step: Callable[[], int]) -> PartitionInfo:
        """After metadata that came at `at`, from any client; `step` counts what is learnt."""
        leader, epoch, known = told.leader, told.epoch, self.with_replicas(told, at)
        if known.at - SETTLES > at:
            return known
        if leader == known.leader and epoch is None and known.epoch != NO_EPOCH:
            return known  # it says less
        # Without an epoch: the same one, but for metadata that is so much younger that its age decides.
        rank = epoch if epoch is not None else known.epoch if at - known.at <= SETTLES else NO_EPOCH
        if not supersedes(rank, at, known.epoch, known.at):
            return known
        node = leader if leader >= 0 else None
        return known._replace(leader=node, epoch=rank, at=at, led_since=known.led_from(node, rank, step()))

    def forgotten(self, step: Callable[[], int]) -> PartitionInfo:
        """The partition after its topic was made anew with fewer."""
        return PartitionInfo(led_since=self.led_from(None, NO_EPOCH, step()))

    def led_from(self, leader: int | None, epoch: int, step: int) -> int:
        """`led_since` after this was learnt. An epoch that is learnt later was that of the same leader all along."""
        if self.leader is None:
            return step if self.led_since else 0
        return self.led_since if leader == self.leader and self.epoch in (epoch, NO_EPOCH) else step


def supersedes(rank: int, at: float, known_rank: int, known_at: float) -> bool:
    """Whether a report from `at` takes the place of the one known.

    The younger one counts. While brokers may differ, the higher rank does: a number of partitions, or a leader epoch.
    """
    if abs(at - known_at) > SETTLES:
        return at > known_at
    return rank > known_rank or (rank == known_rank and at > known_at + SAME)


class BrokerInfo(NamedTuple):
    """A broker, as far as is known. How long it throttles is in `Throttle`, which all producers of a cluster share.

    - `connected_at`: when statistics of any lane showed it connected, if the last ones did.
    - `lost`: a lane has lost its connection to it, and no lane is connected. `broke`: the step at which that came last.
    - `windows`: by topic, what it `Said` last of how many batches it remembers.
    - `cuts`: how often its connections were lost, since when, when last, and how long after the one before.
    - `answered`: between which statistics there were Produce requests and answers that were new, last.
    - `late`: how long the quickest answer of late took, if that is long, when it came, and since when it has been so.
    """

    connected_at: float | None = None
    lost: bool = False
    broke: int = 0
    windows: Mapping[str, Any] = {}
    cuts: tuple[int, float, float, float] = 0, -NEVER, -NEVER, 0.0
    answered: tuple[float, float] = -NEVER, -NEVER
    late: tuple[float, float, float] = _IN_TIME

    def cut(self, cuts: int, at: float) -> BrokerInfo:
        """After statistics that show so many connections that were lost."""
        times, since, last, _ = self.cuts
        again = (times + cuts, since, at, at - last) if at < last + _CUTS_RECUR_WITHIN else (cuts, at, at, 0.0)
        return self._replace(cuts=again, answered=(-NEVER, self.answered[1]))

    def quickest(self, seconds: float, at: float) -> BrokerInfo:
        """After statistics with an answer that took so long, and none that was quicker."""
        return self._replace(late=(seconds, at, min(self.late[2], at)) if seconds >= SLOW else _IN_TIME)

    def seen(self, at: float | None, lost: bool, step: Callable[[], int]) -> BrokerInfo:
        """After statistics that show it connected `at` then, or its connection `lost`."""
        return self._replace(connected_at=at, lost=lost, broke=step() if lost and not self.lost else self.broke)
