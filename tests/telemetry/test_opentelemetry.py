"""The OpenTelemetry hook alone: what it makes of each event, without a producer."""

import dataclasses
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.semconv._incubating.attributes import messaging_attributes as names
from opentelemetry.semconv.attributes import error_attributes, server_attributes
from opentelemetry.semconv.schemas import Schemas
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from safeproducer import SafeProducer
from safeproducer.errors import QueueFullError
from safeproducer.hooks import RecordsLost, TransactionEnded
from safeproducer.kafka.native import KafkaError, KafkaException, Message
from safeproducer.records import CallSite, HeaderValue, ProducerInfo, Record
from safeproducer.telemetry import conventions
from safeproducer.telemetry import opentelemetry as module
from safeproducer.telemetry.opentelemetry import OpenTelemetryHook
from safeproducer.testing import FakeCluster
from tests.contract.support import together
from tests.inside import engine_of

TRACE_ID, SPAN_ID = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
TRACEPARENT = f"00-{TRACE_ID:032x}-{SPAN_ID:016x}-01"


class Report:
    """What the hook reads of a delivery report."""

    def __init__(self, partition: int | None = 3, offset: int | None = 42) -> None:
        self._partition, self._offset = partition, offset

    def partition(self) -> int | None:
        return self._partition

    def offset(self) -> int | None:
        return self._offset


class Spans:
    def __init__(self, **provider: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**provider)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.hook = OpenTelemetryHook(self.provider)

    def delivered(self, sent: Record) -> Record:
        """What the hook made of it."""
        self.hook.record_accepted(sent)
        self.hook.record_resolved(sent, None, report())
        return sent

    @property
    def ended(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()


@pytest.fixture
def spans() -> Spans:
    return Spans()


@contextmanager
def attached(current: context.Context) -> Iterator[None]:
    """It is the current one."""
    token = context.attach(current)
    try:
        yield
    finally:
        context.detach(token)


@pytest.fixture
def remote_parent() -> Iterator[None]:
    """A current span that some other process started, as a consumer or a web framework leaves it."""
    remote = trace.SpanContext(TRACE_ID, SPAN_ID, True, trace.TraceFlags(1))
    with attached(trace.set_span_in_context(trace.NonRecordingSpan(remote))):
        yield


def record(
    value: bytes | None = b"v",
    headers: list[tuple[str, HeaderValue]] | None = None,
    partition: int = -1,
    producer: ProducerInfo | None = None,
) -> Record:
    return Record(producer or info(), "orders", value, b"k", partition, 0, headers or [])


def report(partition: int | None = 3, offset: int | None = 42) -> Message:
    return cast(Message, Report(partition, offset))


def info(client_id: str = "billing", servers: str = "kafka-1.example:9093") -> ProducerInfo:
    return ProducerInfo(client_id, servers, "alice", None, True, CallSite("app.py", 7, "main"))


def traceparent_of(span: ReadableSpan) -> str:
    found = span.get_span_context()
    assert found is not None
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"


def test_names_are_those_of_the_installed_conventions():
    """Every attribute name equals the one in the semantic conventions, whose version the schema URL names."""
    assert (
        conventions.SYSTEM,
        conventions.OPERATION_NAME,
        conventions.OPERATION_TYPE,
        conventions.DESTINATION_NAME,
        conventions.PARTITION_ID,
        conventions.OFFSET,
        conventions.TOMBSTONE,
        conventions.CLIENT_ID,
        conventions.SERVER_ADDRESS,
        conventions.SERVER_PORT,
        conventions.ERROR_TYPE,
    ) == (
        names.MESSAGING_SYSTEM,
        names.MESSAGING_OPERATION_NAME,
        names.MESSAGING_OPERATION_TYPE,
        names.MESSAGING_DESTINATION_NAME,
        names.MESSAGING_DESTINATION_PARTITION_ID,
        names.MESSAGING_KAFKA_OFFSET,
        names.MESSAGING_KAFKA_MESSAGE_TOMBSTONE,
        names.MESSAGING_CLIENT_ID,
        server_attributes.SERVER_ADDRESS,
        server_attributes.SERVER_PORT,
        error_attributes.ERROR_TYPE,
    )
    assert conventions.SCHEMA_URL in {schema.value for schema in Schemas}


def test_a_delivered_record_is_one_span_with_partition_and_offset(spans: Spans):
    """The span is open until the report, then carries the conventions' attributes and no error."""
    spans.hook.producer_created(info())
    sent = record()
    spans.hook.record_accepted(sent)
    assert spans.ended == ()
    spans.hook.record_resolved(sent, None, report())
    (span,) = spans.ended
    assert span.name == "send orders"
    assert span.kind is SpanKind.PRODUCER
    assert span.parent is None
    assert span.status.status_code is StatusCode.UNSET
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.client.id": "billing",
        "server.address": "kafka-1.example",
        "server.port": 9093,
        "messaging.destination.partition.id": "3",
        "messaging.kafka.offset": 42,
    }
    assert sent.headers == [("traceparent", traceparent_of(span))]
    assert sent.headers_changed
    scope = span.instrumentation_scope
    assert scope is not None
    assert (scope.name, scope.schema_url) == ("safeproducer", conventions.SCHEMA_URL)


@pytest.mark.parametrize("outcome", ["committed", "aborted", "unknown"])
def test_a_transaction_is_one_span(spans: Spans, outcome: str):
    """From its beginning to its end, below the span that is current then; only one without an answer is an error."""
    doubt = "commit_transaction() has no answer" if outcome == "unknown" else ""
    of = dataclasses.replace(info(), transactional_id="shop")
    tracer = spans.provider.get_tracer("application")
    with tracer.start_as_current_span("work") as work:
        spans.hook.transaction_ended(TransactionEnded(of, outcome, 1.5, doubt))
    span = spans.ended[0]
    assert (span.name, span.kind) == ("transaction", SpanKind.INTERNAL)
    assert span.parent is not None
    assert span.parent.span_id == work.get_span_context().span_id
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.client.id": "billing",
        "server.address": "kafka-1.example",
        "server.port": 9093,
        "safeproducer.outcome": outcome,
        "safeproducer.transactional_id": "shop",
        **({"safeproducer.doubt": doubt} if doubt else {}),
    }
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.end_time - span.start_time == pytest.approx(1.5e9, abs=1e9)
    assert span.status.status_code is (StatusCode.ERROR if doubt else StatusCode.UNSET)


def test_a_transaction_of_an_exporter_is_no_span(spans: Spans):
    """Instrumentation is suppressed there; records of its own would be traced for ever."""
    with attached(context.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True)):
        spans.hook.transaction_ended(TransactionEnded(info(), "committed", 1.5, ""))
    assert spans.ended == ()


def test_the_attributes_for_samplers_are_there_at_the_start():
    """A sampler sees topic, partition, system, operation and server when the span is created, as conventions ask."""
    seen: dict[str, Any] = {}

    class Sampler(type(ALWAYS_OFF)):  # type: ignore[misc]
        def should_sample(self, *args: Any, **kwargs: Any) -> Any:
            seen.update(kwargs["attributes"] if "attributes" in kwargs else args[4])
            return super().should_sample(*args, **kwargs)

    spans = Spans(sampler=Sampler(ALWAYS_OFF._decision))
    spans.hook.producer_created(info())
    spans.hook.record_accepted(record(partition=5))
    assert seen["messaging.destination.name"] == "orders"
    assert seen["messaging.destination.partition.id"] == "5"
    assert seen["messaging.system"] == "kafka"
    assert seen["messaging.operation.type"] == seen["messaging.operation.name"] == "send"
    assert (seen["server.address"], seen["server.port"]) == ("kafka-1.example", 9093)


@pytest.mark.parametrize(("value", "tombstone"), [(None, True), (b"", None), (b"v", None)])
def test_only_a_null_value_is_a_tombstone(spans: Spans, value: bytes | None, tombstone: bool | None):
    """A null value sets messaging.kafka.message.tombstone; an empty one does not."""
    spans.delivered(record(value))
    assert (spans.ended[0].attributes or {}).get("messaging.kafka.message.tombstone") is tombstone


def test_keys_values_and_headers_stay_out_of_spans(spans: Spans):
    """Nothing of a record's content appears in its span, however the record ends."""
    marker = "s3cr3t-content"
    for ending in ("delivered", "failed", "refused", "lost"):
        sent = Record(info(), "orders", marker, marker, -1, 0, [("h", marker), (marker, b"x")])
        spans.hook.record_accepted(sent)
        match ending:
            case "delivered":
                spans.hook.record_resolved(sent, None, report())
            case "failed":
                spans.hook.record_resolved(sent, KafkaError(KafkaError._MSG_TIMED_OUT), report())
            case "refused":
                spans.hook.record_refused(sent, ValueError(f"cannot encode {marker}"))
            case _:
                spans.hook.records_lost(RecordsLost(info(), "garbage collection", 1, (sent,)))
    assert len(spans.ended) == 4
    assert all(marker not in span.to_json() for span in spans.ended)


def test_a_failed_delivery_ends_with_librdkafkas_error_name(spans: Spans):
    """A report with an error sets status ERROR, error.type and the partition if known, and no offset."""
    for partition in (-1, 2):
        sent = record()
        spans.hook.record_accepted(sent)
        spans.hook.record_resolved(sent, KafkaError(KafkaError._MSG_TIMED_OUT), report(partition, -1001))
    unassigned, assigned = spans.ended
    assert unassigned.status.status_code is assigned.status.status_code is StatusCode.ERROR
    assert "timed out" in (assigned.status.description or "")
    assert (assigned.attributes or {})["error.type"] == "_MSG_TIMED_OUT"
    assert (assigned.attributes or {})["messaging.destination.partition.id"] == "2"
    assert "messaging.destination.partition.id" not in (unassigned.attributes or {})
    assert "messaging.kafka.offset" not in (assigned.attributes or {})


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (QueueFullError("full"), "safeproducer.QueueFullError"),
        (TypeError("value must be str"), "TypeError"),
        (KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION)), "_UNKNOWN_PARTITION"),
    ],
)
def test_a_refused_record_ends_at_once_with_its_exception(spans: Spans, error: BaseException, name: str):
    """What produce() raises becomes error.type: Kafka's name if there is one, else the exception's class."""
    sent = record()
    spans.hook.record_accepted(sent)
    spans.hook.record_refused(sent, error)
    (span,) = spans.ended
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == name


def test_lost_records_end_with_an_error_of_their_own(spans: Spans):
    """Records without a report end with delivery_report_lost and the reason; a late report changes nothing."""
    lost = [record(), record()]
    for sent in lost:
        spans.hook.record_accepted(sent)
    spans.hook.records_lost(RecordsLost(info(), "close deadline", 2, tuple(lost)))
    spans.hook.record_resolved(lost[0], None, report())
    assert [(span.attributes or {})["error.type"] for span in spans.ended] == ["delivery_report_lost"] * 2
    assert "close deadline" in (spans.ended[0].status.description or "")
    assert "messaging.kafka.offset" not in (spans.ended[0].attributes or {})


def test_the_parent_is_the_span_current_at_produce(spans: Spans):
    """The span is a child of the application's span even when its report is served in another context."""
    with spans.provider.get_tracer("app").start_as_current_span("checkout") as checkout:
        sent = record()
        spans.hook.record_accepted(sent)
    spans.hook.record_resolved(sent, None, report())
    span = next(span for span in spans.ended if span.name == "send orders")
    assert span.parent is not None
    assert span.parent.span_id == checkout.get_span_context().span_id
    assert span.context is not None
    assert span.context.trace_id == checkout.get_span_context().trace_id


@pytest.mark.parametrize("carried", [TRACEPARENT, TRACEPARENT.encode()])
@pytest.mark.parametrize("name", ["traceparent", b"traceparent"])
def test_a_context_the_record_carries_is_kept_and_linked(spans: Spans, name: Any, carried: HeaderValue):
    """A record that already has a creation context keeps its headers; the span links to it, with kind CLIENT."""
    headers: list[tuple[str, HeaderValue]] = [(name, carried), ("a", b"1")]
    sent = spans.delivered(record(headers=list(headers)))
    (span,) = spans.ended
    assert sent.headers == headers
    assert not sent.headers_changed
    assert span.kind is SpanKind.CLIENT
    assert [(link.context.trace_id, link.context.span_id) for link in span.links] == [(TRACE_ID, SPAN_ID)]


@pytest.mark.parametrize("garbage", ["", "not-a-context", b"\xff\xfe", None, "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_an_unreadable_context_is_replaced(spans: Spans, garbage: HeaderValue):
    """A traceparent nobody can read does not stay in front of the real one; other headers keep their order."""
    sent = spans.delivered(record(headers=[("a", b"1"), ("traceparent", garbage), ("b", None)]))
    (span,) = spans.ended
    assert span.kind is SpanKind.PRODUCER
    assert sent.headers == [("a", b"1"), ("b", None), ("traceparent", traceparent_of(span))]


@pytest.mark.parametrize("headers", [[("a",)], [("a", b"1", 2)], [1], [(["a"], b"1")], [("traceparent", 7)], ["ab"]])
def test_malformed_headers_are_left_to_produce(spans: Spans, headers: list[Any]):
    """Headers that produce() is about to refuse do not break the hook, and reach produce() as they are."""
    sent = record(headers=list(headers))
    spans.hook.record_accepted(sent)
    spans.hook.record_refused(sent, TypeError("headers"))
    assert (spans.ended[0].attributes or {})["error.type"] == "TypeError"
    assert sent.headers[: len(headers)] == headers


def test_baggage_travels_along(spans: Spans):
    """The default propagators carry baggage of the current context beside the trace context."""
    with attached(baggage.set_baggage("tenant", "blue")):
        sent = record()
        spans.hook.record_accepted(sent)
    assert [name for name, _ in sent.headers] == ["traceparent", "baggage"]
    assert dict(sent.headers)["baggage"] == "tenant=blue"


def test_a_propagator_of_ones_own_is_used():
    """A propagator given to the hook replaces the global one."""

    class Upper(TraceContextTextMapPropagator):
        def inject(self, carrier: Any, context: Any = None, setter: Any = None) -> None:
            carrier["X-TRACE"] = "1"

    spans = Spans()
    hook = OpenTelemetryHook(spans.provider, cast(TextMapPropagator, Upper()))
    sent = record()
    hook.record_accepted(sent)
    assert sent.headers == [("X-TRACE", "1")]


def test_an_unsampled_record_costs_no_state_but_tells_the_consumer():
    """Sampled out: no span, but the header says so, or the consumer would start to sample a trace without a head."""
    spans = Spans(sampler=ALWAYS_OFF)
    sent = record()
    spans.hook.record_accepted(sent)
    assert sent.state == {}
    ((name, value),) = sent.headers
    assert name == "traceparent"
    assert int(str(value)[-2:], 16) & trace.TraceFlags.SAMPLED == 0
    spans.hook.record_resolved(sent, None, report())
    assert spans.ended == ()


def test_without_an_sdk_nothing_is_made():
    """With only the API installed a record is left exactly as it was."""
    hook = OpenTelemetryHook(trace.NoOpTracerProvider())
    sent = record(headers=[("a", b"1")])
    hook.record_accepted(sent)
    assert (sent.headers, sent.headers_changed, sent.state) == ([("a", b"1")], False, {})
    hook.record_resolved(sent, None, report())


@pytest.mark.usefixtures("remote_parent")
def test_without_an_sdk_a_remote_context_passes_through():
    """A context that came in from another process goes out with the record even when no SDK makes spans here."""
    hook = OpenTelemetryHook(trace.NoOpTracerProvider())
    sent = record()
    hook.record_accepted(sent)
    assert sent.headers == [("traceparent", TRACEPARENT)]


def test_suppressed_instrumentation_is_honoured(spans: Spans):
    """Inside an exporter no span is made, so an exporter may write through the producer it observes."""
    with attached(context.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True)):
        sent = record()
        spans.hook.record_accepted(sent)
    spans.hook.record_resolved(sent, None, report())
    assert spans.ended == ()
    assert sent.headers == []


@pytest.mark.parametrize(
    ("servers", "address"),
    [
        ("kafka-1:9093", ("kafka-1", 9093)),
        ("kafka-1", ("kafka-1", 9092)),
        ("SASL_SSL://kafka-1.example:9094", ("kafka-1.example", 9094)),
        ("[::1]:9092", ("::1", 9092)),
        ("[::1]", ("::1", 9092)),
        ("kafka-1:9092,kafka-2:9092", None),
        ("mock cluster", None),
        ("", None),
    ],
)
def test_the_server_is_named_only_when_there_is_one(servers: str, address: tuple[str, int] | None):
    """One bootstrap server is the server; of several, the report does not say which broker took the record."""
    attributes = module.client_attributes(info(servers=servers))
    found = (attributes["server.address"], attributes["server.port"]) if "server.address" in attributes else None
    assert found == address


def test_producers_that_share_a_hook_are_told_apart(spans: Spans):
    """Each span names the client of its own record's producer."""
    for client in ("a", "b"):
        spans.delivered(record(producer=info(client)))
    assert [(span.attributes or {})["messaging.client.id"] for span in spans.ended] == ["a", "b"]


def test_two_hooks_keep_their_spans_apart(spans: Spans):
    """Each hook finds its own span in the record; the second one links to what the first one injected."""
    other = Spans()
    sent = record()
    for one in (spans, other):
        one.hook.record_accepted(sent)
    for one in (spans, other):
        one.hook.record_resolved(sent, None, report())
    assert len(spans.ended) == len(other.ended) == 1
    assert sent.headers == [("traceparent", traceparent_of(spans.ended[0]))]
    (link,) = other.ended[0].links
    assert spans.ended[0].context is not None
    assert link.context.span_id == spans.ended[0].context.span_id


def test_many_threads_end_every_span_once(spans: Spans):
    """Records accepted on many threads and resolved on others give exactly one span each."""
    sent = [record() for _ in range(2000)]

    def accept(part: list[Record]) -> None:
        for one in part:
            spans.hook.record_accepted(one)

    def resolve(part: list[Record]) -> None:
        for one in part:
            spans.hook.record_resolved(one, None, report())

    for work in (accept, resolve):
        together(*(partial(work, sent[start::4]) for start in range(4)))
    assert len(spans.ended) == 2000
    assert len({traceparent_of(span) for span in spans.ended}) == 2000
    assert {dict(one.headers)["traceparent"] for one in sent} == {traceparent_of(span) for span in spans.ended}


@pytest.mark.parametrize("mode", ["auto", "held"])
@pytest.mark.parametrize("cycle", [False, True], ids=["dropped", "in a cycle"])
def test_an_acknowledgement_that_was_not_polled_ends_its_span_with_the_producer(spans: Spans, mode: str, cycle: bool):
    """No record is lost, so nothing is told of one; of a produce_batch() as well."""
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("t")
        config = {"bootstrap.servers": cluster.bootstrap, "safeproducer.mode": mode}
        producer: Any = SafeProducer(config, hooks=[spans.hook])
        for _ in range(4):
            producer.produce("t", b"v")
        producer.produce_batch("t", [{"value": b"w"}] * 3)
        cluster.wait(lambda cluster: len(cluster.log("t")) == 7, 20)
        counters = engine_of(producer).counters
        deadline = time.monotonic() + 20
        while counters.written().total() < 7:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if cycle:
            producer.itself = producer
        del producer, counters
        gc.collect()
        assert len(spans.ended) == 5
