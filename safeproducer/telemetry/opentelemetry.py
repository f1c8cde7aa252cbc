"""OpenTelemetry traces: one producer span for each record, from produce() to its delivery report.

Needs only opentelemetry-api. Without an SDK no span is made; a trace context that other code put into the current
context still travels in the headers, as OpenTelemetry asks of libraries.
"""

from __future__ import annotations

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

from safeproducer.hooks import Hook, RecordsLost
from safeproducer.kafka.native import KafkaError, Message
from safeproducer.records import ProducerInfo, Record
from safeproducer.telemetry.conventions import (
    CLIENT_ID,
    DESTINATION_NAME,
    ERROR_TYPE,
    OFFSET,
    OPERATION_NAME,
    OPERATION_TYPE,
    PARTITION_ID,
    RECORD_LOST,
    SCHEMA_URL,
    SERVER_ADDRESS,
    SERVER_PORT,
    SYSTEM,
    TOMBSTONE,
    error_type,
)

KAFKA_PORT = 9092


class OpenTelemetryHook(Hook):
    """Makes a span for each record and sends its context along in the record's headers.

    `tracer_provider`: default the global one, also when it is installed after this hook.
    `propagator`: default the global one (W3C trace context and baggage unless configured otherwise).

    The span `send {topic}` follows the OpenTelemetry messaging conventions, version 1.44: kind PRODUCER, child of the
    span that is current when produce() is called. It starts in produce() and ends when poll() or flush() serves the
    delivery report, with the partition and the offset, or with status ERROR and librdkafka's error name in
    `error.type`. A record that produce() refuses ends at once with the name of the exception; one that is lost ends
    with `delivery_report_lost`. Keys, values and headers never enter a span.

    A record whose headers already carry a trace context (a forwarded record, or one traced by the application) keeps
    it: its headers stay as they are and the span links to that context, with kind CLIENT. The conventions ask for that;
    several instrumentations replace it instead. An unreadable one is replaced.

    Thread-safe; one hook may serve many producers. `server.address` and `server.port` are given only if there is a
    single bootstrap server: a record does not tell which broker took it. With instrumentation suppressed in the
    current context (as in an exporter) the hook does nothing, so spans may be exported through the producer they
    describe.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, propagator: TextMapPropagator | None = None
    ) -> None:
        self._tracer = get_tracer("safeproducer", version("safeproducer"), tracer_provider, SCHEMA_URL)
        self._propagator = propagator

    def record_accepted(self, record: Record) -> None:
        context = get_current()
        if context and context.get(_SUPPRESS_INSTRUMENTATION_KEY):
            return
        if traced_already(get_current_span(context)):
            return
        propagator = self._propagator or get_global_textmap()
        created_in = creation_context(record.headers, propagator) if record.headers else None
        attributes: dict[str, str | int | bool] = {
            SYSTEM: "kafka",
            OPERATION_NAME: "send",
            OPERATION_TYPE: "send",
            DESTINATION_NAME: record.topic,
            **client_attributes(record.producer),
        }
        if isinstance(record.partition, int) and record.partition >= 0:
            attributes[PARTITION_ID] = str(record.partition)
        if record.value is None:
            attributes[TOMBSTONE] = True
        span = self._tracer.start_span(
            f"send {record.topic}",
            context,
            SpanKind.PRODUCER if created_in is None else SpanKind.CLIENT,
            attributes,
            () if created_in is None else (Link(created_in),),
        )
        if span.is_recording():
            record.state[self] = span
        if created_in is None and (context or span is not INVALID_SPAN):
            inject(record, span, context, propagator)

    def record_refused(self, record: Record, error: BaseException) -> None:
        span: Span | None = record.state.pop(self, None)
        if span is not None:
            fail(span, error_type(error), "refused by produce()")

    def record_resolved(self, record: Record, error: KafkaError | None, message: Message) -> None:
        span: Span | None = record.state.pop(self, None)
        if span is None:
            return
        partition, offset = message.partition(), message.offset()
        if partition is not None and partition >= 0:
            span.set_attribute(PARTITION_ID, str(partition))
        if error is not None:
            fail(span, error_type(error), error.str())
            return
        if offset is not None and offset >= 0:  # acks=0 knows no offset
            span.set_attribute(OFFSET, offset)
        span.end()

    def records_lost(self, event: RecordsLost) -> None:
        for record in event.records:
            span: Span | None = record.state.pop(self, None)
            if span is not None:
                fail(span, RECORD_LOST, f"no delivery report, the outcome is unknown: {event.reason}")


def traced_already(current: Span) -> bool:
    """Whether the instrumentation of confluent_kafka has just made the span of this record: it wraps the application's
    producer where that is a SafeProducer."""
    scope = getattr(current, "instrumentation_scope", None)  # of the SDK's spans
    theirs = getattr(scope, "name", "") == "opentelemetry.instrumentation.confluent_kafka"
    return theirs and getattr(current, "kind", None) is SpanKind.PRODUCER  # the other ones are of a consumer


def fail(span: Span, kind: str, description: str) -> None:
    span.set_attribute(ERROR_TYPE, kind)
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


def inject(record: Record, span: Span, context: Context, propagator: TextMapPropagator) -> None:
    carrier: dict[str, str] = {}
    propagator.inject(carrier, set_span_in_context(span, context))
    if not carrier:
        return
    # Readers take the first of several headers of one name: an unreadable context must not stay in front.
    record.headers[:] = [header for header in record.headers if name_of(header) not in carrier]
    for name, value in carrier.items():
        record.add_header(name, value)


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
    attributes: dict[str, str | int] = {CLIENT_ID: producer.client_id} if producer.client_id else {}
    server = producer.bootstrap_servers.strip().rpartition("://")[2]
    if not server or "," in server or " " in server:  # several, or a description instead of an address
        return attributes
    host, colon, port = server.rpartition(":")
    if not colon or not port.isdigit():
        host, port = server, str(KAFKA_PORT)
    attributes[SERVER_ADDRESS] = host.strip("[]")
    attributes[SERVER_PORT] = int(port)
    return attributes
