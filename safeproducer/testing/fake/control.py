"""Tests stop and start brokers, change topics, and read logs and requests, from any thread."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial, wraps
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypedDict, TypeVar

from safeproducer.testing.fake.handlers.request import LOOPBACK
from safeproducer.testing.fake.network.broker import Broker
from safeproducer.testing.fake.rules import configs
from safeproducer.testing.fake.rules.producer_state import ProducerEntry
from safeproducer.testing.fake.rules.replication import FOLLOWER, LEADER
from safeproducer.testing.fake.state import markers, topic_changes
from safeproducer.testing.fake.state.cluster_state import BrokerState, ClusterState, JournalEntry
from safeproducer.testing.fake.state.topics import NO_LEADER, Partition, Topic
from safeproducer.testing.produce import BatchHeader, StoredRecord, read_records

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound="Runtime")


class Runtime:
    """The base of every group of control methods: the cluster's state, touched on its own thread only."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="fake-cluster", daemon=True)
        self._brokers: dict[int, Broker] = {}
        self._state = ClusterState([])

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _await(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if not self._thread.is_alive():
            raise RuntimeError("this FakeCluster is not running: use it inside `with FakeCluster() as cluster:`")
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(self._timeout)

    def _call(self, work: Callable[[], T]) -> T:
        async def run() -> T:
            return work()

        return self._await(run)

    @property
    def bootstrap(self) -> str:
        """The value for ``bootstrap.servers``: host and port of all brokers."""
        return ",".join(f"{LOOPBACK}:{broker.port}" for broker in self._state.brokers.values())

    @property
    def brokers(self) -> tuple[int, ...]:
        """The ids of all brokers, living or not."""
        return tuple(self._brokers)

    def _broker(self, broker: int) -> BrokerState:
        if broker not in self._state.brokers:
            raise ValueError(f"broker: there is no broker {broker}, only {sorted(self._state.brokers)}")
        return self._state.brokers[broker]

    def _checked(self, broker: int | None) -> int | None:
        return None if broker is None else self._broker(broker).id

    def _topic(self, topic: str) -> Topic:
        if topic not in self._state.topics:
            raise ValueError(f"topic: there is no {topic!r}, only {sorted(self._state.topics)}")
        return self._state.topics[topic]

    def _partition(self, topic: str, partition: int) -> Partition:
        found = self._topic(topic).partitions
        if not 0 <= partition < len(found):
            raise ValueError(f"partition: {topic!r} has {len(found)}, not one with number {partition}")
        return found[partition]


def on_cluster(method: Callable[Concatenate[R, P], T]) -> Callable[Concatenate[R, P], T]:
    """The method, done on the cluster's thread while the caller waits. It may not call another one of these."""

    @wraps(method)
    def call(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(partial(method, self, *args, **kwargs))

    return call


class BrokerControl(Runtime):
    """Stops, starts and configures brokers. A ``broker`` is given by its id, from 1 on."""

    def stop(self, broker: int) -> None:
        """Cut its connections, refuse new ones, and move its partitions to living replicas.

        Its memory of producers shrinks to the last batch each, which is what a restart finds in a snapshot.
        """
        self._broker(broker)

        async def work() -> None:
            await self._brokers[broker].stop()
            if self._state.brokers[broker].alive:
                self._state.set_alive(broker, False)

        self._await(work)

    def start(self, broker: int) -> None:
        """Bring a stopped broker back on its port. It leads only what has no other leader."""
        self._broker(broker)

        async def work() -> None:
            self._state.set_alive(broker, True)
            await self._brokers[broker].start()

        self._await(work)

    def pause(self, broker: int) -> None:
        """Let it accept connections and nothing else: it reads nothing, and its answers wait for :meth:`resume`.

        To clients it is as a broker whose process hangs. It goes on leading: move its partitions if they shall not
        wait. A fetch that waits for records goes on waiting, unanswered. :meth:`stop` and ``reset()`` end a pause.
        """
        self._hang(broker, Broker.pause)

    @on_cluster
    def _hang(self, broker: int, change: Callable[[Broker], None]) -> None:
        change(hanging := self._brokers[self._broker(broker).id])
        self._state.set_working(broker, hanging.is_running)

    def resume(self, broker: int) -> None:
        """Work on what came during the pause, in order, and send what waited. Without a pause it does nothing."""
        self._hang(broker, Broker.resume)

    def cut(self, broker: int | None = None, *, client_id: str | None = None) -> int:
        """End all connections, or those of ``broker``, of ``client_id``, or of both, now; returns how many."""
        chosen = self.brokers if self._checked(broker) is None else (broker,)

        async def work() -> int:
            return sum([await self._brokers[one].cut(client_id) for one in chosen if one is not None])

        return self._await(work)

    @on_cluster
    def set_kip_1269(self, broker: int, known: bool) -> None:
        """Upgrade or downgrade a broker: without it ``known`` it remembers five batches, and lists neither config."""
        self._broker(broker).kip_1269 = known

    @on_cluster
    def set_broker_config(self, broker: int, name: str, value: str | None) -> None:
        """Set the dynamic config ``name`` of a broker, or take it away (``value`` None). Raises ValueError as Kafka."""
        state = self._broker(broker)
        if value is not None or name not in configs.BROKER:
            configs.check(configs.BROKER, name, value)
        if not configs.BROKER[name].dynamic:
            raise ValueError(f"{name}: cannot be changed while the broker runs; give it as broker_config")
        self._state.configure(state.dynamic, {name: value})


class TopicControl(Runtime):
    """Makes, changes and deletes topics. A ``partition`` of a ``topic`` is counted from 0 on."""

    @on_cluster
    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Make the topic ``name`` with so many ``partitions`` on the living brokers.

        ``replication_factor`` None: three replicas, if there are as many brokers. ``config``: configs of the topic, as
        ``{"min.insync.replicas": "2"}``. Raises ValueError for what Kafka would refuse.
        """
        factor = min(3, len(self._state.alive)) if replication_factor is None else replication_factor
        topic_changes.create_topic(self._state, name, partitions, factor, dict(config or {}))

    @on_cluster
    def set_topic_config(self, topic: str, name: str, value: str | None) -> None:
        """Set the config ``name`` on the topic, or take it away (``value`` None). Raises ValueError as Kafka."""
        if value is not None or name not in configs.TOPIC:
            configs.check(configs.TOPIC, name, value)
        self._state.configure(self._topic(topic).config, {name: value})

    @on_cluster
    def fill(self, topic: str, partition: int, size: int, *, replicated: bool = True) -> None:
        """Let the partition have ``size`` bytes more, without records that anybody could read: they cost no memory.

        All replicas in sync have them at once. With ``replicated=False`` only the leader has, as after a write, and
        followers fetch them; without ``replica_link`` none ever lags. Raises ValueError below 0, or without a leader.
        """
        if size < 0:
            raise ValueError(f"size: {size} bytes are below 0")
        found = self._partition(topic, partition)
        if found.leader == NO_LEADER:
            raise ValueError(f"partition: {topic}-{partition} has no leader to write to; start a broker of its own")
        self._state.follow()
        found.log.end_bytes += size
        if self._state.fetchers is not None:
            self._state.fetchers.append(self._topic(topic), found, size, replicated=replicated)
            self._state.follow()

    def apply_retention(self) -> int:
        """Delete what ``retention.ms`` and ``retention.bytes`` released, as a broker does every five minutes.

        It happens when asked only, so that no test loses records unawares. A batch is as old as its newest record and
        goes as a whole. Returns how many batches went.
        """
        return self._call(self._state.apply_retention)

    @on_cluster
    def leader(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """The leading broker (-1: none is alive) and the leader epoch."""
        found = self._partition(topic, partition)
        return found.leader, found.leader_epoch

    @on_cluster
    def move_leader(self, topic: str, partition: int = 0, to: int | None = None) -> int:
        """Hand the partition to another replica in sync, the next one if ``to`` is None; returns the new leader.

        The leader epoch grows. Raises ValueError if there is no such replica.
        """
        found = self._partition(topic, partition)
        others = [replica for replica in self._state.in_sync(found) if replica != found.leader]
        chosen = to if to is not None else next(iter(others), None)
        if chosen not in others:
            raise ValueError(f"to: {to} does not follow {topic}-{partition}; its living followers are {others}")
        self._state.lead(self._topic(topic), found, chosen)
        return chosen


class ReplicationMetrics(TypedDict):
    """Bytes/s of listed replicas that go out and come in, the bytes that replicas lack, bytes/s by partition."""

    LeaderReplicationThrottledRate: float
    FollowerReplicationThrottledRate: float
    SumReplicaLag: int
    PartitionBytesInRate: dict[tuple[str, int], float]


class Reading(Runtime):
    """Shows a test what the cluster holds: a ``partition`` of a ``topic``, or a ``broker`` by its id."""

    def batches(self, topic: str, partition: int = 0) -> list[BatchHeader]:
        """The batches in the log, oldest first, by their headers."""
        return [header for header, _ in self._stored(topic, partition)]

    def log(
        self,
        topic: str,
        partition: int = 0,
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    ) -> list[StoredRecord]:
        """All records in the log, unpacked, or with ``isolation`` those that readers of committed records see.

        Raises WireError for a batch that holds none.
        """
        if isolation not in ("read_uncommitted", "read_committed"):
            raise ValueError(f"isolation={isolation!r}: give 'read_uncommitted' or 'read_committed'")
        stored = self._stored(topic, partition, committed=isolation == "read_committed")
        return [record for header, data in stored if not header.control for record in read_records(header, data)]

    @on_cluster
    def _stored(self, topic: str, partition: int, *, committed: bool = False) -> list[tuple[BatchHeader, bytes]]:
        markers.pass_time(self._state)
        found = self._partition(topic, partition)
        return found.committed() if committed else found.log.batches()

    @on_cluster
    def producer_state(self, topic: str, partition: int = 0, *, broker: int | None = None) -> dict[int, ProducerEntry]:
        """The producers that a replica (default: the leader) remembers, by producer ID, right now; copies."""
        found = self._partition(topic, partition)
        replica = found.leader if broker is None else broker
        if replica not in found.states:
            raise ValueError(f"broker: {replica} has no replica of {topic}-{partition}, only {found.replicas} have")
        return self._state.producers(found, self._broker(replica)).entries()

    @on_cluster
    def replication(self, broker: int) -> ReplicationMetrics:
        """KIP-73's metrics at this broker. Rates are 0 without ``replica_link``."""
        self._broker(broker)
        self._state.follow()
        fetchers = self._state.fetchers
        return {
            "LeaderReplicationThrottledRate": fetchers.rate(LEADER, broker) if fetchers else 0.0,
            "FollowerReplicationThrottledRate": fetchers.rate(FOLLOWER, broker) if fetchers else 0.0,
            "SumReplicaLag": fetchers.lag(broker) if fetchers else 0,
            "PartitionBytesInRate": fetchers.bytes_in(broker) if fetchers else {},
        }

    def journal(self, api: str | None = None, *, broker: int | None = None) -> list[JournalEntry]:
        """The newest 200 000 requests, oldest first: all, those of the ``api`` of this name, or those to ``broker``."""
        entries = self._call(lambda: list(self._state.journal))
        return [entry for entry in entries if api in (None, entry.api) and broker in (None, entry.broker)]

    def wait(self, happened: Callable[[Self], bool], timeout: float = 10) -> None:
        """Return when ``happened(cluster)`` is true. Raises TimeoutError after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while not happened(self):
            if time.monotonic() > deadline:
                raise TimeoutError(f"it did not happen within {timeout} s")
            time.sleep(0.002)
