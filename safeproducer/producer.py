"""SafeProducer: the drop-in surface. It owns one lane (a native producer) and the account of its records."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from threading import get_ident
from types import TracebackType
from typing import Any, NoReturn

from safeproducer.batch import produce_batch
from safeproducer.config import Settings, explain_refusal, parse
from safeproducer.errors import (
    CallbackReentryError,
    FatalError,
    ForkedProducerError,
    ProducerClosedError,
    QueueFullError,
    SafeProducerError,
)
from safeproducer.explanation import explanation
from safeproducer.hooks import Hook, Hooks, ProducerInfo
from safeproducer.kafka.native import KafkaError, KafkaException, NativeProducer
from safeproducer.pipeline import churn, frames, lifetime
from safeproducer.pipeline.events import ClientEvents
from safeproducer.pipeline.ledger import Ledger
from safeproducer.pipeline.observed import ObservedSend
from safeproducer.snapshot import CloseReport, Snapshot

RECORD_EVENTS = ("record_accepted", "record_refused", "record_resolved")
_PURGE_PATIENCE = 5.0
_FLUSH_ROUND = 0.15  # below the 0.2 s from which the native call splits the wait itself
_NO_TIMEOUT = -1.0
_NOW = 0
_LOST_EXCEPTION = "returned NULL without setting an exception"


class Unusable:
    """Stands where the native producer was once it must not be called any more."""

    def __init__(self, refusal: Callable[[], SafeProducerError]) -> None:
        self._refusal = refusal

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self._refusal()

    def __len__(self) -> int:
        return 0


class SafeProducer(NativeProducer):
    """A drop-in for confluent_kafka.Producer that accounts for every record.

    `SafeProducer(config)` takes configuration in all of stock's forms; settings beginning with `safeproducer.` are
    its own. `hooks` are safeproducer.Hook objects. `enable.idempotence` defaults to true, unless acks, retries,
    max.in.flight or queuing.strategy were set to values that rule it out.

    Raises ConfigurationError, naming the setting, its value and the way out.

    Thread-safety: produce(), produce_batch(), poll(), flush() and snapshot() may be called from any thread; close()
    when no other thread is inside a call. Callbacks run inside poll() and flush(), on the thread that called them.
    A producer does not survive fork(): in the child every call raises ForkedProducerError.
    """

    # The base class stays uninitialised: it makes isinstance() true, and its methods are all replaced below. A method a
    # newer confluent_kafka adds would find no handle and raise "Producer has been closed"; see forward_the_rest().

    def __init__(self, *args: Any, hooks: Iterable[Hook] = (), **config: Any) -> None:
        if "_native" in self.__dict__:
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
        self._ledger = Ledger(settings.only_errors)
        self._topics = self._ledger.topics
        self._on_delivery = settings.on_delivery
        self._events = ClientEvents(self._info, self._hooks, settings, self._ledger.errors)
        self._serving: set[int] = set()
        self._in_transaction = False
        self._warned_reentry = False
        self._closed: CloseReport | None = None
        self._state = "open"
        native = self._make_native(settings)
        self._observed = ObservedSend(native.produce, self._hooks) if self._hooks.wants(*RECORD_EVENTS) else None
        self._send: Callable[..., Any] = self._observed or native.produce
        self._native: Any = native
        lifetime.enrol(self)
        churned = churn.registry.record((settings.cluster, settings.principal), site, settings.producer_ids_per_hour)
        self._hooks.call("producer_created", self._info)
        if churned is not None:
            self._hooks.call("producer_churn", churned)

    def _make_native(self, settings: Settings) -> NativeProducer:
        lane = {**settings.lane, "error_cb": self._events.on_error, "throttle_cb": self._events.on_throttle}
        try:
            return NativeProducer(lane)
        except (KafkaException, TypeError, ValueError) as error:
            refusal = explain_refusal(error, settings)
            if refusal is None:
                raise
            raise refusal from None

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

        Raises QueueFullError (a BufferError) when the local queue is full, FatalError (a KafkaException) after a fatal
        error, and what stock raises for wrong arguments. A record that was refused is certainly not written.
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
        if bound[0] is not callback:
            bound = account.bind(callback)
        # Counted before the hand-over: the report may arrive on another thread before this one goes on.
        account.accepted += 1
        try:
            if headers is None and timestamp is _NOW:  # other kinds of zero go to the native call's own check
                self._send(topic, value, key, partition, bound[1])
            else:
                self._send(topic, value, key, partition, bound[1], None, timestamp, headers)
        except Exception as error:
            if not frames.raised_by_native_call(error):
                raise
            account.accepted -= 1
            self._refuse(error)

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
        produce = partial(SafeProducer.produce, self)  # not an override of a subclass, as in stock
        return produce_batch(self, produce, topic, messages, partition, on_delivery if callback is None else callback)

    # --- serving ---------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = _NO_TIMEOUT) -> int:
        """Serve callbacks for up to `timeout` seconds (negative: for ever); returns zero when nothing was served.

        Inside a callback it serves nothing and returns 0, where stock would abort the process.
        """
        thread = get_ident()
        if thread in self._serving:
            return self._inside_callback("poll", 0)
        self._serving.add(thread)
        try:
            return self._native.poll(timeout)  # type: ignore[no-any-return]
        except:  # noqa: E722 - a pending fatal error can be a KafkaError, which is no BaseException
            instead = self._failure(sys.exc_info()[1])
            if instead is None:
                raise
        finally:
            self._serving.discard(thread)
        raise instead

    def flush(self, timeout: float = _NO_TIMEOUT) -> int:
        """Wait up to `timeout` seconds until every record has its report; returns how many are left.

        Inside a callback it serves nothing and returns how many are left.
        """
        if get_ident() in self._serving:
            return self._inside_callback("flush", len(self))
        left, raised = self._drain(timeout)
        if raised is not None:
            raise raised
        return left

    def _drain(self, timeout: float) -> tuple[int, Exception | None]:
        """(records left, the last exception a callback raised), after a flush of up to `timeout` seconds.

        Stock serves on when a callback raises, and raises at the end. So does this, but in short native calls: inside a
        long one the C client keeps an exception to itself until the end, Ctrl-C included when it lands in a callback.
        """
        deadline = time.monotonic() + timeout if timeout >= 0 else None
        raised = None
        while True:
            remaining = _FLUSH_ROUND if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                left: int = self._serve(self._native.flush, min(remaining, _FLUSH_ROUND))
            except Exception as error:
                if not (isinstance(error, FatalError) or frames.raised_in_callback(error)):
                    raise
                raised = error
                left = len(self._native)
            if not left or remaining == 0.0:
                return left, raised

    def _serve(self, call: Callable[..., Any], *args: Any) -> Any:
        """Run a native call that may run callbacks on this thread."""
        self._refuse_inside_callback(getattr(call, "__name__", "this method"))
        thread = get_ident()
        self._serving.add(thread)
        try:
            return call(*args)
        except:  # noqa: E722 - as in poll()
            instead = self._failure(sys.exc_info()[1])
            if instead is None:
                raise
        finally:
            self._serving.discard(thread)
        raise instead

    def _refuse_inside_callback(self, method: str) -> None:
        if get_ident() in self._serving:
            raise CallbackReentryError(
                f"{method}() was called inside a callback, where it could never finish. Return from the callback and "
                f"call it outside"
            )

    def _inside_callback(self, method: str, answer: int) -> int:
        if not self._warned_reentry:
            self._warned_reentry = True
            warnings.warn(
                f"{method}() was called inside a callback: it serves nothing there and returned {answer}. "
                f"Return from the callback; the poll() or flush() that runs it serves the rest",
                RuntimeWarning,
                stacklevel=3,
            )
        return answer

    # --- errors ----------------------------------------------------------------------------------------------------

    def _refuse(self, error: Exception) -> NoReturn:
        if isinstance(error, SafeProducerError):
            raise error
        if isinstance(error, BufferError):
            raise QueueFullError(
                f"Local: Queue full: {len(self._native)} records and events are waiting in this producer "
                f"(queue.buffering.max.messages, queue.buffering.max.kbytes). Call poll() to serve delivery reports, "
                f"then produce the record again"
            ) from None
        fatal = self._fatal_in(error)
        if fatal is not None:
            raise fatal from None
        raise error

    def _failure(self, error: Any) -> BaseException | None:
        """Note that a serving native call raised `error`; what to raise instead, or None to raise it as it is."""
        self._ledger.interrupts += 1
        if isinstance(error, BaseException):
            self._ledger.errors.claim(error)
        if type(error) is SystemError and _LOST_EXCEPTION in str(error):
            # Before Python 3.12 Ctrl-C raises an exception without an instance, and the C client, which keeps only the
            # instance of what a callback raised, forgets it. What other callbacks raise has one by then.
            return KeyboardInterrupt()
        return self._fatal_in(error)

    def _fatal_in(self, error: Any) -> FatalError | None:
        """The FatalError to raise for what a native call raised; notes it. None when it is not fatal."""
        cause = error if isinstance(error, KafkaError) else None
        if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
            cause = error.args[0]
        if cause is None or not (cause.fatal() or cause.code() == KafkaError._FATAL):
            return None
        if cause.fatal() or self._events.fatal is None:
            self._events.on_fatal(cause)
        known = self._events.fatal or cause
        if self._state == "open":
            self._state = "fatal"
            self._send = Unusable(self._fatal_again)
        return FatalError(known, self._ledger.outstanding(len(self._native))[0])

    def _fatal_again(self) -> SafeProducerError:
        assert self._events.fatal is not None  # noqa: S101 - set before this is installed
        return FatalError(self._events.fatal, self._ledger.outstanding(len(self._native))[0])

    # --- transactions ----------------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float = _NO_TIMEOUT) -> None:
        """As stock: register the transactional.id with its coordinator, which fences older producers."""
        self._serve(self._native.init_transactions, timeout)

    def begin_transaction(self) -> None:
        """As stock: records produced from now on belong to a new transaction."""
        self._serve(self._native.begin_transaction)
        self._in_transaction = True

    def send_offsets_to_transaction(self, positions: Any, group_metadata: Any, timeout: float = _NO_TIMEOUT) -> None:
        """As stock: commit consumer offsets with the transaction."""
        self._serve(self._native.send_offsets_to_transaction, positions, group_metadata, timeout)

    def commit_transaction(self, timeout: float = _NO_TIMEOUT) -> None:
        """As stock: flush, then commit. Raises KafkaException; `error.args[0].txn_requires_abort()` says what to do."""
        self._serve(self._native.commit_transaction, timeout)
        self._in_transaction = False

    def abort_transaction(self, timeout: float = _NO_TIMEOUT) -> None:
        """As stock: purge what was not sent, and abort."""
        self._serve(self._native.abort_transaction, timeout)
        self._in_transaction = False

    # --- the rest of stock's surface ---------------------------------------------------------------------------------

    def purge(self, *args: Any, **kwargs: Any) -> None:
        """As stock: purge(in_queue=True, in_flight=True, blocking=True). Poll afterwards to receive the reports.

        A purged record is of unknown outcome: the broker may have written it although its answer never came.
        """
        self._native.purge(*args, **kwargs)

    def list_topics(self, *args: Any, **kwargs: Any) -> Any:
        """As stock: list_topics(topic=None, timeout=-1) -> ClusterMetadata."""
        return self._native.list_topics(*args, **kwargs)

    def cluster_id(self, *args: Any, **kwargs: Any) -> Any:
        """As stock: the cluster's ID, asked for with a timeout in seconds."""
        return self._native.cluster_id(*args, **kwargs)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """As stock: use these credentials from the next connection on; needs no new producer."""
        self._native.set_sasl_credentials(username, password)
        self._settings.lane["sasl.password"] = password

    def __len__(self) -> int:
        """As stock: records and events inside librdkafka, reports that wait to be served included. 0 once closed."""
        return len(self._native)

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
        if self._closed is not None:
            return self._closed
        self._refuse_inside_callback("close")
        started = time.monotonic()
        deadline = None if timeout is None or timeout < 0 else started + timeout
        if self._in_transaction:
            self._abort_for_close(deadline)
        queued, raised = self._drain(_NO_TIMEOUT if deadline is None else max(0.0, deadline - time.monotonic()))
        left = self._ledger.outstanding(queued)[0] if queued else 0
        if queued:
            self._native.purge()
            raised = self._drain(_PURGE_PATIENCE)[1] or raised
        self._report_loss("close deadline")
        if not len(self._native):  # else the native close() would wait for ever; letting go of it does not
            self._serve(self._native.close)
        accepted, delivered, failed = self._ledger.totals()
        self._closed = CloseReport(accepted, delivered, failed, left, time.monotonic() - started)
        self._retire("closed", lambda: ProducerClosedError("Producer has been closed: make a new one to produce again"))
        self._hooks.call("producer_closed", self._info, self._closed)
        if raised is not None:
            raise raised
        return self._closed

    def _abort_for_close(self, deadline: float | None) -> None:
        try:
            self.abort_transaction(_NO_TIMEOUT if deadline is None else max(0.0, deadline - time.monotonic()))
        except KafkaException:
            # The coordinator aborts it after transaction.timeout.ms; the records are purged below.
            self._in_transaction = False

    def _retire(self, state: str, refusal: Callable[[], SafeProducerError]) -> None:
        self._state = state
        self._native = self._send = Unusable(refusal)

    def _become_forked(self) -> None:
        """In the child after a fork: the native producer's threads are gone, and touching it would hang."""
        if self._state in ("closed", "forked"):
            return
        lifetime.make_immortal(self._native)
        self._serving.clear()
        self._retire(
            "forked",
            lambda: ForkedProducerError(
                f"this SafeProducer was made at {self._info.site} before a fork and does not work in the child "
                f"process: its threads stayed in the parent. Make producers after the fork, one in each process"
            ),
        )

    def _report_loss(self, reason: str) -> None:
        if self._state in ("open", "fatal"):
            lifetime.report_loss(reason, self._ledger, self._info, self._hooks, self._observed, len(self._native))

    def __enter__(self) -> SafeProducer:
        """The producer itself; leaving the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if "_native" in self.__dict__:  # else the constructor refused
            self._report_loss("garbage collection")

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a SafeProducer cannot be pickled or copied: send its configuration and make one producer in each process"
        )

    # --- telling -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The account of this producer at this moment, as a frozen value. Cheap; callable from any thread."""
        queued = len(self._native)
        unresolved, interrupted = self._ledger.outstanding(queued)
        accepted, delivered, failed = self._ledger.totals()
        info = self._info
        return Snapshot(
            state=self._state,
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
            partitions=self._ledger.partitions(),
            last_error=self._events.last_error,
            throttled_brokers=dict(self._events.throttled),
        )

    def explain(self, topic: str | None = None, partition: int | None = None) -> str:
        """A sentence for a person: what the records of this producer, topic or partition are waiting for."""
        return explanation(self.snapshot(), topic, partition)

    def __repr__(self) -> str:
        if "_native" not in self.__dict__:
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
            return getattr(self._native, name)(*args, **kwargs)

        method.__name__ = name
        return method

    for name in dir(NativeProducer):
        if not name.startswith("_") and name not in vars(SafeProducer):
            setattr(SafeProducer, name, forwarded(name))


_forward_the_rest()
