"""Hooks: how telemetry and applications watch a producer.

A hook overrides the methods it wants; an event nobody overrides costs nothing. Hooks are called on the thread on which
the event happens: that of produce(), poll(), flush() or close(). Events that the producer's own thread notices are told
on a thread that this library makes for it. Hooks must be fast, must not block, and must expect several threads; no lock
of this library is held. docs/use/hooks-and-tracing.md has the thread of each event. A hook that raises an Exception is
reported once through the `safeproducer` logger and switched off; it never breaks the application. An Exception that
a signal handler raises inside a hook counts as the hook's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Any

from safeproducer.kafka.native import KafkaError, Message
from safeproducer.records import CallSite, ProducerInfo, Record, Value
from safeproducer.runtime.log import logger
from safeproducer.snapshot import ReplicationSnapshot

RECORD_EVENTS = ("record_accepted", "record_refused", "record_resolved")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RecordsLost(Value):
    """Accepted records went away without a delivery report; each is of unknown outcome.

    `reason` is "garbage collection", "interpreter exit" or "close deadline"; `count` of them are lost by `producer`.
    `records` holds them one by one when a record hook was installed, else it is empty.
    """

    producer: ProducerInfo
    reason: str
    count: int
    records: tuple[Record, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ProducerChurn(Value):
    """More producer IDs than `limit_per_hour` were taken within an hour for one `cluster` and `principal` (KIP-936).

    Or the hour is used up, and this producer gets none: those with a lower limit use it up with fewer. IDs are counted
    on this host, over its processes. `site`: the line that made this producer; `made_by_site`: how many IDs that line
    took, `made_in_all`: how many all took. `pattern` is a code for how they come about, and `seen` a sentence that says
    so; None where that is not known. `advice` is the cure.
    """

    cluster: str
    principal: str
    site: CallSite
    made_by_site: int
    made_in_all: int
    limit_per_hour: int
    advice: str
    pattern: str | None = None
    seen: str | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ProducerIdLimited(Value):
    """This host's producer IDs of the hour are used up, and `producer` waits for the next one or is refused (KIP-936).

    `policy`: "delay" or "refuse" (with "reuse" it waits, too). `retry_after`: seconds until the next ID, for whoever
    asks first then. `churn`: who has used them up.
    """

    producer: ProducerInfo
    policy: str
    retry_after: float
    churn: ProducerChurn


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Throttled(Value):
    """A broker, by `broker_id` and `broker_name`, told `producer` to wait for `seconds` (KIP-13, KIP-124, KIP-219)."""

    producer: ProducerInfo
    broker_id: int
    broker_name: str
    seconds: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WindowChanged(Value):
    """The window, how many batches of a partition may be unresolved, changed from `before` to `after` (KIP-1269).

    `topic` and `partition` are of a record of `producer`; `reason` is a sentence.
    """

    producer: ProducerInfo
    topic: str
    partition: int
    before: int
    after: int
    reason: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LanesChanged(Value):
    """The number of lanes, each a native producer with an ID of its own, changed from `before` to `after`.

    They are lanes of `producer`; `reason` is a sentence.
    """

    producer: ProducerInfo
    before: int
    after: int
    reason: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ProducerRenewed(Value):
    """A native producer of `producer` failed, and another has taken its place: that of this `number`.

    `error`: a fatal error, or INVALID_PRODUCER_EPOCH if brokers refused its producer ID, or its epochs were used up.
    `not_written` and `unknown`: how many records failed with it. `seconds`: from the error until it was empty and
    another one was there.
    """

    producer: ProducerInfo
    error: KafkaError
    number: int
    not_written: int
    unknown: int
    seconds: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TransactionEnded(Value):
    """A transaction of `producer` is over.

    `outcome`: "committed", "aborted", or "unknown" for a commit without an answer. `seconds`: since it began. `doubt`:
    why the next one has a new producer epoch, "" if it has not.
    """

    producer: ProducerInfo
    outcome: str
    seconds: float
    doubt: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RecordAbandoned(Value):
    """A record of `producer` that was cancelled after it had been handed over has ended (safeproducer.aio).

    `topic` and `partition` as in its report; `outcome`: "delivered", "not_written" or "unknown".
    """

    producer: ProducerInfo
    topic: str
    partition: int | None
    outcome: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ReplicationChanged(Value):
    """How far a partition's replicas are, or what limits them, changed (KIP-73); `before` None at the first look.

    `after` is how it is now; `producer` writes to this `partition` of `topic`.
    """

    producer: ProducerInfo
    topic: str
    partition: int
    before: ReplicationSnapshot | None
    after: ReplicationSnapshot


@dataclass(slots=True, eq=False)
class BulkCall:
    """The messages of one produce_batch() of `producer` for `topic`, for hooks of this library.

    A hook that follows them together appends itself to `takers`, and is not told of each record then. It replaces
    `headers` of messages, and adds to the `parts` of each what counts its end: see BulkReport.
    """

    producer: ProducerInfo
    topic: str
    headers: list[Any]
    parts: list[tuple[Any, ...]]
    takers: list[Hook] = field(default_factory=list)


class BulkReport:
    """In place of the callback of such a message: tells its `parts`, then calls that.

    `takers`: the hooks that follow it so. `alone`: whether no other one asks for records.
    """

    __slots__ = ("_callback", "_hooks", "_only_errors", "alone", "parts", "takers")

    def __init__(self, callback: Any, parts: tuple[Any, ...], call: BulkCall, hooks: Hooks, only_errors: bool) -> None:
        self._callback, self._hooks, self._only_errors = callback, hooks, only_errors
        self.parts, self.takers = parts, call.takers
        self.alone = not hooks.wants(*RECORD_EVENTS, beside=call.takers)

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        try:
            self.end(error)
        finally:  # Ctrl-C inside a hook must not hide the report
            if self._callback is not None and (error is not None or not self._only_errors):
                self._callback(error, message)

    def end(self, error: KafkaError | BaseException | None) -> None:
        """Also of a message that was not accepted."""
        for part in self.parts:
            if part.end(error):
                self._hooks.call("_bulk_ended", part)


class Hook:
    """Base class of hooks: every method is an event that does nothing here.

    `producer` is whose event it is, `record` a record of it, `event` a frozen value that says what happened, and
    `error` what confluent_kafka gives the application.
    """

    _durations: Any = None
    """For this package: what a sample of durations is told to (pipeline/reports/hooked_send.py)."""

    def _producer_began(self, engine: Any) -> None:
        """For this package: the engine of a producer that was constructed. It must not be kept alive."""

    def _producer_ended(self, engine: Any) -> None:
        """For this package: that producer is garbage, and counts no more."""

    def producer_created(self, producer: ProducerInfo) -> None:
        """A producer was constructed, and takes records from now on."""

    def record_accepted(self, record: Record) -> None:
        """Inside produce(), after the call was made and before the record is handed to librdkafka.

        Headers may still be added. Costs one Record object for each record.
        """

    def record_refused(self, record: Record, error: BaseException) -> None:
        """produce() raises `error` for an accepted record: it is certainly not written."""

    def record_resolved(self, record: Record, error: KafkaError | None, message: Message) -> None:
        """The delivery report of `record` arrived, with `message`, before the application's callback runs."""

    def record_abandoned(self, event: RecordAbandoned) -> None:
        """A record that nobody awaited any more has ended. On the event loop, while that runs."""

    def records_lost(self, event: RecordsLost) -> None:
        """Records were lost without a delivery report."""

    def client_error(self, producer: ProducerInfo, error: KafkaError, advice: str) -> None:
        """librdkafka reported an error that is not one record's: broker unreachable, authentication, TLS ...

        `advice` is what to do, "" for nothing.
        """

    def fatal_error(self, producer: ProducerInfo, error: KafkaError) -> None:
        """The producer met a fatal error and takes no more records. Called once."""

    def producer_renewed(self, event: ProducerRenewed) -> None:
        """A native producer failed, and another one has taken its place; the producer goes on."""

    def transaction_ended(self, event: TransactionEnded) -> None:
        """A transaction was committed or aborted, or the next one begins though this one's commit has no answer."""

    def throttled(self, event: Throttled) -> None:
        """A broker announced a throttle time greater than zero."""

    def window_changed(self, event: WindowChanged) -> None:
        """A partition's window changed: its leader announced another, changed, or did not answer in time."""

    def lanes_changed(self, event: LanesChanged) -> None:
        """Batch lanes beyond the first one were made, or one was retired or replaced."""

    def replication_changed(self, event: ReplicationChanged) -> None:
        """A replica fell out of sync or caught up, a throttle limits it, or acknowledgements wait for it."""

    def producer_churn(self, event: ProducerChurn) -> None:
        """A line of code makes producers too often. Called once for each such line in a process."""

    def producer_id_limited(self, event: ProducerIdLimited) -> None:
        """The policy `delay`, `reuse` or `refuse` acts: called when a producer begins to wait, and at each refusal."""

    def producer_closed(self, producer: ProducerInfo, report: Any) -> None:
        """close() finished; `report` is its CloseReport."""

    # For hooks of this library: they may change.

    def _bulk_accepted(self, call: BulkCall) -> None:
        """Inside produce_batch(), before the first message is handed over, and instead of a record_accepted() each."""

    def _bulk_ended(self, part: Any) -> None:
        """The last message of a part has ended, whosever that is."""


class Hooks:
    """Calls the hooks of one producer; owned by that producer.

    `wants(name)` is false when no live hook overrides the event, so the caller can skip making its arguments.
    """

    of_each: tuple[Hook, ...] = ()
    """Hooks of each producer that is made from now on, unless it is given one of the same class."""

    def __init__(self, hooks: Iterable[Hook]) -> None:
        given = tuple(hooks)
        for hook in given:
            if not isinstance(hook, Hook):
                raise TypeError(f"hooks: {hook!r} is not a safeproducer.Hook; derive its class from safeproducer.Hook")
        self._hooks = (*given, *(own for own in self.of_each if not any(isinstance(hook, type(own)) for hook in given)))
        self._lock = threading.RLock()  # re-entrant: a signal handler may produce while this thread holds it
        self._listeners: dict[str, tuple[tuple[Hook, Callable[..., None]], ...]] = {}
        self._rebuild()

    def _rebuild(self) -> None:
        self._listeners = {
            name: tuple(
                (hook, getattr(hook, name))
                for hook in self._hooks
                if getattr(type(hook), name) is not getattr(Hook, name)
            )
            for name, event in vars(Hook).items()
            if callable(event) and not name.startswith("__")
        }

    def wants(self, *events: str, beside: Container[Hook] = ()) -> bool:
        return any(hook not in beside for event in events for hook, _ in self._listeners[event])

    @property
    def durations(self) -> list[Any]:
        """The takers of a sample of durations, each once."""
        return list(dict.fromkeys(hook._durations for hook in self._hooks if hook._durations is not None))

    def call(self, event: str, *args: Any) -> None:
        for hook, method in self._listeners[event]:
            try:
                method(*args)
            except Exception:
                self._switch_off(hook, event)

    def _switch_off(self, hook: Hook, event: str) -> None:
        with self._lock:
            if hook not in self._hooks:  # it raised on two threads at once
                return
            self._hooks = tuple(other for other in self._hooks if other is not hook)
            self._rebuild()
        logger.exception("hook %s raised in %s and is switched off for this producer", type(hook).__qualname__, event)
