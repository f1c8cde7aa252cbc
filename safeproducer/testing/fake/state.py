"""What the whole cluster knows, shared by its brokers. Touched by the cluster's own thread only."""

import asyncio
import re
import uuid
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from safeproducer.testing.fake import configs
from safeproducer.testing.fake.faults import Faults
from safeproducer.testing.fake.journal import JournalEntry
from safeproducer.testing.fake.producer_state import RETAINED_BEFORE_KIP_1269
from safeproducer.testing.fake.topics import Partition, Topic

__all__ = ["JOURNAL_SIZE", "BrokerState", "ClusterState", "TopicRefusedError"]

JOURNAL_SIZE = 200_000
MAX_PARTITIONS = 10_000
"""Of one topic: a request must not be able to hold up the whole cluster."""
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_FIRST_PRODUCER_ID = 1000

TOPIC_ALREADY_EXISTS = 36
INVALID_TOPIC = 17
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_REPLICA_ASSIGNMENT = 39
INVALID_CONFIG = 40


class TopicRefusedError(ValueError):
    """A topic that cannot be made; ``error_code`` is what the protocol answers."""

    def __init__(self, error_code: int, text: str) -> None:
        super().__init__(text)
        self.error_code = error_code


@dataclass(slots=True)
class BrokerState:
    """One broker: where it listens, and how it was set up."""

    id: int
    port: int
    kip_1269: bool
    static: Mapping[str, str] = field(default_factory=dict)
    overrides: dict[str, tuple[str, int]] = field(default_factory=dict)
    alive: bool = True

    def __post_init__(self) -> None:
        for name in self.static:
            self.set_config(name, None)

    def set_config(self, name: str, value: str | None) -> None:
        """Set a dynamic config; None leaves what the properties file says."""
        self.overrides.pop(name, None)
        if value is not None:
            self.overrides[name] = (value, configs.DYNAMIC_BROKER_CONFIG)
        elif name in self.static:
            self.overrides[name] = (self.static[name], configs.STATIC_BROKER_CONFIG)

    def restore(self, kip_1269: bool) -> None:
        """As the cluster was constructed."""
        self.kip_1269, self.alive = kip_1269, True
        for name in tuple(self.overrides):
            self.set_config(name, None)


class ClusterState:
    """Brokers, topics, faults and journal of one cluster."""

    def __init__(self, brokers: Iterable[BrokerState]) -> None:
        self.id = uuid.uuid4().hex[:22]
        self.brokers = {broker.id: broker for broker in brokers}
        self.failures: list[Exception] = []
        self.journal: deque[JournalEntry] = deque(maxlen=JOURNAL_SIZE)
        self.topics: dict[str, Topic] = {}
        self.faults = Faults()
        self._next_producer_id = _FIRST_PRODUCER_ID
        self._waiting: set[asyncio.Future[None]] = set()

    def forget(self) -> None:
        """Topics, faults and journal are gone. Producer IDs go on: none is ever handed out twice."""
        self.topics, self.faults = {}, Faults()
        self.journal.clear()
        self.changed()

    # ---- brokers

    @property
    def alive(self) -> list[BrokerState]:
        return [broker for broker in self.brokers.values() if broker.alive]

    @property
    def controller(self) -> int:
        return self.alive[0].id if self.alive else -1

    def set_alive(self, broker: int, alive: bool) -> None:
        """Start or stop: leaders move to living replicas; a stopped one keeps what its snapshot would hold."""
        self.brokers[broker].alive = alive
        living = [other.id for other in self.alive]
        for topic in self.topics.values():
            for partition in topic.partitions:
                if not alive and broker in partition.states:
                    partition.states[broker].reload()
                partition.elect(living)
        self.changed()

    def value(self, broker: BrokerState, topic: Topic, name: str) -> int:
        """A numeric topic config as this broker sees it."""
        if name in topic.config:
            return int(topic.config[name])
        definition = configs.TOPIC[name]
        inherited = broker.overrides.get(definition.broker_name or name)
        return int(inherited[0] if inherited else definition.default)

    def retain(self, broker: BrokerState, topic: Topic) -> int:
        """How many batches of a producer this broker remembers in a partition of this topic (KIP-1269)."""
        if not broker.kip_1269:
            return RETAINED_BEFORE_KIP_1269
        return self.value(broker, topic, "producer.state.batches.to.retain")

    def new_producer_id(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id - 1

    # ---- topics

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        config: Mapping[str, str | None],
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Raises TopicRefusedError."""
        living = [broker.id for broker in self.alive]
        if name in self.topics:
            raise TopicRefusedError(TOPIC_ALREADY_EXISTS, f"topic {name} exists already")
        if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
            raise TopicRefusedError(INVALID_TOPIC, f"{name!r} is no topic name: 1 to 249 of a-z A-Z 0-9 . _ -")
        for key, value in config.items():
            try:
                configs.check(configs.TOPIC, key, value)
            except configs.ConfigError as error:
                raise TopicRefusedError(INVALID_CONFIG, str(error)) from error
        if assignment is None:
            if not 1 <= partitions <= MAX_PARTITIONS:
                text = (
                    f"partitions: {partitions} is not between 1 and {MAX_PARTITIONS}, more than which are not made here"
                )
                raise TopicRefusedError(INVALID_PARTITIONS, text)
            if not 1 <= replication_factor <= len(living):
                text = f"replication_factor: {replication_factor} is not between 1 and the {len(living)} living brokers"
                raise TopicRefusedError(INVALID_REPLICATION_FACTOR, text)
            assignment = [
                [living[(first + step) % len(living)] for step in range(replication_factor)]
                for first in range(partitions)
            ]
        elif not all(replicas and len({*replicas}) == len(replicas) for replicas in assignment) or not {
            replica for replicas in assignment for replica in replicas
        } <= {*living}:
            text = f"{assignment} is not made of the living brokers {living}, each once at most"
            raise TopicRefusedError(INVALID_REPLICA_ASSIGNMENT, text)
        made = [Partition(index, tuple(replicas), replicas[0]) for index, replicas in enumerate(assignment)]
        topic = Topic(name, uuid.uuid4(), made, {key: value for key, value in config.items() if value is not None})
        if not validate_only:
            self.topics[name] = topic
            self.changed()
        return topic

    def find_topic(self, name: str | None, topic_id: uuid.UUID | None) -> Topic | None:
        """By name, or by ID where a request has no name."""
        if name:
            return self.topics.get(name)
        return next((topic for topic in self.topics.values() if topic.id == topic_id), None)

    # ---- waiting

    def changed(self) -> None:
        """Something a waiting fetch may care about has happened."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def wait_for_change(self, seconds: float) -> None:
        """Until something changes, or for this long."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await asyncio.wait_for(future, seconds)
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(future)
