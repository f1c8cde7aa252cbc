"""OpenTelemetry traces: a producer span for each record or call, from produce() to its last delivery report.

Needs only opentelemetry-api. Without an SDK no span is made; a trace context that other code put into the current
context still travels in the headers, as OpenTelemetry asks of libraries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, Context, get_current
from opentelemetry.propagate import get_global_textmap
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TracerProvider,
    get_current_span,
    get_tracer,
    set_span_in_context,
)

from safeproducer.hooks import BulkCall, Hook, RecordsLost, TransactionEnded
from safeproducer.kafka.native import KafkaError, Message
from safeproducer.records import ProducerInfo, Record
from safeproducer.runtime import clock
from safeproducer.telemetry import conventions as names
from safeproducer.telemetry.conventions import error_type

KAFKA_PORT = 9092
BULK = ("send", "create", "off")
MOST_KINDS = 5


class _BulkPart:
    """Messages of one call that share a span: `left` of `count` have not ended, `errors` are of those that failed.

    `hold`: as of a Record, of the one that was held longest.
    """

    __slots__ = ("count", "errors", "hold", "left", "producer")

    def __init__(self, call: BulkCall, indices: Sequence[int]) -> None:
        self.producer = call.producer
        self.count = self.left = len(indices)
        self.errors: list[KafkaError | BaseException] = []
        self.hold: tuple[str, float] | None = None
        alone = (self,)
        for index in indices:
            call.parts[index] += alone

    def end(self, error: KafkaError | BaseException | None) -> bool:
        """Count a message more that has ended; whether it was the last one. Any thread."""
        if error is not None:
            self.errors.append(error)
        self.left = left = self.left - 1  # one step under the interpreter lock: no call comes between
        return not left


class OpenTelemetryHook(Hook):
    """Makes a span for each record and sends its context along in the record's headers.

    `tracer_provider`: default the global one, also when it is installed after this hook.
    `propagator`: default the global one (W3C trace context and baggage unless configured otherwise).
    `bulk`: which spans a produce_batch() gets, see below. `links`: how many links a span has at most; the SDK drops
    those beyond its own limit (128 by default) in silence.

    Raises ValueError for another `bulk`, and for `links` below 1; TypeError for a provider without get_tracer().

    The span `send {topic}` follows the OpenTelemetry messaging conventions, version 1.44: kind PRODUCER, child of the
    span that is current when produce() is called. It starts in produce() and ends when poll() or flush() serves the
    delivery report, with the partition and the offset, or with status ERROR and librdkafka's error name in
    `error.type`. A record that produce() refuses ends at once with the name of the exception; one that is lost ends
    with `delivery_report_lost`. Keys, values and headers never enter a span.

    A record whose headers already carry a trace context (a forwarded record, or one traced by the application) keeps
    it: its headers stay as they are and the span links to that context, with kind CLIENT. The conventions ask for that;
    several instrumentations replace it instead. An unreadable one is replaced.

    With `bulk="send"` a produce_batch() has one such span, from the call to its last report, with
    `messaging.batch.message_count`; its context goes into each message that has none. Messages with a context of their
    own keep it, and have `send` spans of kind CLIENT that link to them, as many links each as `links` says. With
    `bulk="create"` each message without a context gets a `create` span, and the `send` spans link to all. With
    `bulk="off"` each message has a `send` span. A span of several ends with `safeproducer.batch.failed_count`, with
    status ERROR if that is above zero, and with `error.type` if all of them failed with the same one.

    A transaction has the span `transaction`, of kind INTERNAL, child of the span that is current at its end. It has
    `safeproducer.outcome` (committed, aborted or unknown), `safeproducer.transactional_id`, and `safeproducer.doubt` if
    the next one needs a new producer epoch; the one of unknown outcome has status ERROR.

    The span of a record that was held has `safeproducer.hold.reason` and `safeproducer.hold.duration` (seconds).

    Thread-safe; one hook may serve many producers. `server.address` and `server.port` are given only if there is a
    single bootstrap server: a record does not tell which broker took it. With instrumentation suppressed in the current
    context (as in an exporter) the hook does nothing, so spans may be exported through the producer they describe.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        propagator: TextMapPropagator | None = None,
        *,
        bulk: str = "send",
        links: int = 128,
    ) -> None:
        if tracer_provider is not None and not callable(getattr(tracer_provider, "get_tracer", None)):
            way_out = "Pass an OpenTelemetry TracerProvider, or leave it out for the global one"
            raise TypeError(f"tracer_provider: {tracer_provider!r} has no method get_tracer(). {way_out}")
        if bulk not in BULK:
            raise ValueError(f"bulk: {bulk!r} is not known. Pass one of {', '.join(map(repr, BULK))}")
        if not isinstance(links, int) or links < 1:
            way_out = "Pass how many links a span of your SDK may have, or leave it out for 128"
            raise ValueError(f"links: {links!r} is not a whole number above 0. {way_out}")
        self._tracer = get_tracer("safeproducer", version("safeproducer"), tracer_provider, names.SCHEMA_URL)
        self._propagator = propagator
        self._bulk, self._links = bulk, links
        self._parts: dict[_BulkPart, Span] = {}

    def record_accepted(self, record: Record) -> None:
        context = get_current()
        if self in record.state or (context and context.get(_SUPPRESS_INSTRUMENTATION_KEY)):
            return  # one of many that are followed together, or an exporter's
        if traced_already(get_current_span(context)):
            return
        propagator = self._propagator or get_global_textmap()
        created_in = creation_context(record.headers, propagator) if record.headers else None
        attributes = attributes_of("send", record)
        if isinstance(record.partition, int) and record.partition >= 0:
            attributes[names.PARTITION_ID] = str(record.partition)
        if record.value is None:
            attributes[names.TOMBSTONE] = True
        span = self._tracer.start_span(
            f"send {record.topic}",
            context,
            SpanKind.PRODUCER if created_in is None else SpanKind.CLIENT,
            attributes,
            () if created_in is None else (Link(created_in),),
        )
        if span.is_recording():
            record.state[self] = span
        if created_in is None and (added := injected(span, context, propagator)):
            record.headers[:] = without(record.headers, added)
            for name, value in added.items():
                record.add_header(name, value)

    def record_refused(self, record: Record, error: BaseException) -> None:
        span: Span | None = record.state.pop(self, None)
        if span is not None:
            fail(span, error_type(error), "refused by produce()")

    def record_resolved(self, record: Record, error: KafkaError | None, message: Message) -> None:
        span: Span | None = record.state.pop(self, None)
        if span is None:
            return
        note_hold(span, record.hold)
        partition, offset = message.partition(), message.offset()
        if partition is not None and partition >= 0:
            span.set_attribute(names.PARTITION_ID, str(partition))
        if error is not None:
            fail(span, error_type(error), error.str())
            return
        if offset is not None and offset >= 0:  # acks=0 knows no offset
            span.set_attribute(names.OFFSET, offset)
        span.end()

    def records_lost(self, event: RecordsLost) -> None:
        for record in event.records:
            span: Span | None = record.state.pop(self, None)
            if span is not None:
                note_hold(span, record.hold)
                fail(span, names.RECORD_LOST, f"no delivery report, the outcome is unknown: {event.reason}")
        for part in [part for part in self._parts.copy() if part.producer is event.producer]:
            self._bulk_ended(part, min(part.left, event.count))

    def transaction_ended(self, event: TransactionEnded) -> None:
        if (context := get_current()) and context.get(_SUPPRESS_INSTRUMENTATION_KEY):
            return
        attributes = {names.SYSTEM: "kafka", names.OUTCOME: event.outcome, **client_attributes(event.producer)}
        attributes[names.TRANSACTIONAL_ID] = str(event.producer.transactional_id)
        if event.doubt:
            attributes[names.DOUBT] = event.doubt
        began = int((clock.time() - event.seconds) * 1e9)
        span = self._tracer.start_span("transaction", context, SpanKind.INTERNAL, attributes, start_time=began)
        if event.outcome == "unknown":
            span.set_status(StatusCode.ERROR, "its commit has no answer")
        span.end()

    def _producer_ended(self, engine: Any) -> None:
        """Spans end with it whose records have an acknowledgement that nobody polled."""
        observed, producer = engine.route.observed, engine.notifications.info
        for record in observed.open.copy() if observed else ():
            if (span := record.state.pop(self, None)) is not None:
                note_hold(span, record.hold)
                span.end()
        for part in [part for part in self._parts.copy() if part.producer is producer]:
            self._bulk_ended(part)

    # --- produce_batch() ---------------------------------------------------------------------------------------------

    def _bulk_accepted(self, call: BulkCall) -> None:
        if self._bulk == "off":
            return
        call.takers.append(self)
        context = get_current()
        if context and context.get(_SUPPRESS_INSTRUMENTATION_KEY):
            return
        propagator = self._propagator or get_global_textmap()
        linked: dict[int, SpanContext] = {}
        for index, headers in enumerate(call.headers):
            if headers and (found := creation_context(Record.copied_headers(headers), propagator)) is not None:
                linked[index] = found
        free = [index for index in range(len(call.headers)) if index not in linked]
        if self._bulk == "create":
            linked |= self._create(call, free, context, propagator)
        elif free:
            span = self._follow(call, free, SpanKind.PRODUCER, context)
            add_headers(call, free, injected(span, context, propagator))
        order = sorted(linked)
        for indices in (order[start : start + self._links] for start in range(0, len(order), self._links)):
            self._follow(call, indices, SpanKind.CLIENT, context, [Link(linked[index]) for index in indices])

    def _follow(
        self, call: BulkCall, indices: Sequence[int], kind: SpanKind, context: Context, links: Sequence[Link] = ()
    ) -> Span:
        """A span for these messages, until the last of them has ended."""
        attributes = attributes_of("send", call) | {names.BATCH_COUNT: len(indices)}
        span = self._tracer.start_span(f"send {call.topic}", context, kind, attributes, links)
        if span.is_recording():
            part = _BulkPart(call, indices)
            self._parts[part] = span
        return span

    def _create(
        self, call: BulkCall, indices: Sequence[int], context: Context, propagator: TextMapPropagator
    ) -> dict[int, SpanContext]:
        """A span for the creation of each of these messages; their contexts."""
        created = {}
        attributes = attributes_of("create", call)
        for index in indices:
            span = self._tracer.start_span(f"create {call.topic}", context, SpanKind.PRODUCER, attributes)
            add_headers(call, (index,), injected(span, context, propagator))
            span.end()
            if (own := span.get_span_context()).is_valid:
                created[index] = own
        return created

    def _bulk_ended(self, part: _BulkPart, lost: int = 0) -> None:
        span = self._parts.pop(part, None)
        if span is None:  # of another hook, or ended when its records were lost
            return
        note_hold(span, part.hold)
        kinds = Counter(map(error_type, part.errors))
        if lost:
            kinds[names.RECORD_LOST] = lost
        failed = kinds.total()
        span.set_attribute(names.FAILED_COUNT, failed)
        if failed:
            told = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common(MOST_KINDS))
            span.set_status(StatusCode.ERROR, f"{failed} of {part.count} records failed: {told}")
        if failed == part.count and len(kinds) == 1:
            span.set_attribute(names.ERROR_TYPE, next(iter(kinds)))
        span.end()


def attributes_of(operation: str, of: Record | BulkCall) -> dict[str, str | int | bool]:
    return {
        names.SYSTEM: "kafka",
        names.OPERATION_NAME: operation,
        names.OPERATION_TYPE: operation,
        names.DESTINATION_NAME: of.topic,
        **client_attributes(of.producer),
    }


def note_hold(span: Span, hold: tuple[str, float] | None) -> None:
    if hold is not None:
        span.set_attributes({names.HOLD_REASON: hold[0], names.HOLD_DURATION: hold[1]})


def traced_already(current: Span) -> bool:
    """Whether the instrumentation of confluent_kafka has just made the span of this record: it wraps the application's
    producer where that is a SafeProducer."""
    scope = getattr(current, "instrumentation_scope", None)  # of the SDK's spans
    theirs = getattr(scope, "name", "") == "opentelemetry.instrumentation.confluent_kafka"
    return theirs and getattr(current, "kind", None) is SpanKind.PRODUCER  # the other ones are of a consumer


def fail(span: Span, kind: str, description: str) -> None:
    span.set_attribute(names.ERROR_TYPE, kind)
    span.set_status(StatusCode.ERROR, description)
    span.end()


def creation_context(headers: Sequence[Any], propagator: TextMapPropagator) -> SpanContext | None:
    """The trace context that the headers carry already, or None."""
    fields = propagator.fields
    carrier: dict[str, str] = {}
    for header in headers:
        name = name_of(header)
        if name in fields and name not in carrier and header[1] is not None:
            carrier[name] = as_text(header[1])
    if not carrier:
        return None
    found = get_current_span(propagator.extract(carrier, Context())).get_span_context()
    return found if found.is_valid else None


def injected(span: Span, context: Context, propagator: TextMapPropagator) -> dict[str, str]:
    """Headers that carry the context of this span; none without an SDK, unless other code put one into `context`."""
    carrier: dict[str, str] = {}
    if context or span is not INVALID_SPAN:
        propagator.inject(carrier, set_span_in_context(span, context))
    return carrier


def without(headers: Sequence[Any], unwanted: Mapping[str, str]) -> list[Any]:
    """Readers take the first of several headers of one name: an unreadable context must not stay in front."""
    return [header for header in headers if name_of(header) not in unwanted]


def add_headers(call: BulkCall, indices: Sequence[int], added: Mapping[str, str]) -> None:
    """To these messages; those that have none share one list, which nothing changes."""
    pairs = list(added.items())
    for index in indices if pairs else ():
        own = call.headers[index]
        call.headers[index] = [*without(Record.copied_headers(own), added), *pairs] if own else pairs


def name_of(header: Any) -> str:
    """A header's name; "" for what is no header, which produce() is about to refuse."""
    match header:
        case (str() | bytes() as name, str() | bytes() | None) if isinstance(header, tuple):
            return as_text(name)
    return ""


def as_text(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode("utf-8", "replace")


@lru_cache(maxsize=64)
def client_attributes(producer: ProducerInfo) -> Mapping[str, str | int]:
    attributes: dict[str, str | int] = {names.CLIENT_ID: producer.client_id} if producer.client_id else {}
    server = producer.bootstrap_servers.strip().rpartition("://")[2]
    if not server or "," in server or " " in server:  # several, or a description instead of an address
        return attributes
    host, colon, port = server.rpartition(":")
    if not colon or not port.isdigit():
        host, port = server, str(KAFKA_PORT)
    attributes[names.SERVER_ADDRESS] = host.strip("[]")
    attributes[names.SERVER_PORT] = int(port)
    return attributes
