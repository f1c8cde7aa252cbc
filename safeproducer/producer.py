"""SafeProducer: the drop-in surface. It owns one engine and the delivery counters of its records."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from threading import get_ident
from types import MethodType, TracebackType
from typing import Any, NoReturn

from safeproducer.batch import produce_batch
from safeproducer.config import Settings, parse
from safeproducer.errors import ForkedProducerError, ProducerClosedError, QueueFullError
from safeproducer.explanation import explanation
from safeproducer.hooks import Hook, Hooks
from safeproducer.kafka.native import KafkaException, NativeProducer
from safeproducer.pipeline import churn, forks, frames, lifetime
from safeproducer.pipeline.delivery_counters import DeliveryCounters, TopicCounters
from safeproducer.pipeline.engine import NO_TIMEOUT, Engine
from safeproducer.pipeline.failures import Failures
from safeproducer.pipeline.release import Release
from safeproducer.pipeline.troubles import troubles
from safeproducer.pipeline.unusable import UNINITIALISED
from safeproducer.records import ProducerInfo, refuse_surrogate_names
from safeproducer.snapshot import CloseReport, Snapshot, WindowSnapshot

_HERE = forks.here
_NOW = 0
_NUMBERS = frozenset({float, int})
_ROOM_ROUND = 0.1
_THREADS_PATIENCE = 0.5
_CLOSES = 0.005
"""Seconds between two looks whether the close() of another thread has ended."""
_CLOSED = "Producer has been closed (Handle has been closed): make a new one to produce again"


def _seconds(timeout: float) -> float:
    """What confluent_kafka takes for a number, text not; raises its TypeError."""
    try:
        return math.ldexp(timeout, 0)
    except TypeError as error:
        raise TypeError(f"timeout {error}: give seconds, such as 1.5") from None


@dataclass(slots=True)
class _Progress:
    """How far a producer has come in its life."""

    initialised: bool
    in_transaction: bool = False
    without_offset: int = 0
    loss_reported: bool = False
    close_report: CloseReport | None = None
    """It counts once the engine is closed."""
    ends: Release | None = None
    """What is to be ended then."""
    failed_before: int | None = None
    """Records that had failed when a close() began to purge."""
    closers: dict[object, int] = field(default_factory=dict)
    """The threads in close() now, by a mark of each call, in their order."""


class SafeProducer(NativeProducer):
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
    __engine: Engine = UNINITIALISED  # type: ignore[assignment]
    __counters: DeliveryCounters = UNINITIALISED  # type: ignore[assignment]
    __topics: dict[str, TopicCounters] = UNINITIALISED  # type: ignore[assignment]
    __on_delivery: Callable[..., Any] | None = None
    __progress = _Progress(initialised=False)
    __settings: Settings
    __hooks: Hooks
    __info: ProducerInfo
    __blocked: set[int]

    def __init__(self, *args: Any, hooks: Iterable[Hook] = (), **config: Any) -> None:
        if self.__progress.initialised:
            raise RuntimeError("Producer already __init__:ialized: make a new one instead of calling __init__() again")
        forks.notice()
        settings = parse(args, config)
        site = frames.caller()
        observers = Hooks(hooks)
        info = ProducerInfo(
            settings.client_id,
            settings.bootstrap_servers,
            settings.principal,
            settings.transactional_id,
            settings.idempotent,
            site,
        )
        failures = Failures(settings.delivery)
        delivery = settings.delivery
        counters = DeliveryCounters(settings.only_errors, failures.reported, delivery.idempotent, delivery.owns_timeout)
        engine = Engine(settings, info, observers, counters, failures)
        put = partial(object.__setattr__, self)  # a subclass that is a frozen dataclass refuses assignments
        put("_SafeProducer__settings", settings)
        put("_SafeProducer__hooks", observers)
        put("_SafeProducer__info", info)
        put("_SafeProducer__counters", counters)
        put("_SafeProducer__topics", counters.topics)
        put("_SafeProducer__on_delivery", settings.on_delivery)
        put("_SafeProducer__blocked", set())
        put("_SafeProducer__engine", engine)
        put("_SafeProducer__progress", _Progress(initialised=True))
        lifetime.enrol(self, SafeProducer.__become_forked, SafeProducer.__report_loss)
        churned = churn.registry.record((settings.cluster, settings.principal), site, settings.producer_ids_per_hour)
        observers.call("producer_created", info)
        if churned is not None:
            observers.call("producer_churn", churned)

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
        """Accept one record; returns at once. Arguments, errors and callbacks are those of confluent_kafka.Producer.

        `timestamp` is in milliseconds since the epoch, 0 = now. `headers` is a dict or a list of (name, value) pairs.
        The callback is called as callback(error, message) inside poll() or flush().

        Raises QueueFullError (a BufferError) when the local queue is full and stays so for safeproducer.max.block.ms,
        FatalError (a KafkaException) after a fatal error, and what confluent_kafka raises for wrong arguments. A record
        that was refused is certainly not written.
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
        # Counted before it is handed over: the report may arrive on another thread before this one goes on.
        account.accepted += 1
        try:
            if headers is None and timestamp is _NOW:  # other kinds of zero go to the native call's own check
                self.__engine.send(topic, value, key, partition, bound[1])
            else:
                refuse_surrogate_names(headers)
                self.__engine.send(topic, value, key, partition, bound[1], None, timestamp, headers)
        except BaseException as error:
            if not (isinstance(error, Exception) and frames.raised_by_native_call(error)):
                self.__counters.interrupts += 1  # by a signal handler, and whether it was accepted is not known
                raise
            account.accepted -= 1
            refusal = self.__engine.refusal_of(error)
            if isinstance(refusal, QueueFullError) and self.__may_block():
                self.__produce_when_there_is_room(refusal, topic, value, key, partition, callback, timestamp, headers)
                return
            try:
                raise refusal from None
            finally:
                del refusal  # it refers to this frame, which refers to the callback: a cycle

    def __may_block(self) -> bool:
        thread = get_ident()
        return self.__settings.delivery.max_block > 0 and thread not in self.__blocked and not self.__engine.in_callback

    def __produce_when_there_is_room(self, refusal: QueueFullError, *record: Any) -> None:
        """Serve callbacks for up to safeproducer.max.block.ms until the record is accepted; else raise `refusal`."""
        topic, value, key, partition, callback, timestamp, headers = record
        deadline = time.monotonic() + self.__settings.delivery.max_block
        thread = get_ident()
        self.__blocked.add(thread)
        try:
            while (left := deadline - time.monotonic()) > 0:
                self.__engine.poll(min(left, _ROOM_ROUND))
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
        """Accept many records of one topic; returns how many were accepted.

        Each message is a dict with any of value, key, partition, headers, timestamp and callback (or on_delivery); all
        are honoured, message by message. A message that was not accepted gets a KafkaError under "_error"; a message
        that is malformed raises TypeError before any of them is accepted.
        """
        forks.notice()
        if callback is None:
            callback = self.__on_delivery if on_delivery is None else on_delivery
        produce = partial(SafeProducer.produce, self)  # not an override of a subclass, as in confluent_kafka
        return produce_batch(self.__engine, self.__counters, produce, topic, messages, partition, callback)

    # --- serving ---------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = NO_TIMEOUT) -> int:
        """Serve callbacks for up to `timeout` seconds (negative: for ever); returns zero when nothing was served.

        Inside a callback it serves nothing and returns 0, where confluent_kafka would abort the process.
        """
        if not _HERE[0]:
            forks.notice()
        if type(timeout) not in _NUMBERS:  # many applications poll after each record
            timeout = _seconds(timeout)
        return self.__engine.poll(timeout)

    def flush(self, timeout: float = NO_TIMEOUT) -> int:
        """Wait up to `timeout` seconds until every record has its report; returns how many are left.

        Inside a callback it serves nothing and returns how many are left.
        """
        forks.notice()
        return self.__engine.flush(_seconds(timeout))

    # --- transactions ----------------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float = NO_TIMEOUT) -> None:
        """As confluent_kafka: register the transactional.id with its coordinator, which fences older producers."""
        self.__engine.serve(self.__engine.native.init_transactions, _seconds(timeout))

    def begin_transaction(self) -> None:
        """As confluent_kafka: records produced from now on belong to a new transaction."""
        self.__engine.serve(self.__engine.native.begin_transaction)
        self.__progress.in_transaction = True
        self.__progress.without_offset = self.__engine.failures.without_offset

    def send_offsets_to_transaction(self, positions: Any, group_metadata: Any, timeout: float = NO_TIMEOUT) -> None:
        """As confluent_kafka: commit consumer offsets with the transaction."""
        self.__engine.serve(
            self.__engine.native.send_offsets_to_transaction, positions, group_metadata, _seconds(timeout)
        )

    def commit_transaction(self, timeout: float = NO_TIMEOUT) -> None:
        """As confluent_kafka: flush, then commit. Raises KafkaException; `error.args[0].txn_requires_abort()` says what
        to do.

        It succeeds only if every record since begin_transaction() was acknowledged.
        """
        seconds, raised = _seconds(timeout), None
        if self.__progress.in_transaction:
            seconds, raised = self.__engine.settle(seconds, self.__progress.without_offset)
        self.__engine.serve(self.__engine.native.commit_transaction, seconds)
        self.__progress.in_transaction = False
        if raised is not None:
            raise raised

    def abort_transaction(self, timeout: float = NO_TIMEOUT) -> None:
        """As confluent_kafka: purge what was not sent, and abort."""
        self.__engine.serve(self.__engine.native.abort_transaction, _seconds(timeout))
        self.__progress.in_transaction = False

    # --- the rest of confluent_kafka's surface
    # ---------------------------------------------------------------------------------

    def purge(self, *args: Any, **kwargs: Any) -> None:
        """As confluent_kafka: purge(in_queue=True, in_flight=True, blocking=True). Poll afterwards to receive the
        reports.

        A purged record is of unknown outcome: the broker may have written it although its answer never came.
        """
        self.__engine.purge(*args, **kwargs)

    def list_topics(self, *args: Any, **kwargs: Any) -> Any:
        """As confluent_kafka: list_topics(topic=None, timeout=-1) -> ClusterMetadata. Works inside callbacks, too."""
        return self.__engine.ask(self.__engine.native.list_topics, *args, **kwargs)

    def cluster_id(self, *args: Any, **kwargs: Any) -> Any:
        """As confluent_kafka: the cluster's ID, asked for with a timeout in seconds."""
        return self.__engine.ask(self.__engine.native.cluster_id, *args, **kwargs)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """As confluent_kafka: use these credentials from the next connection on, in every lane; needs no new
        producer."""
        self.__engine.set_sasl_credentials(username, password)

    def __len__(self) -> int:
        """As confluent_kafka: records and events inside librdkafka, reports that wait to be served included. 0 once
        closed."""
        forks.notice()
        return self.__engine.queued

    def __bool__(self) -> bool:
        """Always true, as confluent_kafka."""
        return True

    # --- the end -----------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> CloseReport:  # type: ignore[override]
        """Wait until every record has its report, then shut down. Returns a CloseReport, true when nothing was left.

        `timeout` in seconds bounds the wait (None or negative: until each record is delivered or expires). What is left
        then is purged: its callbacks run with a _PURGE error and it is of unknown outcome. An open transaction is
        aborted first. Beside the application's own callbacks that takes two seconds more at most. An exception raised
        by a callback is raised after the producer is closed. Interrupting the wait (Ctrl-C) leaves the producer open.
        Calling close() again returns the first report; calling it while another thread is in it waits for that one.

        Raises CallbackReentryError inside a callback.
        """
        if not self.__progress.initialised:
            return CloseReport(0, 0, 0, 0, 0.0)
        forks.notice()
        progress = self.__progress
        if self.__engine.state == "closed" and progress.ends is None and progress.close_report is not None:
            return progress.close_report
        self.__engine.refuse_in_callback("close")
        deadline = None if timeout is None or (seconds := _seconds(timeout)) < 0 else time.monotonic() + seconds
        closers, mark, raised = progress.closers, object(), None
        try:
            closers[mark] = get_ident()
            while self.__may_wait_for(next(iter(closers.copy().values())), deadline):
                time.sleep(_CLOSES)
            if self.__engine.state != "closed":
                raised = self.__end(deadline)
            self.__end_natives()
        except ProducerClosedError:
            # A handler, a destructor or another thread has closed it in the middle of this call.
            if self.__engine.state != "closed":
                raise
        finally:
            closers.pop(mark, None)  # the first call here, so no signal handler comes before it
        if raised is not None:
            raise raised
        assert progress.close_report is not None  # noqa: S101 - it comes before the state
        return progress.close_report

    def __may_wait_for(self, closer: int, deadline: float | None) -> bool:
        """Not for the call that this one interrupted, nor on a thread that the other one waits for."""
        if closer == get_ident() or self.__engine.sender.is_this_thread():
            return False
        return self.__engine.state != "closed" and (deadline is None or time.monotonic() < deadline)

    def __end(self, deadline: float | None) -> Exception | None:
        """Have every record reported, and refuse what comes; what a callback raised.

        A signal handler that raises in it leaves the producer open, and as it was, up to the step that closes it.
        """
        progress, engine = self.__progress, self.__engine
        inside = engine.inside  # a signal handler: the call that it interrupted still uses the native producer
        started = time.monotonic()
        if progress.in_transaction:
            self.__abort_for_close(deadline)
        queued, raised = engine.drain(NO_TIMEOUT if deadline is None else max(0.0, deadline - time.monotonic()))
        left = self.__count_left(queued)
        if queued:
            engine.purge()
            raised = engine.drain_purged() or raised
        engine.release_callbacks()
        self.__report_loss("close deadline")
        accepted, delivered, failed = self.__counters.totals()
        report = CloseReport(accepted, delivered, failed, left, time.monotonic() - started)
        # With records in it, or another thread, the native close() would wait, for ever or worse; letting go does not.
        ends = engine.release(closes=not engine.queued and not inside)
        if engine.state != "closed":
            progress.close_report, progress.ends = report, ends
            engine.retire("closed", lambda: ProducerClosedError(_CLOSED))
        return raised

    def __count_left(self, queued: int) -> int:
        """Records that are to be purged, and those that a close() purged which was interrupted."""
        progress, failed = self.__progress, self.__counters.totals()[2]
        if queued and progress.failed_before is None:
            progress.failed_before = failed
        if progress.failed_before is None:
            return 0
        return self.__counters.outstanding(queued)[0] + failed - progress.failed_before

    def __end_natives(self) -> None:
        """The rest, once it is closed: nobody comes to a native producer any more that the engine has released.

        One call does it. A signal handler that raises in it leaves it to the next close().
        """
        progress, engine = self.__progress, self.__engine
        ends, progress.ends = progress.ends, None
        if ends is None or progress.close_report is None:
            return
        try:
            if engine.stop_threads(_THREADS_PATIENCE) and ends.closes:
                self.__close_natives(ends)
            engine.release_callbacks()
        except BaseException:
            progress.ends = ends
            raise
        self.__hooks.call("producer_closed", self.__info, progress.close_report)

    def __close_natives(self, ends: Release) -> None:
        if self.__info.transactional_id is None:
            self.__engine.serve(ends.close)
            return
        with warnings.catch_warnings():
            # It warns that it cannot abort a transaction that was never begun.
            warnings.simplefilter("ignore", RuntimeWarning)
            self.__engine.serve(ends.close)

    def __abort_for_close(self, deadline: float | None) -> None:
        try:
            SafeProducer.abort_transaction(
                self, NO_TIMEOUT if deadline is None else max(0.0, deadline - time.monotonic())
            )
        except KafkaException:
            # The coordinator aborts it after transaction.timeout.ms; the records are purged below.
            self.__progress.in_transaction = False

    def __become_forked(self) -> None:
        """In the child after a fork: the native producer's threads are gone, and touching it would hang."""
        if self.__engine.state in ("closed", "forked"):
            return
        for native in self.__engine.natives:
            lifetime.make_immortal(native)
        self.__engine.retire(
            "forked",
            lambda: ForkedProducerError(
                f"this SafeProducer was made at {self.__info.site} before a fork and does not work in the child "
                f"process: its threads stayed in the parent. Make producers after the fork, one in each process"
            ),
        )

    def __report_loss(self, reason: str) -> None:
        if self.__engine.state in ("open", "fatal") and not self.__progress.loss_reported:
            self.__progress.loss_reported = True
            if reason == lifetime.EXIT:
                self.__engine.listen_once()
            lifetime.report_loss(
                reason, self.__counters, self.__info, self.__hooks, self.__engine.observed, self.__engine.queued
            )

    def __enter__(self) -> SafeProducer:
        """The producer itself; leaving the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        SafeProducer.close(self)

    def __del__(self) -> None:
        if self.__progress.initialised:  # else the constructor refused
            forks.notice()
            self.__engine.stop_threads(None)
            self.__report_loss("garbage collection")

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a SafeProducer cannot be pickled or copied: send its configuration and make one producer in each process"
        )

    # --- telling -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The account of this producer at this moment, as a frozen value. Cheap; callable from any thread."""
        forks.notice()
        queued = self.__engine.queued
        unresolved, interrupted = self.__counters.outstanding(queued)
        accepted, delivered, failed = self.__counters.totals()
        info = self.__info
        dispatcher = self.__engine.dispatcher
        return Snapshot(
            state=self.__engine.state,
            client_id=info.client_id,
            bootstrap_servers=info.bootstrap_servers,
            principal=info.principal,
            transactional_id=info.transactional_id,
            idempotent=info.idempotent,
            accepted=accepted,
            delivered=delivered,
            failed=failed,
            unresolved=unresolved,
            interrupted=interrupted,
            queued=queued,
            not_written=self.__engine.failures.not_written,
            unknown=self.__engine.failures.unknown,
            held=dispatcher.record_buffer.waiting,
            handed_over=dispatcher.lanes.handed_over,
            splits=dispatcher.lanes.splits,
            lanes=len(dispatcher.lanes),
            windows=self.__windows(),
            partitions=self.__counters.partitions(dispatcher.waits()),
            last_error=self.__engine.events.last_error,
            throttled_brokers=dict(self.__engine.events.throttled),
        )

    def __windows(self) -> tuple[WindowSnapshot, ...]:
        if self.__engine.state == "forked":  # a thread that is not here may have held the lock
            return ()
        now = time.monotonic()
        return tuple(
            WindowSnapshot(
                *tp, window.size, window.source.value, None if window.at is None else now - window.at, window.reason
            )
            for tp, window in self.__engine.windows.known(now).items()
        )

    def explain(self, topic: str | None = None, partition: int | None = None) -> str:
        """For a person: what the records of this producer, topic or partition are waiting for.

        Only what holds now is named as the cause; a throttle time or an error that is over is told as such, behind it.
        With safeproducer.mode=passthrough nothing tells that one broker is back: its last error counts until a new one.
        """
        engine = self.__engine
        present = troubles(engine.events, engine.holds.cluster, engine.updates.delivered)
        return explanation(SafeProducer.snapshot(self), topic, partition, present, engine.holds.partitions.leaders)

    def __repr__(self) -> str:
        if not self.__progress.initialised:
            return f"<{type(self).__name__} not initialised>"
        account = SafeProducer.snapshot(self)
        return (
            f"<{type(self).__name__} {account.client_id!r} to {account.bootstrap_servers} {account.state}: "
            f"{account.accepted} accepted, {account.delivered} delivered, {account.failed} failed, "
            f"{account.unresolved} unresolved>"
        )


def _forward_the_rest() -> None:
    """Pass on public methods of a newer confluent_kafka that this class does not know, instead of losing them."""

    def forwarded(name: str) -> Callable[..., Any]:
        def method(self: SafeProducer, *args: Any, **kwargs: Any) -> Any:
            engine: Engine = self._SafeProducer__engine  # type: ignore[attr-defined]
            return getattr(engine.native, name)(*args, **kwargs)

        method.__name__ = name
        return method

    for name in dir(NativeProducer):
        if not name.startswith("_") and name not in vars(SafeProducer):
            setattr(SafeProducer, name, forwarded(name))


_forward_the_rest()
