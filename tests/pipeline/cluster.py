"""Brokers that do as they are told: they write, refuse, throttle, fall silent, and lose requests or answers."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka.cimpl import KafkaError

from safeproducer.policy.cluster_metadata import PartitionMetadata
from safeproducer.policy.types import NEVER
from safeproducer.policy.window import Announcement, Config, announcement
from tests.pipeline.virtual import VirtualTime

if TYPE_CHECKING:
    from tests.pipeline.fake_native import Attempt

TopicPartition = tuple[str, int]
OK = "ok"
LOSE_ANSWER = "lose the answer"
LOSE_REQUEST = "lose the request"
REFUSE = "refuse"
QUOTA = "refuse a new producer ID"
DELAY = "deliver late"
_REFUSALS = {REFUSE: KafkaError.POLICY_VIOLATION, QUOTA: KafkaError.THROTTLING_QUOTA_EXCEEDED}


@dataclass
class Broker:
    """`script`: what it does with the next Produce requests; then it answers them all. `muted_until`: KIP-219.

    `throttle`: seconds that each answer announces, beside what the script says.
    """

    round_trip: float
    script: deque[tuple[str, float]] = field(default_factory=deque)
    throttle: float = 0.0
    muted_until: float = 0.0
    silent: bool = False
    unread: list[Attempt] = field(default_factory=list)


class ScriptedCluster:
    """`log` holds what was written, by partition, in order. Producer IDs are fenced by epoch and de-duplicated, and
    sequence numbers have no gaps."""

    def __init__(self, time: VirtualTime, round_trips: dict[int, float], partitions: dict[str, int]) -> None:
        self.time = time
        self.brokers = {node: Broker(seconds) for node, seconds in round_trips.items()}
        nodes = sorted(round_trips)
        self.leaders: dict[TopicPartition, int] = {
            (topic, number): nodes[number % len(nodes)] for topic, size in partitions.items() for number in range(size)
        }
        self.leader_epochs: dict[TopicPartition, int] = defaultdict(int)
        self.windows: dict[tuple[int, str], int] = {}
        """(node, topic) -> how many batches of a producer it remembers; nothing for one that does not know KIP-1269."""
        self.log: dict[TopicPartition, list[Any]] = defaultdict(list)
        self.refused: set[TopicPartition] = set()
        """Partitions below min.insync.replicas: their leader answers, and takes nothing."""
        self.propagation = 0.0
        """Seconds for which a client waits for a topic that is not there (topic.metadata.propagation.max.ms)."""
        self.requests = 0
        self.expiration = NEVER
        """Seconds after its newest record timestamp for which a producer ID is remembered (KIP-854)."""
        self.copies: dict[TopicPartition, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        """Replicas, and those in sync; else the leader alone has the partition."""
        self.living = {node: f"broker-{node}:9092" for node in nodes}
        self.described: dict[int | str, dict[str, str | None] | str] = {}
        """Configs of brokers and topics, or why they are refused."""
        self.asked: list[object] = []
        """For replicas: the topic; for configs: of whom."""
        self._last: dict[tuple[TopicPartition, int], tuple[int, int, float]] = {}
        self._producer_ids = iter(range(1000, 10_000))

    def new_producer_id(self) -> int:
        return next(self._producer_ids)

    def topic(self, name: str) -> dict[int, int]:
        """Partition -> leader; empty when there is no such topic."""
        return {number: leader for (topic, number), leader in self.leaders.items() if topic == name}

    def at(self, address: str) -> ScriptedCluster:
        """What a client made for one question asks."""
        assert address in self.living.values()
        return self

    def replicas(self, names: Sequence[str]) -> dict[str, dict[int, PartitionMetadata]]:
        self.asked.extend(names)
        return {name: self._replicas(name) for name in names}

    def _replicas(self, name: str) -> dict[int, PartitionMetadata]:
        found = {}
        for number, leader in self.topic(name).items():
            replicas, in_sync = self.copies.get((name, number), ((leader,), (leader,)))
            found[number] = PartitionMetadata(leader, None, replicas, in_sync, dict(self.living))
        return found

    def configs(self, keys: Iterable[int | str]) -> dict[int | str, Any]:
        keys = set(keys)
        self.asked.append(keys)
        return {key: self.described.get(key, {}) for key in keys}

    def window(self, node: int, topic: str) -> Announcement:
        size = self.windows.get((node, topic))
        config = None if size is None else Config(str(size))
        return announcement(node, config and Config("5"), config)

    def move(self, tp: TopicPartition, node: int) -> None:
        if self.leaders[tp] != node:
            self.leaders[tp] = node
            self.leader_epochs[tp] += 1

    def heal(self) -> None:
        for broker in self.brokers.values():
            broker.script.clear()
            self.wake(broker)

    def wake(self, broker: Broker) -> None:
        broker.silent = False
        unread, broker.unread = broker.unread, []
        for attempt in unread:
            self._read(broker, attempt)

    def send(self, node: int, attempt: Attempt) -> None:
        broker = self.brokers[node]
        self.requests += 1
        self.time.after(broker.round_trip / 2, lambda: self._arrive(node, attempt))

    def _arrive(self, node: int, attempt: Attempt) -> None:
        broker = self.brokers[node]
        if broker.silent:
            broker.unread.append(attempt)  # the connection stands: it is read when the broker wakes up
        elif broker.muted_until > self.time.now:
            self.time.at(broker.muted_until, lambda: self._arrive(node, attempt))
        else:
            self._read(broker, attempt)

    def _read(self, broker: Broker, attempt: Attempt) -> None:
        action, seconds = broker.script.popleft() if broker.script else (OK, 0.0)
        if action == LOSE_REQUEST:
            return
        if action == DELAY:
            self.time.after(seconds, lambda: self._answer(broker, attempt, OK, 0.0))
            return
        self._answer(broker, attempt, action, seconds)

    def _answer(self, broker: Broker, attempt: Attempt, action: str, throttle: float) -> None:
        code = _REFUSALS[action] if action in _REFUSALS else self._write(broker, attempt)
        throttle = max(throttle, broker.throttle)
        if throttle > 0:
            broker.muted_until = max(broker.muted_until, self.time.now + throttle)
        if action != LOSE_ANSWER:
            self.time.after(broker.round_trip / 2, lambda: attempt.answered(code, throttle))

    def expected(self, attempt: Attempt) -> int:
        """The sequence number that the leader expects next: an earlier attempt may have been written."""
        epoch, last, _ = self._last.get((attempt.tp, attempt.producer_id), (None, -1, 0.0))
        return last + 1 if epoch == attempt.epoch else 0

    def _write(self, broker: Broker, attempt: Attempt) -> int:
        tp = attempt.tp
        if self.brokers[self.leaders[tp]] is not broker:
            return KafkaError.NOT_LEADER_FOR_PARTITION
        if tp in self.refused:
            return KafkaError.NOT_ENOUGH_REPLICAS
        known = self._last.get((tp, attempt.producer_id))
        if known is not None and self.time.now - known[2] < self.expiration:
            epoch, last, _ = known
            if attempt.epoch < epoch:
                return KafkaError.INVALID_PRODUCER_EPOCH
            if attempt.epoch == epoch and attempt.last_sequence <= last:
                return 0  # DUPLICATE_SEQUENCE_NUMBER, a success to librdkafka
            if attempt.sequence != (last + 1 if attempt.epoch == epoch else 0):
                return KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
        newest = max(self.time.since_epoch(message.timestamp) or message.enqueued for message in attempt.messages)
        self._last[tp, attempt.producer_id] = (attempt.epoch, attempt.last_sequence, newest)
        self.log[tp].extend(message.value for message in attempt.messages)
        return 0
