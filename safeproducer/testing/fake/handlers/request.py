"""A request on its way to its handler."""

import uuid
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from safeproducer.testing.codec import Body
from safeproducer.testing.fake.rules.transactions import Transaction
from safeproducer.testing.fake.state.cluster_state import BrokerState, ClusterState, JournalBatch
from safeproducer.testing.fake.state.sasl import Session
from safeproducer.testing.fake.state.topics import NO_LEADER, Partition, Topic
from safeproducer.testing.wire import RequestHeader

LOOPBACK = "127.0.0.1"

UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER = 3, 6
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_ID = 74, 75, 100


class Unacknowledged(NamedTuple):
    """An appended batch that replicas have to copy, up to the position ``end``; ``seen``: its place in the journal."""

    answer: Body
    topic: Topic
    partition: Partition
    end: int
    seen: int


@dataclass(slots=True)
class Request:
    """One decoded request at one broker. ``error`` is what it has to fail with on purpose, 0 for nothing.

    ``named`` fills with the partitions it names, ``failed`` with the faults that hit one of them. ``size`` is that of
    its frame in bytes, ``idle`` grows by the seconds it only waits, ``throttle_ms`` is what its handler wants.
    """

    cluster: ClusterState
    broker: BrokerState
    header: RequestHeader
    body: Body
    session: Session
    size: int = 0
    error: int = 0
    idle: float = 0.0
    throttle_ms: int = 0
    produced: list[JournalBatch] = field(default_factory=list)
    named: set[tuple[str, int]] = field(default_factory=set)
    failed: set[object] = field(default_factory=set)
    unacknowledged: list[Unacknowledged] = field(default_factory=list)

    @property
    def now(self) -> int:
        """The cluster's time, in ms."""
        return self.cluster.clock.now_ms()

    @property
    def transactions(self) -> dict[str, Transaction]:
        """The newest transaction of each transactional ID."""
        coordinators = self.cluster.coordinators
        return coordinators.transactions

    def find_topic(self, name: str | None, topic_id: uuid.UUID | None) -> tuple[Topic | None, int]:
        """The topic, or an error code."""
        topic = self.cluster.find_topic(name, topic_id)
        return topic, 0 if topic else UNKNOWN_TOPIC_OR_PARTITION if name else UNKNOWN_TOPIC_ID

    def find_led(
        self, name: str | None, topic_id: uuid.UUID | None, index: int, leader_epoch: int = -1
    ) -> tuple[Topic | None, Partition | None, int]:
        """The partition this broker leads, or an error code; the partition comes with it if another broker leads it.

        A client that says which leader epoch it knows (-1: does not say) is told if it is behind or ahead (KIP-320).
        """
        topic, error = self.find_topic(name, topic_id)
        if topic is None:
            return None, None, error
        named = (topic.name, index)
        self.named.add(named)
        ordered = self.cluster.faults.take_partition_error(self.header.api, self.broker.id, named, self.failed)
        if ordered:
            return topic, None, ordered
        if not 0 <= index < len(topic.partitions):
            return topic, None, UNKNOWN_TOPIC_OR_PARTITION
        partition = topic.partitions[index]
        if partition.leader != self.broker.id:
            return topic, partition, NOT_LEADER_OR_FOLLOWER
        if 0 <= leader_epoch != partition.leader_epoch:
            behind = leader_epoch < partition.leader_epoch
            return topic, partition, FENCED_LEADER_EPOCH if behind else UNKNOWN_LEADER_EPOCH
        return topic, partition, 0

    def warn(self, what: str, way_out: str) -> None:
        """The client asks for what is not there: it is answered with an error, and the test is told as well."""
        client = self.header.client_id
        self.cluster.warn(what, f"the client {client!r} asks for {what}, which FakeCluster does not have: {way_out}")

    def leader_hint(self, partition: Partition | None, error: int) -> Body:
        """The leader to ask instead (KIP-951)."""
        if partition is None or error != NOT_LEADER_OR_FOLLOWER or partition.leader == NO_LEADER:
            return {}
        return {"current_leader": {"leader_id": partition.leader, "leader_epoch": partition.leader_epoch}}

    def endpoints(self, hints: list[Body]) -> Body:
        """Where the leaders named in these hints listen (KIP-951)."""
        named = {hint["current_leader"]["leader_id"] for hint in hints if "current_leader" in hint}
        brokers = [self.cluster.brokers[broker] for broker in sorted(named)]
        nodes = [{"node_id": broker.id, "host": LOOPBACK, "port": broker.port, "rack": None} for broker in brokers]
        return {"node_endpoints": nodes} if nodes else {}


def by_partition(topics: Iterable[Body], answer: Callable[[Body, Any], Body], named: str = "partitions") -> list[Body]:
    """The topics of a request with an answer for each partition that they name."""
    return [{**topic, "partitions": [answer(topic, wanted) for wanted in topic[named]]} for topic in topics]


Handler = Callable[[Request], Body | Awaitable[Body | None] | None]
"""Answers a request; None is no answer. Raises WireError for a request that no broker would answer."""
