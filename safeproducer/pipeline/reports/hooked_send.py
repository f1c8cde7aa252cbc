"""produce() with record hooks: what stands in front of either path only when a hook asks for records."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import cycle
from math import ceil
from typing import Any, NamedTuple

from safeproducer.errors import NOT_ACCEPTED, RENEWED
from safeproducer.hooks import BulkCall, BulkReport, Hooks, Sample
from safeproducer.kafka.native import WITHOUT_OFFSET, KafkaError, Message
from safeproducer.pipeline.record import DeliveryCallback
from safeproducer.pipeline.reports.counters import Explained
from safeproducer.pipeline.reports.report_queue import ReportQueue
from safeproducer.records import ProducerInfo, Record
from safeproducer.runtime import interrupts, randomness

_PERIOD = 4099
"""Records until a sample has the same places again. A prime: those of batches are others each time."""


class _Shared(NamedTuple):
    """What the reports of all records need."""

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


class _Sampling(cycle):  # type: ignore[type-arg]
    """Called, it is the next one of its callables: in C, where to count takes a fifth of the time, and nothing comes
    between."""

    __slots__ = ()
    __call__ = property(next)


class ObservedSend:
    """Takes the place of the native produce(): makes a Record, tells the hooks, and hands over.

    `open` holds the records without a report, so that a hook can be told which ones were lost. `gaps`: of the sample
    that hooks want; None when each record is observed.
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
        gaps: Sample | None = None,
    ) -> None:
        self._way = way
        self.gaps = gaps
        self._places: list[int] = []
        if gaps is not None:
            self._places = randomness.some_of(range(_PERIOD), ceil(_PERIOD * gaps.wanted))
        self._hooks = hooks
        self._only_errors = only_errors
        self._producer = producer
        self._refusal_of = refusal_of
        self.open: set[Record] = set()
        self._shared = _Shared(hooks, self.open, explained, report_queue, offset_proves)

    def go_on_to(self, way: Callable[..., Any]) -> None:
        """Where records go on from now on."""
        self._way = way

    def in_front_of(self, way: Callable[..., Any]) -> Callable[..., Any]:
        """What produce() calls while `way` is this one: this, or that for all records but the sample."""
        if self.gaps is None:
            return self
        order, first = [way] * _PERIOD, int(randomness.share() * _PERIOD)
        for place in self._places:
            order[place - first] = self._chosen
        return _Sampling(order)

    def _chosen(self, *record: Any) -> Any:
        """There are more places than the sample wants."""
        if self.gaps is not None and randomness.share() * len(self._places) < _PERIOD * self.gaps.share:
            self.gaps.left = 1
            return self(*record)
        return self._way(*record)

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
