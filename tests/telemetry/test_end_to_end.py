"""Both hooks in a real SafeProducer on librdkafka's mock cluster: spans, headers, log lines, and who counts what."""

import contextlib
import copy
import gc
import logging
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog
from confluent_kafka import KafkaError, KafkaException
from opentelemetry import trace
from opentelemetry.propagate import extract
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, StatusCode

from safeproducer import Hook, Record, SafeProducer
from safeproducer.telemetry.opentelemetry import OpenTelemetryHook
from safeproducer.telemetry.structlog import StructlogHook
from tests.contract.fixtures import Cluster
from tests.contract.support import send_one
from tests.telemetry.tracing import Tracing, attributes

MOCK = {"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "linger.ms": 0, "log_level": 0}
TIMES_OUT = {"test_mock_broker_rtt": 5000, "message_timeout_ms": 200, "enable_idempotence": False}
DEADLINE = 20

Make = Callable[..., SafeProducer]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[SafeProducer] = []

    def build(*hooks: Hook, **settings: Any) -> SafeProducer:
        config = {**MOCK, **{name.replace("_", "."): value for name, value in settings.items()}}
        made.append(SafeProducer(config, hooks=hooks))
        return made[-1]

    yield build
    for producer in made:
        producer.close(5)


def read_back(producer: SafeProducer, topic: str, count: int) -> list[Any]:
    (broker,) = producer.list_topics(topic, timeout=DEADLINE).brokers.values()
    with contextlib.closing(Cluster("mock", f"{broker.host}:{broker.port}", str)) as cluster:
        found = cluster.read(topic)
    assert len(found) == count
    return found


def test_each_delivered_record_ends_one_span_with_its_place_in_the_log(tracing: Tracing, make: Make):
    producer = make(tracing.hook, client_id="billing")
    reported: list[tuple[str, int]] = []
    for number in range(50):
        producer.produce(
            "orders",
            str(number).encode(),
            key=str(number).encode(),
            on_delivery=lambda error, message: reported.append((str(message.partition()), message.offset())),
        )
    assert producer.flush(DEADLINE) == 0
    spans = tracing.ended
    assert len(reported) == 50
    assert sorted(reported) == sorted(
        (attributes(span)["messaging.destination.partition.id"], attributes(span)["messaging.kafka.offset"])
        for span in spans
    )
    assert {span.name for span in spans} == {"send orders"}
    assert {span.kind for span in spans} == {SpanKind.PRODUCER}
    assert {attributes(span)["messaging.client.id"] for span in spans} == {"billing"}
    assert {span.status.status_code for span in spans} == {StatusCode.UNSET}


def test_a_consumer_finds_the_spans_context_in_the_headers(tracing: Tracing, make: Make):
    producer = make(tracing.hook)
    given = [("a", b"1"), ("a", b"2"), ("none", None)]
    with tracing.provider.get_tracer("app").start_as_current_span("checkout") as checkout:
        producer.produce("orders", b"v", headers=given)
    assert producer.flush(DEADLINE) == 0
    span = next(span for span in tracing.ended if span.name == "send orders")
    (message,) = read_back(producer, "orders", 1)
    headers = message.headers()
    assert headers[:-1] == given
    continued = trace.get_current_span(extract({headers[-1][0]: headers[-1][1].decode()})).get_span_context()
    assert (continued.trace_id, continued.span_id) == (span.context.trace_id, span.context.span_id)
    assert continued.trace_id == checkout.get_span_context().trace_id


@pytest.mark.parametrize("given", [[("a", b"1"), ("b", "2")], {"a": b"1", "b": "2"}, [], {}, None])
def test_the_callers_headers_are_never_touched(tracing: Tracing, make: Make, given: Any):
    producer = make(tracing.hook)
    before = copy.deepcopy(given)
    for _ in range(3):
        producer.produce("orders", b"v", headers=given)
    assert producer.flush(DEADLINE) == 0
    assert given == before
    for message in read_back(producer, "orders", 3):
        names = [name for name, _ in message.headers()]
        assert names == [*dict(given or {}), "traceparent"]


def test_the_hook_reaches_records_of_a_batch(tracing: Tracing, make: Make):
    """With bulk="off" produce_batch() makes a span for each of its messages; the caller's dicts are left alone."""
    producer = make(OpenTelemetryHook(tracing.provider, bulk="off"))
    messages: list[dict[str, Any]] = [{"value": b"1"}, {"value": b"2", "headers": [("a", b"1")]}]
    before = copy.deepcopy(messages)
    assert producer.produce_batch("orders", messages) == 2
    assert producer.flush(DEADLINE) == 0
    assert messages == before
    assert len(tracing.ended) == 2
    carried = {dict(message.headers())["traceparent"].decode()[36:52] for message in read_back(producer, "orders", 2)}
    assert carried == {f"{span.context.span_id:016x}" for span in tracing.ended if span.context is not None}


def test_a_purged_record_ends_with_the_purges_error(tracing: Tracing, make: Make):
    producer = make(tracing.hook, test_mock_broker_rtt=5000)
    reported: list[KafkaError] = []
    producer.produce("orders", b"v", on_delivery=lambda error, message: reported.append(error))
    producer.purge()
    assert producer.flush(DEADLINE) == 0
    (span,) = tracing.ended
    assert [error.name() for error in reported] == [attributes(span)["error.type"]]
    assert attributes(span)["error.type"] in ("_PURGE_QUEUE", "_PURGE_INFLIGHT")
    assert span.status.status_code is StatusCode.ERROR
    assert "messaging.kafka.offset" not in attributes(span)


def test_a_record_for_a_partition_that_does_not_exist_ends_with_an_error(tracing: Tracing, make: Make):
    producer = make(tracing.hook)
    producer.produce("orders", b"v")
    assert producer.flush(DEADLINE) == 0  # from here on the topic's partitions are known
    with pytest.raises(KafkaException):
        producer.produce("orders", b"v", partition=99)
    delivered, refused = tracing.ended
    assert delivered.status.status_code is StatusCode.UNSET
    assert refused.status.status_code is StatusCode.ERROR
    assert attributes(refused)["error.type"] == "_UNKNOWN_PARTITION"
    assert attributes(refused)["messaging.destination.partition.id"] == "99"


def test_records_lost_at_close_end_their_spans(tracing: Tracing, make: Make):
    producer = make(tracing.hook, test_mock_broker_rtt=5000)
    for _ in range(3):
        producer.produce("orders", b"v")
    report = producer.close(0)
    assert report.left == 3
    assert [span.status.status_code for span in tracing.ended] == [StatusCode.ERROR] * 3


def test_records_lost_to_garbage_collection_end_their_spans(tracing: Tracing):
    producer = SafeProducer({**MOCK, "test.mock.broker.rtt": 5000}, hooks=[tracing.hook])
    producer.produce("orders", b"v")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del producer
        gc.collect()
    (span,) = tracing.ended
    assert attributes(span)["error.type"] == "delivery_report_lost"
    assert "garbage collection" in (span.status.description or "")


def test_a_raising_hook_costs_nobody_a_record_or_a_span(tracing: Tracing, make: Make, caplog: pytest.LogCaptureFixture):
    """A third hook that raises on every report is reported once; deliveries, callbacks and spans are complete."""

    class Broken(Hook):
        def record_accepted(self, record: Record) -> None:
            raise RuntimeError("broken hook")

    producer = make(Broken(), tracing.hook)
    reported: list[object] = []
    with caplog.at_level(logging.ERROR, logger="safeproducer"):
        for _ in range(10):
            producer.produce("orders", b"v", on_delivery=lambda error, message: reported.append(error))
        assert producer.flush(DEADLINE) == 0
    assert reported == [None] * 10
    assert len(tracing.ended) == 10
    assert sum("Broken" in entry.getMessage() for entry in caplog.records) == 1


def test_spans_may_be_exported_through_the_producer_they_describe(make: Make):
    """An exporter that writes to Kafka through the same producer does not trace its own records, and so ends."""
    provider = TracerProvider()
    exported: list[str] = []

    class KafkaExporter(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            for span in spans:
                exported.append(span.name)
                assert len(exported) < 100
                producer.produce("traces", span.name.encode())
            return SpanExportResult.SUCCESS

    provider.add_span_processor(SimpleSpanProcessor(KafkaExporter()))
    producer = make(OpenTelemetryHook(provider))
    send_one(producer, "orders", b"v")
    assert exported == ["send orders"]


def test_logging_through_the_producer_it_reports_on_ends(make: Make):
    """A handler whose own records fail as well makes one line for each failed record, and flush() comes to its end."""
    lines: list[dict[str, Any]] = []

    def handler(logger: object, level: str, event: dict[str, Any]) -> dict[str, Any]:
        if event["event"] == "record_failed":
            lines.append(event)
            assert len(lines) < 100
            producer.produce("logs", b"line")
        raise structlog.DropEvent

    hook = StructlogHook(structlog.wrap_logger(None, processors=[handler]))
    producer = make(hook, **TIMES_OUT)
    for _ in range(5):
        producer.produce("orders", b"v")
    assert producer.flush(DEADLINE) == 0
    assert [line["topic"] for line in lines] == ["orders"] * 5
    assert hook.suppressed == 5


def test_instrumentation_of_the_package_does_not_count_records_twice():
    """Instrumentation that replaced confluent_kafka.Producer at start-up never sees the records of a SafeProducer."""
    program = textwrap.dedent(
        """
        import confluent_kafka

        seen = []

        class Instrumented(confluent_kafka.Producer):
            def __init__(self, *args, **kwargs):
                seen.append("made")
                super().__init__(*args, **kwargs)

            def produce(self, *args, **kwargs):
                seen.append("produced")
                return super().produce(*args, **kwargs)

        confluent_kafka.Producer = Instrumented
        config = {"bootstrap.servers": "mock", "test.mock.num.brokers": 1}

        confluent_kafka = confluent_kafka.Producer(config)
        confluent_kafka.produce("orders", b"v")
        assert confluent_kafka.flush(20) == 0
        assert seen == ["made", "produced"], seen

        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        from safeproducer import SafeProducer
        from safeproducer.telemetry.opentelemetry import OpenTelemetryHook

        exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        with SafeProducer(config, hooks=[OpenTelemetryHook(provider)]) as producer:
            for _ in range(3):
                producer.produce("orders", b"v")
            producer.produce_batch("orders", [{"value": b"v"}])
        assert len(exporter.get_finished_spans()) == 4
        assert seen == ["made", "produced"], seen
        """
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
