"""SafeProducer: the drop-in surface. It owns one lane and the account of its records."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from threading import get_ident
from types import MethodType, TracebackType
from typing import Any, NoReturn

from safeproducer.batch import produce_batch
from safeproducer.config import parse
from safeproducer.errors import ForkedProducerError, ProducerClosedError, QueueFullError
from safeproducer.explanation import explanation
from safeproducer.hooks import Hook, Hooks
from safeproducer.kafka.native import KafkaException, NativeProducer
from safeproducer.pipeline import churn, frames, lifetime
from safeproducer.pipeline.aside import aside
from safeproducer.pipeline.failures import Failures
from safeproducer.pipeline.lane import NO_TIMEOUT, UNINITIALISED, Lane
from safeproducer.pipeline.ledger import Ledger, TopicAccount
from safeproducer.pipeline.troubles import troubles
from safeproducer.records import ProducerInfo, refuse_surrogate_names
from safeproducer.snapshot import CloseReport, Snapshot, WindowSnapshot

_NOW = 0
_PURGE_PATIENCE = 5.0
_ROOM_ROUND = 0.1
_THREADS_PATIENCE = 1.0
_CLOSED = "Producer has been closed: make a new one to produce again"


class SafeProducer(NativeProducer):
    """A drop-in for confluent_kafka.Producer that accounts for every record.

    `SafeProducer(config)` takes configuration in all of stock's forms; settings beginning with `safeproducer.` are
    its own. `hooks` are safeproducer.Hook objects. `enable.idempotence` defaults to true, unless acks, retries,
    max.in.flight or queuing.strategy were set to values that rule it out.

    Raises ConfigurationError, naming the setting, its value and the way out.

    Thread-safety: produce(), produce_batch(), poll(), flush() and snapshot() may be called from any thread; close()
    when no other thread produces. Callbacks run inside poll() and flush(), on the thread that called them.
    A producer does not survive fork(): in the child every call raises ForkedProducerError.
    """

    # The base class stays uninitialised: it makes isinstance() true, and its methods are all replaced below. A method a
    # newer confluent_kafka adds would find no handle and raise "Producer has been closed"; see _forward_the_rest().

    # What a subclass that forgets super().__init__() finds.
    _lane: Lane = UNINITIALISED  # type: ignore[assignment]
    _ledger: Ledger = UNINITIALISED  # type: ignore[assignment]
    _topics: dict[str, TopicAccount] = UNINITIALISED  # type: ignore[assignment]
    _on_delivery: Callable[..., Any] | None = None
    _close_report: CloseReport | None = None

    def __init__(self, *args: Any, hooks: Iterable[Hook] = (), **config: Any) -> None:
        if "_lane" in self.__dict__:
            raise RuntimeError("SafeProducer already initialised: make a new one instead of calling __init__() again")
        settings = parse(args, config)
        site = frames.caller()
        self._settings = settings
        self._hooks = Hooks(hooks)
        self._info = ProducerInfo(
            settings.client_id,
            settings.bootstrap_servers,
            settings.principal,
            settings.transactional_id,
            settings.idempotent,
            site,
        )
        failures = Failures(settings.delivery)
        self._ledger = Ledger(settings.only_errors, failures.reported, offset_proves=settings.delivery.idempotent)
        self._topics = self._ledger.topics
        self._on_delivery = settings.on_delivery
        self._in_transaction = False
        self._blocked: set[int] = set()
        self._close_report = None
        self._loss_reported = False
        self._lane = Lane(settings, self._info, self._hooks, self._ledger, failures)
        lifetime.enrol(self)
        churned = churn.registry.record((settings.cluster, settings.principal), site, settings.producer_ids_per_hour)
        self._hooks.call("producer_created", self._info)
        if churned is not None:
            self._hooks.call("producer_churn", churned)

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
        FatalError (a KafkaException) after a fatal error, and what stock raises for wrong arguments. A record that was
        refused is certainly not written.
        """
        try:
            account: Any = self._topics[topic]
        except (KeyError, TypeError):
            account = self._ledger.open(topic)
        if callback is None:
            callback = self._on_delivery if on_delivery is None else on_delivery
        if partition != -1:
            account = account.explicit(partition)
        bound = account.bound
        # A bound method is a new object at each mention, though it is the same callback.
        if bound[0] is not callback and (type(callback) is not MethodType or bound[0] != callback):
            bound = account.bind(callback)
        # Counted before the hand-over: the report may arrive on another thread before this one goes on.
        account.accepted += 1
        try:
            if headers is None and timestamp is _NOW:  # other kinds of zero go to the native call's own check
                self._lane.send(topic, value, key, partition, bound[1])
            else:
                refuse_surrogate_names(headers)
                self._lane.send(topic, value, key, partition, bound[1], None, timestamp, headers)
        except Exception as error:
            if not frames.raised_by_native_call(error):
                raise
            account.accepted -= 1
            refusal = self._lane.refusal_of(error)
            if isinstance(refusal, QueueFullError) and self._may_block():
                self._produce_when_there_is_room(refusal, topic, value, key, partition, callback, timestamp, headers)
                return
            raise refusal from None

    def _may_block(self) -> bool:
        thread = get_ident()
        return self._settings.delivery.max_block > 0 and thread not in self._blocked and not self._lane.in_callback

    def _produce_when_there_is_room(self, refusal: QueueFullError, *record: Any) -> None:
        """Serve callbacks for up to safeproducer.max.block.ms until the record is accepted; else raise `refusal`."""
        topic, value, key, partition, callback, timestamp, headers = record
        deadline = time.monotonic() + self._settings.delivery.max_block
        thread = get_ident()
        self._blocked.add(thread)
        try:
            while (left := deadline - time.monotonic()) > 0:
                self._lane.poll(min(left, _ROOM_ROUND))
                try:
                    SafeProducer.produce(self, topic, value, key, partition, callback, None, timestamp, headers)
                except QueueFullError as still_full:
                    refusal = still_full
                else:
                    return
        finally:
            self._blocked.discard(thread)
        raise refusal

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
        if callback is None:
            callback = self._on_delivery if on_delivery is None else on_delivery
        produce = partial(SafeProducer.produce, self)  # not an override of a subclass, as in stock
        return produce_batch(self._lane, self._ledger, produce, topic, messages, partition, callback)

    # --- serving ---------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = NO_TIMEOUT) -> int:
        """Serve callbacks for up to `timeout` seconds (negative: for ever); returns zero when nothing was served.

        Inside a callback it serves nothing and returns 0, where stock would abort the process.
        """
        return self._lane.poll(timeout)

    def flush(self, timeout: float = NO_TIMEOUT) -> int:
        """Wait up to `timeout` seconds until every record has its report; returns how many are left.

        Inside a callback it serves nothing and returns how many are left.
        """
        return self._lane.flush(timeout)

    # --- transactions ----------------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float = NO_TIMEOUT) -> None:
        """As stock: register the transactional.id with its coordinator, which fences older producers."""
        self._lane.serve(self._lane.native.init_transactions, timeout)

    def begin_transaction(self) -> None:
        """As stock: records produced from now on belong to a new transaction."""
        self._lane.serve(self._lane.native.begin_transaction)
        self._in_transaction = True

    def send_offsets_to_transaction(self, positions: Any, group_metadata: Any, timeout: float = NO_TIMEOUT) -> None:
        """As stock: commit consumer offsets with the transaction."""
        self._lane.serve(self._lane.native.send_offsets_to_transaction, positions, group_metadata, timeout)

    def commit_transaction(self, timeout: float = NO_TIMEOUT) -> None:
        """As stock: flush, then commit. Raises KafkaException; `error.args[0].txn_requires_abort()` says what to do."""
        self._lane.serve(self._lane.native.commit_transaction, self._lane.settle(timeout))
        self._in_transaction = False

    def abort_transaction(self, timeout: float = NO_TIMEOUT) -> None:
        """As stock: purge what was not sent, and abort."""
        self._lane.feed.purge(in_queue=True, in_flight=False, blocking=True)
        self._lane.serve(self._lane.native.abort_transaction, timeout)
        self._in_transaction = False

    # --- the rest of stock's surface ---------------------------------------------------------------------------------

    def purge(self, *args: Any, **kwargs: Any) -> None:
        """As stock: purge(in_queue=True, in_flight=True, blocking=True). Poll afterwards to receive the reports.

        A purged record is of unknown outcome: the broker may have written it although its answer never came.
        """
        self._lane.purge(*args, **kwargs)

    def list_topics(self, *args: Any, **kwargs: Any) -> Any:
        """As stock: list_topics(topic=None, timeout=-1) -> ClusterMetadata. Works inside callbacks, too."""
        return aside(self._lane.native.list_topics, *args, **kwargs)

    def cluster_id(self, *args: Any, **kwargs: Any) -> Any:
        """As stock: the cluster's ID, asked for with a timeout in seconds."""
        return aside(self._lane.native.cluster_id, *args, **kwargs)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """As stock: use these credentials from the next connection on, in every lane; needs no new producer."""
        aside(self._lane.native.set_sasl_credentials, username, password)
        for native in self._lane.natives:
            aside(native.set_sasl_credentials, username, password)
        self._settings.lane.update({"sasl.username": username, "sasl.password": password})

    def __len__(self) -> int:
        """As stock: records and events inside librdkafka, reports that wait to be served included. 0 once closed."""
        return self._lane.queued

    def __bool__(self) -> bool:
        """Always true, as stock."""
        return True

    # --- the end -----------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> CloseReport:  # type: ignore[override]
        """Wait until every record has its report, then shut down. Returns a CloseReport, true when nothing was left.

        `timeout` in seconds bounds the wait (None or negative: until each record is delivered or expires). What is left
        then is purged: its callbacks run with a _PURGE error and it is of unknown outcome. An open transaction is
        aborted first. An exception raised by a callback is raised after the producer is closed. Interrupting the wait
        (Ctrl-C) leaves the producer open. Calling close() again returns the first report.

        Raises CallbackReentryError inside a callback.
        """
        if "_lane" not in self.__dict__:
            return CloseReport(0, 0, 0, 0, 0.0)
        if self._close_report is not None:
            return self._close_report
        self._lane.refuse_in_callback("close")
        started = time.monotonic()
        deadline = None if timeout is None or timeout < 0 else started + timeout
        if self._in_transaction:
            self._abort_for_close(deadline)
        queued, raised = self._lane.drain(NO_TIMEOUT if deadline is None else max(0.0, deadline - time.monotonic()))
        left = self._ledger.outstanding(queued)[0] if queued else 0
        if queued:
            self._lane.purge()
            raised = self._lane.drain(_PURGE_PATIENCE)[1] or raised
        self._report_loss("close deadline")
        self._lane.stop_threads(_THREADS_PATIENCE)
        if not self._lane.queued:  # else the native close() would wait for ever; letting go of it does not
            with warnings.catch_warnings():
                # It warns that it cannot abort a transaction that was never begun.
                warnings.simplefilter("ignore", RuntimeWarning)
                self._lane.serve(self._lane.close_natives)
        accepted, delivered, failed = self._ledger.totals()
        self._close_report = CloseReport(accepted, delivered, failed, left, time.monotonic() - started)
        self._lane.retire("closed", lambda: ProducerClosedError(_CLOSED))
        self._hooks.call("producer_closed", self._info, self._close_report)
        if raised is not None:
            raise raised
        return self._close_report

    def _abort_for_close(self, deadline: float | None) -> None:
        try:
            self.abort_transaction(NO_TIMEOUT if deadline is None else max(0.0, deadline - time.monotonic()))
        except KafkaException:
            # The coordinator aborts it after transaction.timeout.ms; the records are purged below.
            self._in_transaction = False

    def _become_forked(self) -> None:
        """In the child after a fork: the native producer's threads are gone, and touching it would hang."""
        if self._lane.state in ("closed", "forked"):
            return
        for native in self._lane.natives:
            lifetime.make_immortal(native)
        self._lane.retire(
            "forked",
            lambda: ForkedProducerError(
                f"this SafeProducer was made at {self._info.site} before a fork and does not work in the child "
                f"process: its threads stayed in the parent. Make producers after the fork, one in each process"
            ),
        )

    def _report_loss(self, reason: str) -> None:
        if self._lane.state in ("open", "fatal") and not self._loss_reported:
            self._loss_reported = True
            lifetime.report_loss(reason, self._ledger, self._info, self._hooks, self._lane.observed, self._lane.queued)

    def __enter__(self) -> SafeProducer:
        """The producer itself; leaving the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if "_lane" in self.__dict__:  # else the constructor refused
            self._lane.stop_threads(None)
            self._report_loss("garbage collection")

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a SafeProducer cannot be pickled or copied: send its configuration and make one producer in each process"
        )

    # --- telling -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The account of this producer at this moment, as a frozen value. Cheap; callable from any thread."""
        queued = self._lane.queued
        unresolved, interrupted = self._ledger.outstanding(queued)
        accepted, delivered, failed = self._ledger.totals()
        info = self._info
        feed = self._lane.feed
        return Snapshot(
            state=self._lane.state,
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
            not_written=self._lane.failures.not_written,
            unknown=self._lane.failures.unknown,
            held=feed.buffer.waiting,
            handed_over=feed.lanes.handed_over,
            splits=feed.lanes.splits,
            lanes=len(feed.lanes),
            windows=self._windows(),
            partitions=self._ledger.partitions(feed.waits()),
            last_error=self._lane.events.last_error,
            throttled_brokers=dict(self._lane.events.throttled),
        )

    def _windows(self) -> tuple[WindowSnapshot, ...]:
        if self._lane.state == "forked":  # a thread that is not here may have held the lock
            return ()
        now = time.monotonic()
        return tuple(
            WindowSnapshot(
                *place, window.size, window.source.value, None if window.at is None else now - window.at, window.reason
            )
            for place, window in self._lane.windows.known(now).items()
        )

    def explain(self, topic: str | None = None, partition: int | None = None) -> str:
        """For a person: what the records of this producer, topic or partition are waiting for.

        Only what holds now is named as the cause; a throttle time or an error that is over is told as such, behind it.
        With safeproducer.mode=passthrough nothing tells that one broker is back: its last error counts until a new one.
        """
        lane = self._lane
        present = troubles(lane.events, lane.news)
        return explanation(self.snapshot(), topic, partition, present, lane.holds.partitions.leaders)

    def __repr__(self) -> str:
        if "_lane" not in self.__dict__:
            return f"<{type(self).__name__} not initialised>"
        account = self.snapshot()
        return (
            f"<{type(self).__name__} {account.client_id!r} to {account.bootstrap_servers} {account.state}: "
            f"{account.accepted} accepted, {account.delivered} delivered, {account.failed} failed, "
            f"{account.unresolved} unresolved>"
        )


def _forward_the_rest() -> None:
    """Pass on public methods of a newer confluent_kafka that this class does not know, instead of losing them."""

    def forwarded(name: str) -> Callable[..., Any]:
        def method(self: SafeProducer, *args: Any, **kwargs: Any) -> Any:
            return getattr(self._lane.native, name)(*args, **kwargs)

        method.__name__ = name
        return method

    for name in dir(NativeProducer):
        if not name.startswith("_") and name not in vars(SafeProducer):
            setattr(SafeProducer, name, forwarded(name))


_forward_the_rest()
