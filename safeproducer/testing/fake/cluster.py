"""FakeCluster: a Kafka cluster inside the process, controlled from any thread."""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from safeproducer.testing.fake import configs
from safeproducer.testing.fake.broker import Broker, reserve
from safeproducer.testing.fake.handlers import SERVED
from safeproducer.testing.fake.handlers.request import LOOPBACK
from safeproducer.testing.fake.journal import JournalEntry
from safeproducer.testing.fake.producer_state import ProducerEntry
from safeproducer.testing.fake.records import StoredRecord, read_records
from safeproducer.testing.fake.state import BrokerState, ClusterState
from safeproducer.testing.fake.topics import Partition
from safeproducer.testing.produce import BatchHeader

__all__ = ["FakeCluster"]

T = TypeVar("T")


class FakeCluster:
    """A Kafka cluster on the loopback that any client can connect to, idempotent as Kafka 4.3.1 is.

    ``with FakeCluster() as cluster:`` listens on free ports, on a thread of its own; ``cluster.bootstrap`` is the
    address. Many clusters may run side by side. All methods may be called from any thread, are in force
    when they return, and raise TimeoutError after ``timeout`` seconds. Leaving the
    block cuts all connections and raises what went wrong inside the cluster as an ExceptionGroup.

    ``brokers`` have the ids 1, 2, ... . With ``kip_1269`` (the default) each knows the two configs of KIP-1269;
    without, it remembers five batches and lists neither, like every released broker. ``broker_config`` is what the
    properties file of each broker says. Raises ValueError for what a broker would not start with.

    Not there: consumer groups, transactions, security, quotas, retention. Followers never lag.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        kip_1269: bool = True,
        broker_config: Mapping[str, str] | None = None,
        timeout: float = 10,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"brokers: {brokers} make no cluster; give 1 or more")
        for name, value in (broker_config or {}).items():
            configs.check(configs.BROKER, name, value)
        self._kip_1269 = kip_1269
        self._static = {name: (value, configs.STATIC_BROKER_CONFIG) for name, value in (broker_config or {}).items()}
        self._timeout = timeout
        self._size = brokers
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="fake-cluster", daemon=True)
        self._brokers: dict[int, Broker] = {}
        self._state = ClusterState([])

    # ---- life

    def __enter__(self) -> Self:
        numbers = itertools.count(1).__next__
        self._thread.start()
        for broker_id in range(1, self._size + 1):
            reserved = reserve()
            state = BrokerState(broker_id, reserved.getsockname()[1], self._kip_1269, dict(self._static))
            self._state.brokers[broker_id] = state
            self._brokers[broker_id] = Broker(self._state, state, reserved, numbers)
        try:
            self._await(self._start_all)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        if self._state.failures and error is not None:
            error.add_note(f"the fake cluster failed too: {self._state.failures!r}")
        elif self._state.failures:
            raise ExceptionGroup("the fake cluster failed", self._state.failures)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _end(self) -> None:
        async def close_all() -> None:
            for broker in self._brokers.values():
                await broker.close()

        try:
            self._await(close_all)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(self._timeout)
            self._loop.close()

    async def _start_all(self) -> None:
        for broker in self._brokers.values():
            await broker.start()

    def _await(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if not self._thread.is_alive():
            raise RuntimeError("this FakeCluster is not running: use it inside `with FakeCluster() as cluster:`")
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(self._timeout)

    def _call(self, work: Callable[[], T]) -> T:
        async def run() -> T:
            return work()

        return self._await(run)

    def reset(self) -> None:
        """Between tests: no topics, no faults, an empty journal, all brokers up and as constructed, no connections.

        Producer IDs go on, so a client of an earlier test is never mistaken for one of the next.
        """

        async def work() -> None:
            for broker_id, broker in self._brokers.items():
                await broker.cut()
                state = self._state.brokers[broker_id]
                state.kip_1269, state.overrides = self._kip_1269, dict(self._static)
                state.alive = True
            self._state.forget()
            await self._start_all()

        self._await(work)

    # ---- brokers

    @property
    def bootstrap(self) -> str:
        """``bootstrap.servers`` of all brokers."""
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

    def stop(self, broker: int) -> None:
        """Cut its connections, refuse new ones, and move its partitions to living replicas.

        What it remembers of producers shrinks to the last batch each, which is what a restart finds in a snapshot.
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

    def cut(self, broker: int | None = None) -> int:
        """End all connections, or one broker's, now; returns how many."""
        chosen = self.brokers if self._checked(broker) is None else (broker,)

        async def work() -> int:
            return sum([await self._brokers[one].cut() for one in chosen if one is not None])

        return self._await(work)

    def set_kip_1269(self, broker: int, known: bool) -> None:
        """Upgrade or downgrade a broker at run time. An old one remembers five batches and lists neither config."""
        state = self._broker(broker)
        self._call(lambda: setattr(state, "kip_1269", known))

    def set_broker_config(self, broker: int, name: str, value: str | None) -> None:
        """A dynamic broker config; None takes it away again. Raises ValueError for what a broker would refuse."""
        state = self._broker(broker)
        if value is not None or name not in configs.BROKER:
            configs.check(configs.BROKER, name, value)

        def work() -> None:
            state.overrides.pop(name, None)
            if value is not None:
                state.overrides[name] = (value, configs.DYNAMIC_BROKER_CONFIG)
            elif name in self._static:
                state.overrides[name] = self._static[name]

        self._call(work)

    # ---- topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """On the living brokers, three replicas if there are as many. Raises ValueError for what Kafka would refuse."""

        def work() -> None:
            factor = min(3, len(self._state.alive)) if replication_factor is None else replication_factor
            self._state.create_topic(name, partitions, factor, dict(config or {}))

        self._call(work)

    def set_topic_config(self, topic: str, name: str, value: str | None) -> None:
        """Set a config on the topic, or take it away with None. Raises ValueError for what Kafka would refuse."""
        if value is not None or name not in configs.TOPIC:
            configs.check(configs.TOPIC, name, value)

        def work() -> None:
            found = self._state.topics.get(topic)
            if found is None:
                raise ValueError(f"topic: there is no {topic!r}, only {sorted(self._state.topics)}")
            found.config.pop(name, None)
            if value is not None:
                found.config[name] = value

        self._call(work)

    def _partition(self, topic: str, partition: int) -> Partition:
        found = self._state.topics.get(topic)
        if found is None:
            raise ValueError(f"topic: there is no {topic!r}, only {sorted(self._state.topics)}")
        if not 0 <= partition < len(found.partitions):
            raise ValueError(f"partition: {topic!r} has {len(found.partitions)}, not one with number {partition}")
        return found.partitions[partition]

    def leader(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """The leading broker (-1: none is alive) and the leader epoch."""

        def work() -> tuple[int, int]:
            found = self._partition(topic, partition)
            return found.leader, found.leader_epoch

        return self._call(work)

    def move_leader(self, topic: str, partition: int = 0, to: int | None = None) -> int:
        """Hand the partition to another living replica, the next one if ``to`` is None; returns the new leader.

        The leader epoch grows. Raises ValueError if there is no such replica.
        """

        def work() -> int:
            found = self._partition(topic, partition)
            living = [replica for replica in found.replicas if self._state.brokers[replica].alive]
            others = [replica for replica in living if replica != found.leader]
            chosen = to if to is not None else next(iter(others), None)
            if chosen not in others:
                raise ValueError(f"to: {to} does not follow {topic}-{partition}; its living followers are {others}")
            found.lead(chosen)
            self._state.changed()
            return chosen

        return self._call(work)

    def batches(self, topic: str, partition: int = 0) -> list[BatchHeader]:
        """The batches in the log, oldest first, by their headers."""
        return [header for header, _ in self._stored(topic, partition)]

    def log(self, topic: str, partition: int = 0) -> list[StoredRecord]:
        """All records in the log. Raises WireError if a batch is packed with something else than gzip."""
        return [record for header, data in self._stored(topic, partition) for record in read_records(header, data)]

    def _stored(self, topic: str, partition: int) -> list[tuple[BatchHeader, bytes]]:
        def work() -> list[tuple[BatchHeader, bytes]]:
            return self._partition(topic, partition).log.batches()

        return self._call(work)

    def producer_state(self, topic: str, partition: int = 0, *, broker: int | None = None) -> dict[int, ProducerEntry]:
        """What a replica (default: the leader) remembers, by producer ID, right now; copies."""

        def work() -> dict[int, ProducerEntry]:
            found = self._partition(topic, partition)
            replica = found.leader if broker is None else broker
            if replica not in found.states:
                raise ValueError(f"broker: {replica} has no replica of {topic}-{partition}, only {found.replicas} have")
            return found.states[replica].entries()

        return self._call(work)

    # ---- faults

    def delay(self, seconds: float, *, broker: int | None = None) -> None:
        """Answers come this much later, in order; requests are worked on at once. 0 ends it."""
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"seconds: {seconds} is no delay; give 0 or more")
        self._checked(broker)
        self._call(lambda: self._state.faults.set_delay(seconds, broker))

    def lose_acks(self, n: int = 1, *, broker: int | None = None, api: str = "Produce") -> None:
        """The next ``n`` answers are dropped and their connections cut: the work is done, the client never hears."""
        self._checked(broker)
        self._call(lambda: self._state.faults.lose(_served(api), _positive(n), broker))

    def fail_next(self, api: str, error_code: int, n: int = 1, *, broker: int | None = None) -> None:
        """The next ``n`` requests of this API are answered with an error of the protocol; nothing is done for them."""
        if error_code == 0:
            raise ValueError("error_code: 0 is success")
        self._checked(broker)
        self._call(lambda: self._state.faults.fail(_served(api), error_code, _positive(n), broker))

    def set_throttle(self, milliseconds: int, *, broker: int | None = None, api: str = "Produce") -> None:
        """Answers of this API announce this throttle time (KIP-219). Nothing is held back for it. 0 ends it."""
        if milliseconds < 0:
            raise ValueError(f"milliseconds: {milliseconds} is below 0")
        self._checked(broker)
        self._call(lambda: self._state.faults.set_throttle(milliseconds, _served(api), broker))

    @property
    def faults_left(self) -> int:
        """How many ordered losses and errors have not happened yet."""
        return self._call(lambda: self._state.faults.left)

    # ---- what was asked

    def journal(self, api: str | None = None, *, broker: int | None = None) -> list[JournalEntry]:
        """The newest 200 000 requests, oldest first, all or those of one API or broker."""
        entries = self._call(lambda: list(self._state.journal))
        return [entry for entry in entries if api in (None, entry.api) and broker in (None, entry.broker)]

    def wait(self, happened: Callable[["FakeCluster"], bool], timeout: float = 10) -> None:
        """Return when ``happened(cluster)`` is true. Raises TimeoutError after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while not happened(self):
            if time.monotonic() > deadline:
                raise TimeoutError(f"it did not happen within {timeout} s")
            time.sleep(0.002)


def _served(api: str) -> str:
    if api not in SERVED:
        raise ValueError(f"api: {api!r} is not served, only {', '.join(SERVED)}")
    return api


def _positive(n: int) -> int:
    if n < 1:
        raise ValueError(f"n: {n} is below 1")
    return n
