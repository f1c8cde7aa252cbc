"""The state of the whole cluster, its time and its journal, is touched by the cluster's own thread only."""

import asyncio
import math
import time
import uuid
import warnings
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from safeproducer.testing.fake.rules import configs
from safeproducer.testing.fake.rules.groups import Group
from safeproducer.testing.fake.rules.producer_id_quota import ProducerIdQuota, ProducerIdWindow
from safeproducer.testing.fake.rules.producer_state import RETAINED_BEFORE_KIP_1269, ProducerStates, Rules
from safeproducer.testing.fake.rules.quotas import ClientQuotas, QuotaLimits
from safeproducer.testing.fake.rules.replication import LISTS, RATES, Side, throttled_replicas
from safeproducer.testing.fake.rules.transactions import Coordinators
from safeproducer.testing.fake.state.certificates import Access
from safeproducer.testing.fake.state.faults import Faults
from safeproducer.testing.fake.state.fetchers import Fetchers
from safeproducer.testing.fake.state.topics import NO_LEADER, Partition, Topic
from safeproducer.testing.produce import BatchHeader

Outcome = Literal["answered", "failed", "lost", "unanswered", "unsupported", "malformed", "unauthenticated"]
"""``failed``: by ``fail_next``. ``lost``: done, but the answer was dropped. ``unanswered``: acks=0.

``unauthenticated``: asked before, or instead of, a log-in that has to come first.
"""
JOURNAL_SIZE = 200_000
_FIRST_PRODUCER_ID = 1000


class ClusterClock:
    """Real time plus an offset. Expiry and rates go by it; waits do not."""

    def __init__(self) -> None:
        # Whoever sets the machine's clock meanwhile shall not make time go back here.
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        return time.monotonic() + self._offset

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, as the protocol counts."""
        return int(self.now() * 1000)

    def advance(self, seconds: float) -> float:
        """Move on by this much; returns the new time. Raises ValueError: time never goes back."""
        if not 0 <= seconds < math.inf:
            raise ValueError(f"seconds: {seconds} is no step forward in time; give 0 or more")
        self._offset += seconds
        return self.now()


class FakeClusterWarning(UserWarning):
    """A client asks for what FakeCluster does not have, or the process has no room for its connection.

    Where warnings are errors it is raised with all that went wrong inside, behind the ``with`` block or by ``reset()``.
    """


@dataclass(frozen=True, slots=True)
class JournalBatch:
    """One batch of a Produce request and the broker's verdict.

    Of ``topic`` and ``partition``, by ``producer_id`` and ``epoch``, with so many ``records``, ``first_sequence`` to
    ``last_sequence``. ``error_code``: 0 for a success; ``offset``: of the first record; ``duplicate``: not appended.
    """

    topic: str
    partition: int
    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int
    records: int
    error_code: int
    offset: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One request. ``time`` is that of arrival, in real seconds since the Unix epoch; ``note`` says what was wrong.

    It came to ``broker`` over ``connection``, a number, from ``client_id``, as ``correlation_id``: ``api`` by name, in
    ``version``. ``outcome`` is what was done with it; ``batches``: those of a Produce request.
    ``user`` is who is logged in. ``throttled_ms`` is how long a quota mutes the connection after the answer.
    """

    time: float
    broker: int
    connection: int
    client_id: str | None
    api: str
    version: int
    correlation_id: int
    outcome: Outcome
    batches: tuple[JournalBatch, ...] = ()
    note: str = ""
    user: str = "ANONYMOUS"
    throttled_ms: int = 0


@dataclass(slots=True)
class BrokerState:
    """One broker: where it listens, and how it was set up."""

    id: int
    port: int
    kip_1269: bool
    static: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Dynamic configs of all brokers, shared by them."""
    dynamic: dict[str, str] = field(default_factory=dict)
    alive: bool = True
    quotas: ClientQuotas = field(init=False)
    producer_ids: ProducerIdQuota = field(init=False)

    def measure_anew(self, limits: QuotaLimits) -> None:
        """Forget what clients have used, as after a start."""
        self.quotas = ClientQuotas(
            limits, self.value("quota.window.num"), self.value("quota.window.size.seconds") * 1000
        )
        self.producer_ids = ProducerIdQuota(
            ProducerIdWindow(
                self.value("producer.id.quota.window.num"),
                self.value("producer.id.quota.window.size.seconds") * 1000,
                self.value("producer.id.quota.cache.cleanup.scheduler.interval.ms"),
            )
        )

    @property
    def layers(self) -> configs.Layers:
        """The settings for this broker, strongest first."""
        return (
            (self.dynamic, configs.DYNAMIC_BROKER_CONFIG),
            (self.defaults, configs.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.static, configs.STATIC_BROKER_CONFIG),
        )

    def value(self, name: str) -> int:
        return int(self.text(name))

    def text(self, name: str) -> str:
        for layer in (self.dynamic, self.defaults, self.static):
            if name in layer:
                return layer[name]
        return configs.BROKER[name].default

    @property
    def expiry(self) -> tuple[int, int]:
        """How old a producer ID gets, and how often it is checked, in ms (KIP-854)."""
        return self.value("producer.id.expiration.ms"), self.value("producer.id.expiration.check.interval.ms")


class ClusterState:
    """Brokers, topics, faults and journal of one cluster."""

    def __init__(self, brokers: Iterable[BrokerState]) -> None:
        self.id = uuid.uuid4().hex[:22]
        self.brokers = {broker.id: broker for broker in brokers}
        self.failures: list[Exception] = []
        self.journal: deque[JournalEntry] = deque(maxlen=JOURNAL_SIZE)
        self.topics: dict[str, Topic] = {}
        self.broker_defaults: dict[str, str] = {}
        self.faults = Faults()
        self.clock = ClusterClock()
        self.quotas = QuotaLimits()
        self.access = Access()
        self.coordinators = Coordinators()
        self.rules = Rules()
        self.fetchers: Fetchers | None = None
        self._next_producer_id = _FIRST_PRODUCER_ID
        self._waiting: set[asyncio.Future[None]] = set()
        self._told: set[str] = set()

    def warn(self, about: str, text: str) -> None:
        """A FakeClusterWarning, one about each thing: clients ask again and again."""
        if about in self._told:
            return
        self._told.add(about)
        try:
            warnings.warn(text, FakeClusterWarning, stacklevel=2)
        except FakeClusterWarning as error:  # raised here it would only end a client's connection
            self.failures.append(error)

    def forget(self) -> None:
        """Topics, configs, quotas, faults and journal are gone, and it is now again. Producer IDs go on for ever."""
        self.topics, self.faults, self.coordinators = {}, Faults(), Coordinators()
        self.clock, self.quotas = ClusterClock(), QuotaLimits()
        for broker in self.brokers.values():
            broker.measure_anew(self.quotas)
        self.journal.clear()
        self.broker_defaults.clear()
        self._told.clear()
        self.replicate(None if self.fetchers is None else self.fetchers.link)
        self.changed()

    # ---- brokers

    @property
    def alive(self) -> list[BrokerState]:
        return [broker for broker in self.brokers.values() if broker.alive]

    @property
    def controller(self) -> int:
        return self.alive[0].id if self.alive else -1

    @property
    def groups(self) -> dict[str, Group]:
        return self.coordinators.groups

    def coordinator(self, key: str) -> int:
        """The broker that coordinates what has this name; -1: none lives."""
        return self.coordinators.of(key, [*self.brokers], [broker.id for broker in self.alive])

    def set_alive(self, broker: int, alive: bool) -> None:
        """Start or stop: leaders move to living replicas; a stopped one keeps what its snapshot would hold."""
        self.brokers[broker].alive = alive
        self.follow()
        if alive:
            self.brokers[broker].measure_anew(self.quotas)
        living = [other.id for other in self.alive]
        for topic in self.topics.values():
            for partition in topic.partitions:
                if not alive and broker in partition.states:
                    partition.states[broker].reload()
                elif broker in partition.states:
                    partition.states[broker].load(self.clock.now_ms(), *self.brokers[broker].expiry)
                if self.fetchers is None:
                    partition.elect(living)
        self.set_working(broker, alive)
        self.changed()

    def value(self, broker: BrokerState, topic: Topic, name: str) -> int:
        return int(self._text(broker, topic, name))

    def stamps(self, broker: BrokerState, topic: Topic) -> bool:
        """Whether records of this topic get the time at which they are appended."""
        return self._text(broker, topic, "message.timestamp.type") == configs.LOG_APPEND_TIME

    def _text(self, broker: BrokerState, topic: Topic, name: str) -> str:
        own = topic.config.get(name)
        return broker.text(configs.TOPIC[name].broker_name or name) if own is None else own

    def retain(self, broker: BrokerState, topic: Topic) -> int:
        """How many batches of a producer this broker remembers in a partition of this topic (KIP-1269)."""
        if not broker.kip_1269:
            return RETAINED_BEFORE_KIP_1269
        return self.value(broker, topic, configs.BATCHES_TO_RETAIN)

    def producers(self, partition: Partition, broker: BrokerState) -> ProducerStates:
        """The producers that this replica remembers, without those that its checks found expired (KIP-854)."""
        states, now = partition.states[broker.id], self.clock.now_ms()
        if states.is_due(now):
            states.expire(now, *broker.expiry)
        return states

    def configure(self, values: dict[str, str], changes: Mapping[str, str | None]) -> None:
        """Make these changes of configs, None to take one away. Checks of producers that are due go by the old ones."""
        for topic in self.topics.values():
            for partition in topic.partitions:
                for replica in partition.states:
                    self.producers(partition, self.brokers[replica])
        for name, value in changes.items():
            values.pop(name, None)
            if value is not None:
                values[name] = value
        self.review()
        self.changed()

    @property
    def controller_knows_kip_1269(self) -> bool:
        """Configs of topics are the controller's to take or to refuse."""
        return self.controller in self.brokers and self.brokers[self.controller].kip_1269

    def apply_retention(self) -> int:
        """Delete what is older, or more, than each topic keeps; returns how many batches went."""
        deleted = 0
        for topic in self.topics.values():
            for partition in topic.partitions:
                if partition.leader in self.brokers:
                    leader = self.brokers[partition.leader]
                    age, size = (self.value(leader, topic, f"retention.{unit}") for unit in ("ms", "bytes"))
                    oldest = int(self.clock.now() * 1000) - age if age >= 0 else None
                    deleted += partition.log.delete(oldest, size if size >= 0 else None)
        return deleted

    def new_producer_id(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id - 1

    # ---- topics

    def find_topic(self, name: str | None, topic_id: uuid.UUID | None) -> Topic | None:
        """By name, or by ID where a request has no name."""
        if name:
            return self.topics.get(name)
        return next((topic for topic in self.topics.values() if topic.id == topic_id), None)

    # ---- replicas

    def append(self, topic: Topic, partition: Partition, header: BatchHeader, data: memoryview) -> int:
        """Write a batch to the leader's log, for followers to fetch; returns the offset of its first record."""
        log = partition.log
        before, offset = log.end_bytes, log.append(header, data, partition.leader_epoch)
        if self.fetchers is not None:
            self.follow()
            self.fetchers.append(topic, partition, log.end_bytes - before)
        return offset

    def replicate(self, link: float | None) -> None:
        """Let followers fetch over links of so many bytes/s from now on; with None they never lag."""
        self.fetchers = None if link is None else Fetchers(link, self, {broker.id for broker in self.alive})

    def follow(self) -> None:
        """Let followers fetch until now, and again when the next one has something to do."""
        fetchers = self.fetchers
        if fetchers is not None:
            fetchers.run(self.clock.now_ms())
            fetchers.call_when_due(self.follow)
            if fetchers.news:
                fetchers.news = False
                self.changed()

    def set_working(self, broker: int, works: bool) -> None:
        """Whether this broker, alive or not, fetches and answers fetches."""
        if self.fetchers is not None:
            self.follow()
            self.fetchers.interrupt(broker, lives=self.brokers[broker].alive, works=works)
        self.review()

    def review(self) -> None:
        """After a change of brokers, configs or replicas: elect, commit, finish moves."""
        self.follow()
        for topic in self.topics.values():
            for partition in topic.partitions:
                if self.fetchers is not None:
                    self.fetchers.review(topic, partition)
                elif partition.adding or partition.removing or partition.leader not in partition.replicas:
                    self._finish_move(topic, partition)
        self.follow()

    def _finish_move(self, topic: Topic, partition: Partition) -> None:
        in_sync = self.in_sync(partition)
        if partition.finish_move(in_sync):
            stay = [replica for replica in partition.replicas if replica in in_sync]
            self.lead(topic, partition, partition.leader if partition.leader in stay else [*stay, NO_LEADER][0])

    def lead(self, topic: Topic, partition: Partition, leader: int) -> None:
        if self.fetchers is None:
            partition.lead(leader)
        else:
            self.fetchers.lead(topic, partition, leader)
            self.follow()
        self.changed()

    def in_sync(self, partition: Partition) -> list[int]:
        if partition.copies is not None:
            return [replica for replica in partition.replicas if replica in partition.copies.in_sync]
        return [replica for replica in partition.replicas if self.brokers[replica].alive]

    def minimum(self, topic: Topic, partition: Partition) -> int:
        """How many replicas have to be in sync for a write that all of them acknowledge."""
        return min(self.value(self.brokers[partition.leader], topic, "min.insync.replicas"), len(partition.replicas))

    def lag_ms(self, broker: int) -> int:
        """How long a replica may lag and stay in sync."""
        return self.brokers[broker].value("replica.lag.time.max.ms")

    def is_listed(self, side: Side, broker: int, topic: Topic, index: int) -> bool:
        """Whether this replica's bytes are limited on this side (KIP-73)."""
        listed = throttled_replicas(topic.config.get(LISTS[side], ""))
        return listed is None or (index, broker) in listed

    def replication_rate(self, side: Side, broker: int) -> int:
        return self.brokers[broker].value(RATES[side])

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
            await asyncio.wait((future,), timeout=seconds)
        finally:
            self._waiting.discard(future)
