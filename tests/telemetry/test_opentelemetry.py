"""The OpenTelemetry hook alone: what it makes of each event, without a producer."""

import dataclasses
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY
from opentelemetry.propagators.textmap import TextMapPropagator
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
from tests.telemetry.tracing import Tracing, attributes, context_of

TRACE_ID, SPAN_ID = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
TRACEPARENT = f"00-{TRACE_ID:032x}-{SPAN_ID:016x}-01"


@contextmanager
def attached(current: context.Context) -> Iterator[None]:
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


def report(partition: int = 3, offset: int = 42) -> Message:
    return cast(Message, SimpleNamespace(partition=lambda: partition, offset=lambda: offset))


def info(client_id: str = "billing", servers: str = "kafka-1.example:9093") -> ProducerInfo:
    return ProducerInfo(client_id, servers, "alice", None, True, CallSite("app.py", 7, "main"))


def accepted(tracing: Tracing, sent: Record | None = None) -> Record:
    sent = sent or record()
    tracing.hook.record_accepted(sent)
    return sent


def delivered(tracing: Tracing, sent: Record) -> Record:
    accepted(tracing, sent)
    tracing.hook.record_resolved(sent, None, report())
    return sent


def test_names_are_those_of_the_installed_conventions():
    expected = {
        "SYSTEM": names.MESSAGING_SYSTEM,
        "OPERATION_NAME": names.MESSAGING_OPERATION_NAME,
        "OPERATION_TYPE": names.MESSAGING_OPERATION_TYPE,
        "DESTINATION_NAME": names.MESSAGING_DESTINATION_NAME,
        "PARTITION_ID": names.MESSAGING_DESTINATION_PARTITION_ID,
        "OFFSET": names.MESSAGING_KAFKA_OFFSET,
        "TOMBSTONE": names.MESSAGING_KAFKA_MESSAGE_TOMBSTONE,
        "CLIENT_ID": names.MESSAGING_CLIENT_ID,
        "SERVER_ADDRESS": server_attributes.SERVER_ADDRESS,
        "SERVER_PORT": server_attributes.SERVER_PORT,
        "ERROR_TYPE": error_attributes.ERROR_TYPE,
    }
    assert {name: getattr(conventions, name) for name in expected} == expected
    assert conventions.SCHEMA_URL in {schema.value for schema in Schemas}


def test_a_delivered_record_is_one_span_with_partition_and_offset(tracing: Tracing):
    """The span is open until the report, then carries the conventions' attributes and no error."""
    tracing.hook.producer_created(info())
    sent = accepted(tracing)
    assert tracing.ended == []
    tracing.hook.record_resolved(sent, None, report())
    (span,) = tracing.ended
    assert span.name == "send orders"
    assert span.kind is SpanKind.PRODUCER
    assert span.parent is None
    assert span.status.status_code is StatusCode.UNSET
    assert attributes(span) == {
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
    assert sent.headers == [("traceparent", context_of(span))]
    assert sent.headers_changed
    scope = span.instrumentation_scope
    assert (scope.name, scope.schema_url) == ("safeproducer", conventions.SCHEMA_URL)


@pytest.mark.parametrize("outcome", ["committed", "aborted", "unknown"])
def test_a_transaction_is_one_span(tracing: Tracing, outcome: str):
    """From its beginning to its end, below the span that is current then; only one without an answer is an error."""
    doubt = "commit_transaction() has no answer" if outcome == "unknown" else ""
    of = dataclasses.replace(info(), transactional_id="shop")
    tracer = tracing.provider.get_tracer("application")
    with tracer.start_as_current_span("work") as work:
        tracing.hook.transaction_ended(TransactionEnded(of, outcome, 1.5, doubt))
    span = tracing.ended[0]
    assert (span.name, span.kind) == ("transaction", SpanKind.INTERNAL)
    assert span.parent.span_id == work.get_span_context().span_id
    assert attributes(span) == {
        "messaging.system": "kafka",
        "messaging.client.id": "billing",
        "server.address": "kafka-1.example",
        "server.port": 9093,
        "safeproducer.outcome": outcome,
        "safeproducer.transactional_id": "shop",
        **({"safeproducer.doubt": doubt} if doubt else {}),
    }
    assert span.end_time - span.start_time == pytest.approx(1.5e9, abs=1e9)
    assert span.status.status_code is (StatusCode.ERROR if doubt else StatusCode.UNSET)


def test_a_transaction_of_an_exporter_is_no_span(tracing: Tracing):
    """Instrumentation is suppressed there; records of its own would be traced for ever."""
    with attached(context.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True)):
        tracing.hook.transaction_ended(TransactionEnded(info(), "committed", 1.5, ""))
    assert tracing.ended == []


def test_the_attributes_for_samplers_are_there_at_the_start():
    seen: dict[str, Any] = {}

    class Sampler(type(ALWAYS_OFF)):  # type: ignore[misc]
        def should_sample(self, *args: Any, **kwargs: Any) -> Any:
            seen.update(kwargs["attributes"] if "attributes" in kwargs else args[4])
            return super().should_sample(*args, **kwargs)

    tracing = Tracing(sampler=Sampler(ALWAYS_OFF._decision))
    tracing.hook.producer_created(info())
    tracing.hook.record_accepted(record(partition=5))
    assert seen["messaging.destination.name"] == "orders"
    assert seen["messaging.destination.partition.id"] == "5"
    assert seen["messaging.system"] == "kafka"
    assert seen["messaging.operation.type"] == seen["messaging.operation.name"] == "send"
    assert (seen["server.address"], seen["server.port"]) == ("kafka-1.example", 9093)


@pytest.mark.parametrize(("value", "tombstone"), [(None, True), (b"", None), (b"v", None)])
def test_only_a_null_value_is_a_tombstone(tracing: Tracing, value: bytes | None, tombstone: bool | None):
    delivered(tracing, record(value))
    assert attributes(tracing.ended[0]).get("messaging.kafka.message.tombstone") is tombstone


def test_keys_values_and_headers_stay_out_of_spans(tracing: Tracing):
    marker = "s3cr3t-content"
    for ending in ("delivered", "failed", "refused", "lost"):
        sent = Record(info(), "orders", marker, marker, -1, 0, [("h", marker), (marker, b"x")])
        tracing.hook.record_accepted(sent)
        match ending:
            case "delivered":
                tracing.hook.record_resolved(sent, None, report())
            case "failed":
                tracing.hook.record_resolved(sent, KafkaError(KafkaError._MSG_TIMED_OUT), report())
            case "refused":
                tracing.hook.record_refused(sent, ValueError(f"cannot encode {marker}"))
            case _:
                tracing.hook.records_lost(RecordsLost(info(), "garbage collection", 1, (sent,)))
    assert len(tracing.ended) == 4
    assert all(marker not in span.to_json() for span in tracing.ended)


def test_a_failed_delivery_ends_with_librdkafkas_error_name(tracing: Tracing):
    for partition in (-1, 2):
        sent = accepted(tracing)
        tracing.hook.record_resolved(sent, KafkaError(KafkaError._MSG_TIMED_OUT), report(partition, -1001))
    unassigned, assigned = tracing.ended
    assert unassigned.status.status_code is assigned.status.status_code is StatusCode.ERROR
    assert "timed out" in (assigned.status.description or "")
    assert attributes(assigned)["error.type"] == "_MSG_TIMED_OUT"
    assert attributes(assigned)["messaging.destination.partition.id"] == "2"
    assert "messaging.destination.partition.id" not in attributes(unassigned)
    assert "messaging.kafka.offset" not in attributes(assigned)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (QueueFullError("full"), "safeproducer.QueueFullError"),
        (TypeError("value must be str"), "TypeError"),
        (KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION)), "_UNKNOWN_PARTITION"),
    ],
)
def test_a_refused_record_ends_at_once_with_its_exception(tracing: Tracing, error: BaseException, name: str):
    sent = accepted(tracing)
    tracing.hook.record_refused(sent, error)
    (span,) = tracing.ended
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)["error.type"] == name


def test_lost_records_end_with_an_error_of_their_own(tracing: Tracing):
    """Records without a report end with delivery_report_lost and the reason; a late report changes nothing."""
    lost = [accepted(tracing), accepted(tracing)]
    tracing.hook.records_lost(RecordsLost(info(), "close deadline", 2, tuple(lost)))
    tracing.hook.record_resolved(lost[0], None, report())
    assert [attributes(span)["error.type"] for span in tracing.ended] == ["delivery_report_lost"] * 2
    assert "close deadline" in (tracing.ended[0].status.description or "")
    assert "messaging.kafka.offset" not in attributes(tracing.ended[0])


def test_the_parent_is_the_span_current_at_produce(tracing: Tracing):
    """The span is a child of the application's span even when its report is served in another context."""
    with tracing.provider.get_tracer("app").start_as_current_span("checkout") as checkout:
        sent = accepted(tracing)
    tracing.hook.record_resolved(sent, None, report())
    span = next(span for span in tracing.ended if span.name == "send orders")
    assert span.parent.span_id == checkout.get_span_context().span_id
    assert span.context.trace_id == checkout.get_span_context().trace_id


@pytest.mark.parametrize("carried", [TRACEPARENT, TRACEPARENT.encode()])
@pytest.mark.parametrize("name", ["traceparent", b"traceparent"])
def test_a_context_the_record_carries_is_kept_and_linked(tracing: Tracing, name: Any, carried: HeaderValue):
    headers: list[tuple[str, HeaderValue]] = [(name, carried), ("a", b"1")]
    sent = delivered(tracing, record(headers=list(headers)))
    (span,) = tracing.ended
    assert sent.headers == headers
    assert not sent.headers_changed
    assert span.kind is SpanKind.CLIENT
    assert [(link.context.trace_id, link.context.span_id) for link in span.links] == [(TRACE_ID, SPAN_ID)]


@pytest.mark.parametrize("garbage", ["", "not-a-context", b"\xff\xfe", None, "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_an_unreadable_context_is_replaced(tracing: Tracing, garbage: HeaderValue):
    sent = delivered(tracing, record(headers=[("a", b"1"), ("traceparent", garbage), ("b", None)]))
    (span,) = tracing.ended
    assert span.kind is SpanKind.PRODUCER
    assert sent.headers == [("a", b"1"), ("b", None), ("traceparent", context_of(span))]


@pytest.mark.parametrize("headers", [[("a",)], [("a", b"1", 2)], [1], [(["a"], b"1")], [("traceparent", 7)], ["ab"]])
def test_malformed_headers_are_left_to_produce(tracing: Tracing, headers: list[Any]):
    sent = accepted(tracing, record(headers=list(headers)))
    tracing.hook.record_refused(sent, TypeError("headers"))
    assert attributes(tracing.ended[0])["error.type"] == "TypeError"
    assert sent.headers[: len(headers)] == headers


def test_baggage_travels_along(tracing: Tracing):
    with attached(baggage.set_baggage("tenant", "blue")):
        sent = accepted(tracing)
    assert [name for name, _ in sent.headers] == ["traceparent", "baggage"]
    assert dict(sent.headers)["baggage"] == "tenant=blue"


def test_a_propagator_of_ones_own_is_used():
    class Upper(TraceContextTextMapPropagator):
        def inject(self, carrier: Any, context: Any = None, setter: Any = None) -> None:
            carrier["X-TRACE"] = "1"

    tracing = Tracing()
    hook = OpenTelemetryHook(tracing.provider, cast(TextMapPropagator, Upper()))
    sent = record()
    hook.record_accepted(sent)
    assert sent.headers == [("X-TRACE", "1")]


def test_an_unsampled_record_costs_no_state_but_tells_the_consumer():
    """Sampled out: no span, but the header says so, or the consumer would start to sample a trace without a head."""
    tracing = Tracing(sampler=ALWAYS_OFF)
    sent = accepted(tracing)
    assert sent.state == {}
    ((name, value),) = sent.headers
    assert name == "traceparent"
    assert int(str(value)[-2:], 16) & trace.TraceFlags.SAMPLED == 0
    tracing.hook.record_resolved(sent, None, report())
    assert tracing.ended == []


def test_without_an_sdk_nothing_is_made():
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


def test_suppressed_instrumentation_is_honoured(tracing: Tracing):
    """Inside an exporter no span is made, so an exporter may write through the producer it observes."""
    with attached(context.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True)):
        sent = accepted(tracing)
    tracing.hook.record_resolved(sent, None, report())
    assert tracing.ended == []
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


def test_producers_that_share_a_hook_are_told_apart(tracing: Tracing):
    for client in ("a", "b"):
        delivered(tracing, record(producer=info(client)))
    assert [attributes(span)["messaging.client.id"] for span in tracing.ended] == ["a", "b"]


def test_two_hooks_keep_their_spans_apart(tracing: Tracing):
    other = Tracing()
    sent = record()
    for one in (tracing, other):
        one.hook.record_accepted(sent)
    for one in (tracing, other):
        one.hook.record_resolved(sent, None, report())
    assert len(tracing.ended) == len(other.ended) == 1
    assert sent.headers == [("traceparent", context_of(tracing.ended[0]))]
    (link,) = other.ended[0].links
    assert link.context.span_id == tracing.ended[0].context.span_id


def test_many_threads_end_every_span_once(tracing: Tracing):
    sent = [record() for _ in range(2000)]

    def accept(part: list[Record]) -> None:
        for one in part:
            tracing.hook.record_accepted(one)

    def resolve(part: list[Record]) -> None:
        for one in part:
            tracing.hook.record_resolved(one, None, report())

    for work in (accept, resolve):
        together(*(partial(work, sent[start::4]) for start in range(4)))
    assert len(tracing.ended) == 2000
    assert len({context_of(span) for span in tracing.ended}) == 2000
    assert {dict(one.headers)["traceparent"] for one in sent} == {context_of(span) for span in tracing.ended}


@pytest.mark.parametrize("mode", ["auto", "held"])
@pytest.mark.parametrize("cycle", [False, True], ids=["dropped", "in a cycle"])
def test_an_acknowledgement_nobody_polled_ends_its_span_with_the_producer(tracing: Tracing, mode: str, cycle: bool):
    """No record is lost, so nothing is told of one; of a produce_batch() as well."""
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("t")
        config = {"bootstrap.servers": cluster.bootstrap, "safeproducer.mode": mode}
        producer: Any = SafeProducer(config, hooks=[tracing.hook])
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
        assert len(tracing.ended) == 5
