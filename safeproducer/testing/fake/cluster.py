"""FakeCluster is a Kafka cluster inside the process, controlled from any thread, with faults and quotas on order."""

import itertools
from collections.abc import Callable, Mapping
from enum import Enum
from types import TracebackType
from typing import Final, Literal, Self

from safeproducer.testing.fake.clients import TlsControl, TransactionControl
from safeproducer.testing.fake.control import BrokerControl, Reading, Runtime, TopicControl, on_cluster
from safeproducer.testing.fake.handlers import SERVED
from safeproducer.testing.fake.network.broker import Broker, reserve
from safeproducer.testing.fake.rules import configs
from safeproducer.testing.fake.rules.producer_id_quota import ProducerIdUsage
from safeproducer.testing.fake.rules.producer_state import Rules
from safeproducer.testing.fake.rules.quotas import CLIENT_ID, USER, Entity, QuotaUsage, describe_entity
from safeproducer.testing.fake.state import markers
from safeproducer.testing.fake.state.certificates import Access, Authority, library
from safeproducer.testing.fake.state.cluster_state import BrokerState
from safeproducer.testing.fake.state.faults import Faults, Scope, Side
from safeproducer.testing.fake.state.sasl import Credentials, Validate

_NAMING_PARTITIONS = ("Produce", "Fetch", "ListOffsets", "OffsetForLeaderEpoch", "DescribeProducers")
_LAST_EPOCH = 32_767
QuotaName = Literal["producer_byte_rate", "consumer_byte_rate", "request_percentage", "producer_ids_rate"]


class FaultControl(Runtime):
    """Makes brokers fail on purpose.

    A fault is for all brokers or for one, and where a ``topic`` can be given, for requests that name it or one
    ``partition`` of it; a request counts once, however many partitions it names. ``api`` is the name of a request,
    as "Produce" or "Metadata"; ``broker`` the id of one, None for all. Raises ValueError for what is not there.
    """

    def delay(
        self, seconds: float, *, broker: int | None = None, api: str | None = None, side: Side = "answer"
    ) -> None:
        """Let answers come ``seconds`` later, or with ``side="request"`` let requests arrive so; always in order.

        With a late answer the work is done at once; a late request is not worked on before. Requests in flight are
        late side by side, as on a long link; but a connection with 16 MB of answers on their way, or 64 MB of requests,
        is not read until there is room. The newest call that covers a request counts; 0 ends it.
        """
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"seconds: {seconds} is no delay; give 0 or more")
        if side not in ("request", "answer"):
            raise ValueError(f"side: {side!r} is neither 'request' nor 'answer'")
        scope = Scope(None if api is None else _served(api), self._checked(broker))
        self._call(lambda: self._state.faults.delays[side].set(scope, seconds))

    def lose_acks(
        self,
        n: int = 1,
        *,
        broker: int | None = None,
        api: str = "Produce",
        topic: str | None = None,
        partition: int | None = None,
    ) -> None:
        """The next ``n`` answers are dropped and their connections cut, as the work is done. 0 ends it for these."""
        scope = self._scope(api, broker, topic, partition)
        self._call(lambda: self._state.faults.order("loss", n, scope))

    def fail_next(
        self,
        api: str,
        error_code: int,
        n: int = 1,
        *,
        broker: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
    ) -> None:
        """The next ``n`` requests of this API are answered with an error of the protocol; nothing is done for them.

        ``error_code`` is its number: 3 is UNKNOWN_TOPIC_OR_PARTITION, 6 NOT_LEADER_OR_FOLLOWER, 19 NOT_ENOUGH_REPLICAS.
        With a ``topic`` only its partitions fail, and the rest of the request is done. 0 ends this error for them.
        """
        if error_code == 0:
            raise ValueError("error_code: 0 is success")
        scope = self._scope(api, broker, topic, partition)
        self._call(lambda: self._state.faults.order("error", n, scope, error_code))

    def hold_next(self, api: str, n: int = 1, *, broker: int | None = None) -> None:
        """The next ``n`` requests of this API wait on their way, and what their connections bring behind them, until
        ``release()``: also when the client has hung up meanwhile, and asked again on another connection. 0 ends it."""
        scope = Scope(_served(api), self._checked(broker))
        self._call(lambda: self._state.faults.order("hold", n, scope))

    def release(self) -> int:
        """Let all requests that are held back arrive now, and hold no more; returns how many that were."""
        return self._call(self._state.faults.release)

    @property
    def held_back(self) -> int:
        """How many requests wait on their way, because of ``hold_next()``."""
        return self._call(lambda: len(self._state.faults.held))

    @on_cluster
    def set_throttle(self, milliseconds: int, *, broker: int | None = None, api: str = "Produce") -> None:
        """Answers of this API announce a throttle time of ``milliseconds`` (KIP-219), not enforced. 0 ends it."""
        if milliseconds < 0:
            raise ValueError(f"milliseconds: {milliseconds} is below 0")
        throttles = self._state.faults.throttles
        throttles.set(Scope(_served(api), self._checked(broker)), milliseconds)

    def end_faults(self) -> None:
        """End all of them: delays, throttle times, losses, errors and holds. Topics, records and the journal stay."""
        self.release()
        self._call(lambda: setattr(self._state, "faults", Faults()))

    @property
    def faults_left(self) -> int:
        """How many ordered losses, errors and holds have not happened yet."""
        return self._call(lambda: self._state.faults.left)

    def _scope(self, api: str, broker: int | None, topic: str | None, partition: int | None) -> Scope:
        if topic is None and partition is not None:
            raise ValueError(f"partition: {partition} of which topic? Give topic too")
        if topic is not None:
            if _served(api) not in _NAMING_PARTITIONS:
                raise ValueError(
                    f"topic: faults of {api} are for whole requests; only {_NAMING_PARTITIONS} name topics"
                )
            self._call(lambda: self._partition(topic, partition or 0))
        return Scope(_served(api), self._checked(broker), topic, partition)


def _served(api: str) -> str:
    if api not in SERVED:
        raise ValueError(f"api: {api!r} is not served, only {', '.join(SERVED)}")
    return api


class _Default(Enum):
    """As ``user`` or ``client_id``: everybody who has no quota of his own; each gets the whole of it."""

    ENTITY = "default"

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT: Final = _Default.ENTITY


class QuotaControl(Runtime):
    """Moves the clock, and sets quotas."""

    @on_cluster
    def advance(self, seconds: float) -> float:
        """Move the cluster's clock on by ``seconds``; returns its time since the Unix epoch. Raises ValueError below 0.

        Producer IDs, sessions and transactions expire, quotas recover and replicas are copied by it. Delays, long polls
        and the time for which a connection is muted stay real, and so do the timestamps of clients.
        """
        now = self._state.clock.advance(seconds)
        self._state.follow()
        markers.pass_time(self._state)
        self._state.changed()
        return now

    def now(self) -> float:
        """The cluster's time, in seconds since the Unix epoch."""
        return self._call(self._state.clock.now)

    def set_quota(
        self,
        name: QuotaName,
        value: float | None,
        *,
        user: str | _Default | None = None,
        client_id: str | _Default | None = None,
    ) -> None:
        """Set a quota on ``user``, ``client_id``, or both; ``value`` None takes it away. In force at once.

        ``name`` says which: ``producer_byte_rate`` and ``consumer_byte_rate``: bytes per second and broker.
        ``request_percentage``: 100 is one thread of a broker. ``producer_ids_rate`` (KIP-936): new producer IDs per
        hour and broker, of users only. :data:`DEFAULT` stands for all users or clients without their own. Without a
        log-in a user is "ANONYMOUS". Raises ValueError, with the way out, for a quota that Kafka would refuse.
        """
        given = {USER: user, CLIENT_ID: client_id}.items()
        entity: Entity = frozenset((kind, None if one is DEFAULT else one) for kind, one in given if one is not None)
        self._call(lambda: self._state.quotas.set(entity, {name: value}))

    def quotas(self) -> dict[str, dict[str, float]]:
        """The quotas that are set and their values, by entity in words ("user 'alice' and default client-id")."""
        return self._call(lambda: {describe_entity(e): dict(limits) for e, limits in self._state.quotas.entities()})

    def quota_usage(self, broker: int) -> list[QuotaUsage]:
        """The use of byte and request quotas at this ``broker``, lately. Measured once a quota was set."""
        state = self._broker(broker)
        return self._call(lambda: state.quotas.usage(self._state.clock.now_ms()))

    def producer_id_usage(self, broker: int) -> dict[str, ProducerIdUsage]:
        """KIP-936's metrics at this ``broker``, by user: rate, tokens, throttle time; users with a quota only."""
        state = self._broker(broker)
        return self._call(lambda: state.producer_ids.usage(self._state.clock.now_ms()))


def _rules(kip_1269_field: str, kafka: str, first_epoch: int, transaction_version: int) -> Rules:
    if kip_1269_field not in ("partition", "topic"):
        raise ValueError(f"kip_1269_field={kip_1269_field!r} is no place of it; give 'partition' or 'topic'")
    if kafka not in ("4.4", "4.5"):
        raise ValueError(f"kafka={kafka!r} is no version whose rules are known; give '4.4' or '4.5'")
    if not 0 <= first_epoch <= _LAST_EPOCH:
        raise ValueError(f"first_epoch={first_epoch} is no epoch; give a number from 0 to {_LAST_EPOCH}")
    if transaction_version not in (1, 2):
        raise ValueError(f"transaction_version={transaction_version!r} is no version of transactions; give 1 or 2")
    return Rules(kip_1269_field, kafka, first_epoch, transaction_version)


def _credentials(
    users: Mapping[str, str] | None, tokens: Validate | None, reauthentication: float | None
) -> Credentials | None:
    logins = users is not None or tokens is not None
    if reauthentication is not None and not (logins and 0 < reauthentication < float("inf")):
        raise ValueError(f"reauthentication={reauthentication}: give seconds above 0, and users or tokens with them")
    return Credentials(users, tokens, reauthentication) if logins else None


class FakeCluster(BrokerControl, TopicControl, QuotaControl, FaultControl, TlsControl, TransactionControl, Reading):
    """A Kafka cluster on the loopback that any client can connect to, idempotent as Kafka 4.4.0 is.

    ``with FakeCluster() as cluster:`` listens on free ports, on a thread of its own; ``cluster.bootstrap`` is the
    address. Many clusters may run side by side. All methods may be called from any thread, are in force
    when they return, and raise TimeoutError after ``timeout`` seconds. Leaving the
    block cuts all connections and raises what went wrong inside the cluster as an ExceptionGroup.

    ``brokers`` have the ids 1, 2, ... . With ``kip_1269`` (the default) each knows the two configs of KIP-1269;
    without, it remembers five batches and lists neither, like every released broker. The KIP says in two ways where an
    answer to Produce tells the number: ``kip_1269_field="topic"`` has it once for each topic, as the KIP's schema, and
    not in each partition, as its prose. ``broker_config`` is what the properties file of each broker says. With
    ``users``, names and passwords, all clients have to log in by SASL (PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512). With
    ``tokens`` they may by OAUTHBEARER: it gives the principal of a token, or None for a bad one, as it does for one
    whose ``exp`` is over (of a JSON Web Token); it is called on the cluster's thread, and what it raises is in the
    journal. A log-in ends after ``reauthentication`` seconds of the cluster's time, or with its token: clients log in
    anew before (KIP-368). With ``tls`` brokers have certificates of an authority made at the start (``ca_file``);
    "mutual": clients need one, too (``client_files()``).
    With ``replica_link`` followers fetch from each leader over a link of so many bytes/s: they may lag, leave the set
    of replicas in sync, delay acknowledgements, and are held back by replication quotas (KIP-73). Without it they never
    lag.
    With ``kafka="4.5"`` an empty partition refuses a producer that does not begin at sequence 0 (KAFKA-15591): so does
    a topic that was made anew. ``first_epoch`` is the epoch of each new producer ID; the last one is 32767.
    Raises ValueError for what a broker would not start with.

    ``transaction_version`` is what clients are told: with 2 those that can begin a new epoch at each end (KIP-890).
    Consumer groups are those of the classic protocol: who asks for one of KIP-848 gets an error at once, and the test a
    :class:`FakeClusterWarning`. It has no authorization.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        kip_1269: bool = True,
        kip_1269_field: Literal["partition", "topic"] = "partition",
        broker_config: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        tokens: Callable[[str], str | None] | None = None,
        reauthentication: float | None = None,
        tls: bool | Literal["mutual"] = False,
        replica_link: float | None = None,
        kafka: Literal["4.4", "4.5"] = "4.4",
        first_epoch: int = 0,
        transaction_version: Literal[1, 2] = 2,
        timeout: float = 10,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"brokers: {brokers} make no cluster; give 1 or more")
        for name, value in (broker_config or {}).items():
            configs.check(configs.BROKER, name, value)
        if replica_link is not None and not 0 < replica_link < float("inf"):
            raise ValueError(f"replica_link={replica_link} is no link: give bytes/s above 0, or None for no lag at all")
        if tls not in (False, True, "mutual"):
            raise ValueError(f"tls={tls!r} is no kind of it; give True, 'mutual' or False")
        if tls:
            library()
        access = Access(_credentials(users, tokens, reauthentication))
        rules = _rules(kip_1269_field, kafka, first_epoch, transaction_version)
        super().__init__(timeout)
        self._size = brokers
        self._kip_1269 = kip_1269
        self._static = dict(broker_config or {})
        self._link = replica_link
        self._tls = tls
        self._state.access, self._state.rules = access, rules

    def __enter__(self) -> Self:
        numbers = itertools.count(1).__next__
        if self._tls:
            self._state.access.authority = Authority(mutual=self._tls == "mutual")
        self._thread.start()
        for broker_id in range(1, self._size + 1):
            reserved = reserve()
            port, defaults = reserved.getsockname()[1], self._state.broker_defaults
            state = BrokerState(broker_id, port, self._kip_1269, self._static, defaults)
            state.measure_anew(self._state.quotas)
            self._state.brokers[broker_id] = state
            self._brokers[broker_id] = Broker(self._state, state, reserved, numbers)
        self._state.replicate(self._link)
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
            if (authority := self._state.access.authority) is not None:
                authority.close()

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
