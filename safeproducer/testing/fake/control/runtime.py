"""The thread a cluster lives on, and how calls from other threads reach it."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from safeproducer.testing.fake.handlers.request import LOOPBACK
from safeproducer.testing.fake.network.broker import Broker
from safeproducer.testing.fake.state.cluster_state import BrokerState, ClusterState
from safeproducer.testing.fake.state.topics import Partition

__all__ = ["Runtime"]

T = TypeVar("T")


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

    def _partition(self, topic: str, partition: int) -> Partition:
        found = self._state.topics.get(topic)
        if found is None:
            raise ValueError(f"topic: there is no {topic!r}, only {sorted(self._state.topics)}")
        if not 0 <= partition < len(found.partitions):
            raise ValueError(f"partition: {topic!r} has {len(found.partitions)}, not one with number {partition}")
        return found.partitions[partition]
