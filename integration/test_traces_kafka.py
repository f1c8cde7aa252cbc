"""A trace that starts in the application, goes through SafeProducer and a real broker, and goes on in a consumer."""

import time
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from opentelemetry import trace
from opentelemetry.propagate import extract
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from integration.conftest import TopicFactory
from integration.kafka.cluster import KafkaCluster
from safeproducer import SafeProducer
from safeproducer.telemetry.opentelemetry import OpenTelemetryHook

DEADLINE = 30
PARTITIONS = 3


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(exporter))
    return made


def read_back(bootstrap: str, topic: str, partitions: int, count: int) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "traces", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    found: list[Any] = []
    deadline = time.monotonic() + DEADLINE
    try:
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message)
    finally:
        consumer.close()
    assert len(found) == count
    return found


def place(span: ReadableSpan) -> tuple[str, int]:
    """Partition and offset that a span names."""
    attributes: dict[str, Any] = dict(span.attributes or {})
    return attributes["messaging.destination.partition.id"], attributes["messaging.kafka.offset"]


def test_a_trace_goes_from_the_application_to_the_consumer(
    kafka: KafkaCluster, topic: TopicFactory, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    """Each record read back leads to the span of its own delivery, below the span the application was in."""
    name = topic(partitions=PARTITIONS)
    tracer = provider.get_tracer("app")
    shared_headers = [("tenant", b"blue")]
    config = {"bootstrap.servers": kafka.bootstrap, "client.id": "billing"}
    with SafeProducer(config, hooks=[OpenTelemetryHook(provider)]) as producer:
        for number in range(30):
            with tracer.start_as_current_span("checkout"):
                producer.produce(name, str(number), key=str(number), headers=shared_headers)
    assert shared_headers == [("tenant", b"blue")]

    for message in read_back(kafka.bootstrap, name, PARTITIONS, 30):
        headers = {key: value.decode() for key, value in message.headers() or [] if value is not None}
        assert headers["tenant"] == "blue"
        with tracer.start_as_current_span(
            "process",
            extract(headers),
            kind=SpanKind.CONSUMER,
            attributes={"place": f"{message.partition()}/{message.offset()}"},
        ):
            pass

    spans = {span.context.span_id: span for span in exporter.get_finished_spans() if span.context}
    processed = [span for span in spans.values() if span.kind is SpanKind.CONSUMER]
    assert len(processed) == 30
    for span in processed:
        assert span.parent is not None
        sent = spans[span.parent.span_id]
        assert (sent.name, sent.kind) == (f"send {name}", SpanKind.PRODUCER)
        assert "/".join(map(str, place(sent))) == (span.attributes or {})["place"]
        assert sent.parent is not None
        assert spans[sent.parent.span_id].name == "checkout"
        assert (span.end_time or 0) >= (sent.end_time or 0) > (sent.start_time or 0)
    assert len({place(span) for span in spans.values() if span.kind is SpanKind.PRODUCER}) == 30


def test_a_record_the_broker_refuses_ends_its_span_with_the_brokers_error(
    kafka: KafkaCluster, topic: TopicFactory, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    """A record above the topic's size limit is refused by the broker, and its span says so by Kafka's name."""
    name = topic(configs={"max.message.bytes": "1000"})
    with SafeProducer({"bootstrap.servers": kafka.bootstrap}, hooks=[OpenTelemetryHook(provider)]) as producer:
        producer.produce(name, b"x" * 5000)
    (span,) = exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "MSG_SIZE_TOO_LARGE"


def test_without_an_sdk_an_incoming_trace_still_reaches_the_consumer(kafka: KafkaCluster, topic: TopicFactory) -> None:
    """With only the API installed, a context that came from another process goes out with the record unchanged."""
    name = topic()
    remote = trace.SpanContext(0xABC, 0xDEF, True, trace.TraceFlags(1))
    hook = OpenTelemetryHook(trace.NoOpTracerProvider())
    with (
        SafeProducer({"bootstrap.servers": kafka.bootstrap}, hooks=[hook]) as producer,
        trace.use_span(trace.NonRecordingSpan(remote)),
    ):
        producer.produce(name, b"v")
    (message,) = read_back(kafka.bootstrap, name, 1, 1)
    assert message.headers() == [("traceparent", f"00-{0xABC:032x}-{0xDEF:016x}-01".encode())]
