"""SafeProducer: the drop-in surface. It owns one engine and the delivery counters of its records."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from threading import get_ident
from types import MethodType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from safeproducer.errors import NOT_ACCEPTED, RENEWED, UNINITIALISED, ConfigurationError, QueueFullError
from safeproducer.hooks import Hook
from safeproducer.kafka.arguments import NO_TIMEOUT, seconds
from safeproducer.kafka.native import KNOWS_CLUSTER_ID, VERSION, ClientProducer
from safeproducer.records import are_known, call_site, checked_names
from safeproducer.runtime import clock, forks, lifetime
from safeproducer.snapshot import CloseReport, Health, Snapshot
from safeproducer.submitting import ProducerSlots, Submitting

if TYPE_CHECKING:
    from safeproducer.pipeline.closing import Closing
    from safeproducer.pipeline.engine import Engine
    from safeproducer.pipeline.inspection import Inspection
    from safeproducer.pipeline.reports.counters import DeliveryCounters, TopicCounters
    from safeproducer.pipeline.route import Route
    from safeproducer.pipeline.transactions import Transactions
    from safeproducer.settings.config import Settings

_HERE = forks.here
_NOW = 0
_NUMBERS = frozenset({float, int})
_ROOM_ROUND = 0.1


class SafeProducer(Submitting, ProducerSlots):
    """A drop-in for confluent_kafka.Producer that accounts for every record.

    `SafeProducer(config)` takes configuration in all of confluent_kafka's forms; settings beginning with
    `safeproducer.` are its own. `hooks` are safeproducer.Hook objects. `enable.idempotence` defaults to true, unless
    acks, retries, max.in.flight or queuing.strategy were set to values that rule it out.

    Raises ConfigurationError, naming the setting, its value and the way out.

    Thread-safety: produce(), produce_batch(), poll(), flush() and snapshot() may be called from any thread; close()
    when no other thread produces. Callbacks run inside poll() and flush(), on the thread that called them.
    A producer does not survive fork(): in the child every call raises ForkedProducerError.
    """

    # The base class stays uninitialised: it makes isinstance() true, and its methods are all replaced below. A method a
    # newer confluent_kafka adds would find no handle and raise "Producer has been closed"; see _forward_the_rest().

    # Two underscores each, and no public method called by way of self: as with confluent_kafka, a subclass may use any
    # name of its own and override any method. What stands here is what one that forgets super().__init__() finds.
    __engine: Engine
    __route: Route
    __counters: DeliveryCounters
    __topics: dict[str, TopicCounters]
    __on_delivery: Callable[..., Any] | None
    __settings: Settings = UNINITIALISED  # type: ignore[assignment]
    __initialised = False
    __transactions: Transactions = UNINITIALISED  # type: ignore[assignment]
    __closing: Closing = UNINITIALISED  # type: ignore[assignment]
    __inspection: Inspection = UNINITIALISED  # type: ignore[assignment]
    __produce_batch: Callable[..., int] = UNINITIALISED
    __check: Callable[..., Health] = UNINITIALISED
    __release: Callable[[str], None] = UNINITIALISED
    __blocked: set[int]

    def __init__(self, *args: Any, hooks: Iterable[Hook] = (), **config: Any) -> None:
        if self.__initialised:  # as confluent_kafka words it
            raise RuntimeError("Producer already __init__:ialized: make a new one instead of calling __init__() again")
        forks.notice()
        from safeproducer.pipeline.assembly import surface  # noqa: PLC0415 - most of the package

        try:
            parts = surface(args, config, hooks, call_site())
        except ConfigurationError as error:
            raise error.with_traceback(None) from error.__cause__  # its frames know secrets; some tools print locals
        finally:
            del args, config
        put = partial(object.__setattr__, self)  # a subclass that is a frozen dataclass refuses assignments
        for name, part in parts.items():
            put(f"_SafeProducer__{name}", part)
        put("_SafeProducer__initialised", True)
        lifetime.enrol(
            self, lambda this: this.__closing.become_forked(), lambda this, reason: this.__closing.report_loss(reason)
        )
        self.__closing.begin()

    # --- producing -------------------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        callback: Callable[..., Any] | None = None,
        on_delivery: Callable[..., Any] | None = None,
        timestamp: int = _NOW,
        headers: Any = None,
    ) -> None:
        """Accept one record for `topic`. Arguments, errors and callbacks are those of confluent_kafka.Producer.

        `partition` -1: chosen by `key`. `timestamp`: ms since the epoch (0: now). `headers`: dict or pairs. `callback`
        (or `on_delivery`) gets error and message inside poll(). Raises QueueFullError (a BufferError) when the queue
        stays full for safeproducer.max.block.ms, FatalError and ProducerIdLimitError: `value` is not written then.
        """
        try:
            account: Any = self.__topics[topic]
        except (KeyError, TypeError):
            account = self.__counters.open(topic)
        if callback is None:
            callback = self.__on_delivery if on_delivery is None else on_delivery
        if partition != -1:
            account = account.explicit(partition)
        bound = account.bound
        # A bound method is a new object at each mention, though it is the same callback.
        if bound[0] is not callback and (type(callback) is not MethodType or bound[0] != callback):
            bound = account.bind(callback)
        account.accepted += 1  # before it is handed over: the report may arrive on another thread before that returns
        try:
            if headers is None and timestamp is _NOW:  # other kinds of zero go to the native call's own check
                self.__route.send(topic, value, key, partition, bound[1])
            else:
                if timestamp is not _NOW or not are_known(headers, account.names):
                    self.__note(account, topic, timestamp, headers)
                self.__route.send(topic, value, key, partition, bound[1], None, timestamp, headers)
        except BaseException as error:
            self.__counters.interrupts += 1  # whether it was accepted is not known yet, and a handler may raise now
            self.__not_accepted(error, account, topic, value, key, partition, callback, timestamp, headers)

    def __note(self, account: Any, topic: str, timestamp: int, headers: Any) -> None:
        self.__counters.report_queue.note_headers(topic, headers)
        account.names = checked_names(headers, account.names)
        if timestamp is not _NOW:
            expirations = self.__engine.questions.expirations
            expirations.timestamps.note(topic, timestamp)

    def __not_accepted(self, error: BaseException, account: Any, *record: Any) -> None:
        """Raise what produce() is to raise for `error`, unless the record is accepted after all."""
        refusal: Exception | None = None
        try:
            if not isinstance(error, NOT_ACCEPTED):
                raise  # noqa: PLE0704 - produce() handles it
            account.accepted -= 1
            self.__counters.interrupts -= 1  # one step with the line above
            refusal = self.__engine.calls.refusal_of(error)
            if isinstance(refusal, QueueFullError) and self.__may_block():
                self.__produce_when_there_is_room(refusal, *record)
                return
            if refusal is RENEWED:
                topic, value, key, partition, callback, timestamp, headers = record
                SafeProducer.produce(self, topic, value, key, partition, callback, None, timestamp, headers)
                return
            raise refusal from None
        finally:
            del error, refusal  # they refer to this frame, which refers to the callback: a cycle

    def __may_block(self) -> bool:
        thread = get_ident()
        return self.__settings.max_block > 0 and thread not in self.__blocked and not self.__route.in_callback

    def __produce_when_there_is_room(self, refusal: QueueFullError, *record: Any) -> None:
        """Serve callbacks for up to safeproducer.max.block.ms until the record is accepted; else raise `refusal`."""
        topic, value, key, partition, callback, timestamp, headers = record
        deadline, thread = clock.monotonic() + self.__settings.max_block, get_ident()
        self.__blocked.add(thread)
        try:
            while (left := deadline - clock.monotonic()) > 0:
                self.__engine.serving.poll(min(left, _ROOM_ROUND))
                try:
                    SafeProducer.produce(self, topic, value, key, partition, callback, None, timestamp, headers)
                except QueueFullError as still_full:
                    refusal = still_full
                else:
                    return
        finally:
            self.__blocked.discard(thread)
        try:
            raise refusal
        finally:
            del refusal

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: Callable[..., Any] | None = None,
        on_delivery: Callable[..., Any] | None = None,
    ) -> int:
        """Accept many records of one `topic`; returns how many were accepted.

        Each of `messages` is a dict with any of value, key, partition, headers, timestamp and callback (or
        on_delivery); all are honoured, message by message. `partition` and `callback` (or `on_delivery`) are for those
        without. A message that was not accepted gets a KafkaError under "_error"; a message that is malformed raises
        TypeError before any of them is accepted.
        """
        forks.notice()
        if callback is None:
            callback = self.__on_delivery if on_delivery is None else on_delivery
        produce = partial(SafeProducer.produce, self)  # not an override of a subclass, as in confluent_kafka
        return self.__produce_batch(self.__engine, self.__counters, produce, topic, messages, partition, callback)

    # --- serving ---------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = NO_TIMEOUT) -> int:
        """Serve callbacks for up to `timeout` seconds (negative: for ever); returns zero when nothing was served.

        Inside a callback it serves nothing and returns 0, where confluent_kafka would abort the process.
        """
        if not _HERE[0]:
            forks.notice()
        if type(timeout) not in _NUMBERS:  # many applications poll after each record
            timeout = seconds(timeout)
        return (self.__engine.awake() if timeout else self.__engine).serving.poll(timeout)

    def flush(self, timeout: float = NO_TIMEOUT) -> int:
        """Wait up to `timeout` seconds until every record has its report; returns how many are left.

        Inside a callback it serves nothing and returns how many are left.
        """
        forks.notice()
        return self.__engine.awake().serving.flush(seconds(timeout))

    # --- transactions ----------------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float = NO_TIMEOUT) -> None:
        """As confluent_kafka: register the transactional.id with its coordinator, which fences older producers.

        It waits for `timeout` seconds. Raises ProducerIdLimitError when the policy asks for that, or the wait for a
        producer ID is too long.
        """
        self.__transactions.init(seconds(timeout))

    def begin_transaction(self) -> None:
        """As confluent_kafka: records produced from now on belong to a new transaction."""
        self.__transactions.begin()

    def send_offsets_to_transaction(self, positions: Any, group_metadata: Any, timeout: float = NO_TIMEOUT) -> None:
        """As confluent_kafka: commit a consumer's offsets with the transaction, within `timeout` seconds.

        `positions` is a list of TopicPartition, `group_metadata` what its consumer_group_metadata() returns.
        """
        self.__transactions.send_offsets(positions, group_metadata, seconds(timeout))

    def commit_transaction(self, timeout: float = NO_TIMEOUT) -> None:
        """As confluent_kafka: flush, then commit; it succeeds only if every record since begin_transaction() was
        acknowledged within `timeout` seconds. Raises KafkaException; `error.args[0].txn_requires_abort()` says what to
        do."""
        self.__transactions.commit(seconds(timeout))

    def abort_transaction(self, timeout: float = NO_TIMEOUT) -> None:
        """As confluent_kafka: purge what was not sent, and abort, within `timeout` seconds."""
        self.__transactions.abort(seconds(timeout))

    # --- the rest of confluent_kafka's surface -----------------------------------------------------------------------

    def purge(self, *args: Any, **kwargs: Any) -> None:
        """As confluent_kafka: purge(in_queue=True, in_flight=True, blocking=True). Poll afterwards for the reports.

        The outcome of a purged record is "not_written" if it was certainly never sent, else "unknown".
        """
        self.__engine.purge(*args, **kwargs)

    def list_topics(self, *args: Any, **kwargs: Any) -> Any:
        """As confluent_kafka: list_topics(topic=None, timeout=-1) -> ClusterMetadata. Works inside callbacks, too."""
        return self.__engine.list_topics(*args, **kwargs)

    def cluster_id(self, *args: Any, **kwargs: Any) -> Any:
        """As confluent_kafka: the cluster's ID, asked for with a timeout in seconds.

        Raises AttributeError with a confluent-kafka below 2.16, which has no such method.
        """
        if not KNOWS_CLUSTER_ID:
            raise AttributeError(f"cluster_id() needs confluent-kafka 2.16 or newer, and this is {VERSION}")
        return self.__engine.calls.ask(self.__engine.native.cluster_id, *args, **kwargs)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """As confluent_kafka: use `username` and `password` from the next connection on, in every lane; needs
        no new producer."""
        self.__engine.set_sasl_credentials(username, password)
        self.__release(self.__settings.cluster)

    def __len__(self) -> int:
        """As confluent_kafka: records and events inside librdkafka, reports that wait to be served included. 0 once
        closed."""
        forks.notice()
        return self.__engine.queued

    def __bool__(self) -> bool:
        """A producer is always true, as in confluent_kafka, also with no records in it."""
        return True

    # --- the end -----------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> CloseReport:  # type: ignore[override]
        """Wait until every record has its report, then shut down. Returns a CloseReport, true when nothing was left.

        `timeout` in seconds bounds the wait (None or negative: until each record is delivered or expires). Records that
        are left then are purged: their callbacks run with a _PURGE error, whose outcome says whether it may have been
        written. An open transaction is aborted first. Both take two seconds more at most, callbacks of the application
        not counted. An exception raised by a callback is raised after the producer is closed. Interrupting the wait
        (Ctrl-C) leaves the producer open. Calling close() again returns the first report; calling it while another
        thread is in it waits for that one.

        Raises CallbackReentryError inside a callback.
        """
        if not self.__initialised:
            return CloseReport(0, 0, 0, 0, 0.0)
        forks.notice()
        return self.__closing.close(timeout)

    def __enter__(self) -> SafeProducer:
        """The producer itself; leaving the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        SafeProducer.close(self)

    def __del__(self) -> None:
        if self.__initialised:  # else the constructor refused
            forks.notice()
            self.__closing.collect()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a SafeProducer cannot be pickled or copied: send its configuration and make one producer in each process"
        )

    # --- telling -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The account of this producer at this moment, as a frozen value. Cheap; callable from any thread."""
        forks.notice()
        return self.__inspection.snapshot()

    def explain(self, topic: str | None = None, partition: int | None = None) -> str:
        """For a person: what the records of this producer, `topic` or its `partition` are waiting for.

        Only what holds now is named as the cause; a throttle time or an error that is over is told as such, behind it.
        With safeproducer.mode=passthrough nothing tells that one broker is back: its last error counts until a new one.
        """
        forks.notice()
        return self.__inspection.explain(topic, partition)

    def health(self, *, unresolved_for: float = 30.0) -> Health:
        """For probes: `ok` unless fatal, or a record has waited for `unresolved_for` seconds (or half of its time) for
        what waiting does not mend, or expired and none was delivered since; `ready` once brokers were reached, or if
        nothing was asked of them. Never blocks, asks no broker. Any thread. Raises ValueError for what is no time."""
        forks.notice()
        return self.__check(self.__engine, self.__inspection, unresolved_for, self.__settings.delivery.timeout)

    def __repr__(self) -> str:
        if not self.__initialised:
            return f"<{type(self).__name__} not initialised>"
        account = SafeProducer.snapshot(self)
        return (
            f"<{type(self).__name__} {account.client_id!r} to {account.bootstrap_servers} {account.state}: "
            f"{account.accepted} accepted, {account.delivered} delivered, {account.failed} failed, "
            f"{account.unresolved} unresolved>"
        )


def engine_of(producer: SafeProducer) -> Engine:
    """The engine behind `producer`, for this package alone."""
    return producer._SafeProducer__engine  # type: ignore[attr-defined,no-any-return]


def _load() -> None:
    import safeproducer.futures  # noqa: PLC0415 - a child would wait for ever for a thread that was loading it
    import safeproducer.pipeline.assembly  # noqa: F401, PLC0415 - or each child would have its own


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_load)


def _forward_the_rest() -> None:
    """Pass on public methods of a newer confluent_kafka that this class does not know, instead of losing them."""

    def forwarded(name: str) -> Callable[..., Any]:
        def method(self: SafeProducer, *args: Any, **kwargs: Any) -> Any:
            return getattr(engine_of(self).native, name)(*args, **kwargs)

        method.__name__ = name
        return method

    for name in dir(ClientProducer):
        if not name.startswith("_") and name not in vars(SafeProducer):
            setattr(SafeProducer, name, forwarded(name))


_forward_the_rest()
