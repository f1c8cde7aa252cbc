"""FakeCluster: a Kafka cluster inside the process, controlled from any thread."""

import itertools
from collections.abc import Mapping
from types import TracebackType
from typing import Literal, Self

from safeproducer.testing.fake.control.broker_control import BrokerControl
from safeproducer.testing.fake.control.fault_control import FaultControl
from safeproducer.testing.fake.control.quota_control import QuotaControl
from safeproducer.testing.fake.control.reading import Reading
from safeproducer.testing.fake.control.topic_control import TopicControl
from safeproducer.testing.fake.credentials import Credentials
from safeproducer.testing.fake.network.broker import Broker, reserve
from safeproducer.testing.fake.rules import configs
from safeproducer.testing.fake.state.cluster_state import BrokerState

__all__ = ["FakeCluster"]


class FakeCluster(BrokerControl, TopicControl, QuotaControl, FaultControl, Reading):
    """A Kafka cluster on the loopback that any client can connect to, idempotent as Kafka 4.4.0 is.

    ``with FakeCluster() as cluster:`` listens on free ports, on a thread of its own; ``cluster.bootstrap`` is the
    address. Many clusters may run side by side. All methods may be called from any thread, are in force
    when they return, and raise TimeoutError after ``timeout`` seconds. Leaving the
    block cuts all connections and raises what went wrong inside the cluster as an ExceptionGroup.

    ``brokers`` have the ids 1, 2, ... . With ``kip_1269`` (the default) each knows the two configs of KIP-1269;
    without, it remembers five batches and lists neither, like every released broker. The KIP says in two ways where an
    answer to Produce tells the number: ``kip_1269_field="topic"`` has it once for each topic, as the KIP's schema, and
    not in each partition, as its prose. ``broker_config`` is what the properties file of each broker says. With
    ``users``, names and passwords, all clients have to log in by SASL (SASL_PLAINTEXT; PLAIN or SCRAM-SHA-256).
    Raises ValueError for what a broker would not start with.

    It has no consumer groups and transactions (who asks for them gets an error at once, and the test a
    :class:`FakeClusterWarning`), no TLS and no authorization. Followers never lag.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        kip_1269: bool = True,
        kip_1269_field: Literal["partition", "topic"] = "partition",
        broker_config: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        timeout: float = 10,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"brokers: {brokers} make no cluster; give 1 or more")
        if kip_1269_field not in ("partition", "topic"):
            raise ValueError(f"kip_1269_field={kip_1269_field!r} is no place of it; give 'partition' or 'topic'")
        for name, value in (broker_config or {}).items():
            configs.check(configs.BROKER, name, value)
        credentials = None if users is None else Credentials(users)
        super().__init__(timeout)
        self._size = brokers
        self._kip_1269 = kip_1269
        self._static = dict(broker_config or {})
        self._state.credentials = credentials
        self._state.kip_1269_field = kip_1269_field

    def __enter__(self) -> Self:
        numbers = itertools.count(1).__next__
        self._thread.start()
        for broker_id in range(1, self._size + 1):
            reserved = reserve()
            state = BrokerState(
                broker_id, reserved.getsockname()[1], self._kip_1269, self._static, self._state.broker_defaults
            )
            state.measure_anew(self._state.quotas)
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

    def reset(self) -> None:
        """Between tests: no topics, no faults, an empty journal, all brokers up and as constructed, no connections.

        Producer IDs go on, so a client of an earlier test is never mistaken for one of the next. Raises what went wrong
        inside the cluster since the last time as an ExceptionGroup.
        """

        async def work() -> None:
            for broker_id, broker in self._brokers.items():
                await broker.cut()
                broker.resume()
                state = self._state.brokers[broker_id]
                state.kip_1269, state.alive = self._kip_1269, True
                state.dynamic.clear()
            self._state.forget()
            await self._start_all()

        self._await(work)
        failures, self._state.failures = self._state.failures, []
        if failures:
            raise ExceptionGroup("the fake cluster failed", failures)
