"""produce() with record hooks: what stands in front of either path only when a hook asks for records.

And how long records took from produce() to their end, of each so many-th one, for metrics that want such a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple

from safeproducer.errors import NOT_ACCEPTED, RENEWED
from safeproducer.hooks import BulkCall, BulkReport, Hooks
from safeproducer.kafka.native import WITHOUT_OFFSET, KafkaError, Message
from safeproducer.pipeline.record import ACCEPTED_AT, DeliveryCallback, HeldRecord
from safeproducer.pipeline.reports.counters import Explained
from safeproducer.pipeline.reports.report_queue import ReportQueue
from safeproducer.policy.types import TopicPartition
from safeproducer.records import ProducerInfo, Record
from safeproducer.runtime import clock, interrupts, randomness
from safeproducer.runtime.threads import get_ident

_PERIODS = (1, 3, 5, 7, 11, 13, 17, 23, 31, 61, 127)
"""Odd primes. Records often come in turns, for one of 64 partitions, say: each of those is met. Each account keeps so
many references; of a smaller share the taker picks."""


class _Shared(NamedTuple):
    """The parts that the reports of all records need."""

    hooks: Hooks
    open: set[Record]
    explained: Explained
    report_queue: ReportQueue
    offset_proves: bool


@interrupts.called_natively
def _resolve(
    shared: _Shared, record: Record, report: DeliveryCallback, error: KafkaError | None, message: Message
) -> None:
    """A record's report. A closure that refers to itself would be a cycle for each record."""
    hooks, open_records, explained, report_queue, offset_proves = shared
    run = partial(_resolve, shared, record, report)
    if (report_queue.on or error is not None) and report_queue.takes(run, error, message):
        return
    open_records.discard(record)
    if error is None and offset_proves and message.offset() is None:
        error = WITHOUT_OFFSET
    if error is not None:
        error = explained(error, message)
    try:
        hooks.call("record_resolved", record, error, message)
    finally:  # Ctrl-C inside a hook must not hide the report
        report(error, message)


def record_of(report: object) -> Record | None:
    """The record whose report this is; None when no hook asked for it."""
    if isinstance(report, partial) and report.func is _resolve:
        found: Record = report.args[1]
        return found
    return None


def callback_of(report: Any) -> object:
    """The application's callback behind the report of a record, whether or not a hook asked for the record."""
    if isinstance(report, partial) and report.func is _resolve:
        report = report.args[2]
    return getattr(report, "__self__", None)


def _bulk_of(report: Any) -> BulkReport | None:
    bulk = callback_of(report)
    return bulk if type(bulk) is BulkReport else None


def tell_hold(report: Any, reason: str, seconds: float) -> None:
    """Note where hooks see it why the record with this report was held, and for how long; the longest counts."""
    bulk = _bulk_of(report)
    for each in (record_of(report), *(bulk.parts if bulk else ())):
        if each is not None and (each.hold is None or each.hold[1] < seconds):
            each.hold = reason, seconds


class ObservedSend:
    """Takes the place of the native produce(): makes a Record, tells the hooks, and hands over.

    `open` holds the records without a report, so that a hook can be told which ones were lost.
    """

    def __init__(
        self,
        way: Callable[..., Any],
        hooks: Hooks,
        producer: ProducerInfo,
        refusal_of: Callable[[Exception], Exception | None],
        explained: Explained,
        report_queue: ReportQueue,
        offset_proves: bool,
        only_errors: bool,
    ) -> None:
        self._way = way
        self._hooks = hooks
        self._only_errors = only_errors
        self._producer = producer
        self._refusal_of = refusal_of
        self.open: set[Record] = set()
        self._shared = _Shared(hooks, self.open, explained, report_queue, offset_proves)

    def go_on_to(self, way: Callable[..., Any]) -> None:
        """Send records on this way from now on."""
        self._way = way

    def follow(self, topic: str, messages: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """(value, key, partition, timestamp, headers, callback) of each message of one call, as hooks want them."""
        call = BulkCall(self._producer, topic, [message[4] for message in messages], [()] * len(messages))
        self._hooks.call("_bulk_accepted", call)
        if not call.takers:
            return messages
        reports: dict[Any, BulkReport] = {}
        found = []
        for message, headers, parts in zip(messages, call.headers, call.parts, strict=True):
            value, key, partition, timestamp, _, callback = message
            if (report := reports.get(same := (id(callback), parts))) is None:
                report = reports[same] = BulkReport(callback, parts, call, self._hooks, self._only_errors)
            found.append((value, key, partition, timestamp, headers, report))
        return found

    # The report may come before the native call returns, and resolves the record then. So it is in `open`, and hooks
    # know it, before the call; a refusal takes it out, and is told to hooks in place of an end.
    def __call__(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        report: DeliveryCallback,
        _: None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> Any:
        hooks, open_records = self._hooks, self.open
        bulk = _bulk_of(report)
        if bulk is not None and bulk.alone:
            return self._way(topic, value, key, partition, report, None, timestamp, headers)
        well_formed = headers is None or isinstance(headers, (dict, list))
        copied = Record.copied_headers(headers) if well_formed else []
        state: dict[object, Any] = {} if bulk is None else dict.fromkeys(bulk.takers)
        record = Record(self._producer, topic, value, key, partition, timestamp, copied, state)
        hooks.call("record_accepted", record)

        resolve = partial(_resolve, self._shared, record, report)
        open_records.add(record)
        # Headers in no form of confluent_kafka's go on as they are, for the native call to refuse.
        sent_headers = record.headers if record.headers_changed and well_formed else headers
        self._shared.report_queue.note_headers(topic, sent_headers)
        try:
            return self._way(topic, value, key, partition, resolve, None, timestamp, sent_headers)
        except NOT_ACCEPTED as error:
            refusal = self._refusal_of(error) or error
            if refusal is RENEWED:  # another way has been chosen
                return self._way(topic, value, key, partition, resolve, None, timestamp, sent_headers)
            open_records.discard(record)
            hooks.call("record_refused", record, refusal)
            try:
                raise refusal from None
            finally:
                del refusal  # it refers to this frame: a cycle


class _Sampled(cycle):  # type: ignore[type-arg]
    """Called, it is the next one of its reports: in C, where to count takes a fifth of the time."""

    __slots__ = ()
    __call__ = property(next)


class Durations:
    """How long records of one producer took. Each is met where it ends: in a batch, as an error, or in a native report.

    `taker` wants this `share` of all records, and picks from what `took()` offers it: by any thread, one in so many.
    """

    def __init__(self, taker: Any, producer: ProducerInfo) -> None:
        self.period = max(period for period in _PERIODS if period * taker.share <= 1)
        self._tell = partial(taker.took, self.period, producer)
        self._skip = int(randomness.share() * self.period)
        self._errors = cycle(range(self.period))
        self._waited: dict[int, float] = {}  # by thread: of the record whose report runs

    def sampled(self, report: Any, running: set[int]) -> Any:
        """`report`, which is measured now and then. `running`: threads that run reports of batch lanes."""

        @interrupts.called_natively
        def measured(callback: DeliveryCallback, error: KafkaError | None, message: Message) -> None:
            report(callback, error, message)
            latency: float | None = message.latency()
            if error is None and latency is not None and (thread := get_ident()) not in running:
                self._tell(message.topic(), message.partition(), latency + self._waited.get(thread, 0.0), None)

        order = [report] * self.period
        order[int(randomness.share() * self.period)] = measured
        return _Sampled(order)

    def after(self, seconds: float, report: DeliveryCallback) -> DeliveryCallback:
        """The report of a record that waited so long in this process before it is handed over to the direct lane."""

        @interrupts.called_natively
        def reported(error: KafkaError | None, message: Message) -> None:
            thread = get_ident()
            before, self._waited[thread] = self._waited.get(thread, 0.0), seconds
            try:
                report(error, message)
            finally:
                self._waited[thread] = before

        return reported

    def explaining(self, explained: Explained) -> Explained:
        """`explained`, which is called once for each record that ends with an error."""

        def explain(error: KafkaError, message: Message) -> KafkaError:
            made = explained(error, message)
            if next(self._errors) == 0:
                since, latency = getattr(made, "accepted_at", None), message.latency() or 0.0
                seconds = (latency if since is None else clock.time() - since) + self._waited.get(get_ident(), 0.0)
                self._tell(message.topic(), message.partition(), seconds, made)
            return made

        return explain

    def of_batch(self, tp: TopicPartition, records: Sequence[HeldRecord], now: float) -> None:
        """All of them were delivered by a batch lane. The sender's thread."""
        for record in records[self._skip :: self.period]:
            self._tell(tp[0], tp[1] if tp[1] >= 0 else None, now - record[ACCEPTED_AT], None)
        self._skip = (self._skip - len(records)) % self.period
