"""`opentelemetry-instrument`: each producer is traced and measured, once, without a change to the application."""

import json
import os
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from safeproducer import Hook, SafeProducer
from safeproducer.telemetry import OpenTelemetryMetrics
from safeproducer.telemetry.instrumentor import SafeProducerInstrumentor
from safeproducer.telemetry.opentelemetry import OpenTelemetryHook
from tests.contract.support import ran

ROOT = Path(__file__).parents[2]
MOCK = {"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "linger.ms": 0, "log_level": 0}
APPLICATION = f"""
import json, sys, confluent_kafka
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from safeproducer import SafeProducer, SafeSerializingProducer

spans, reader, provider = InMemorySpanExporter(), InMemoryMetricReader(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
metrics.set_meter_provider(MeterProvider([reader]))

class Own(SafeProducer):
    pass

for kind in (SafeProducer, Own, SafeSerializingProducer, *([confluent_kafka.Producer] if sys.argv[1:] else [])):
    producer = kind({MOCK!r})
    producer.produce(topic="orders", value=b"1")
    producer.flush(20)
found = reader.get_metrics_data().resource_metrics[0].scope_metrics
points = {{m.name: m.data.data_points for scope in found for m in scope.metrics}}
accepted = sum(point.value for point in points["safeproducer.records.accepted"])
print(json.dumps([accepted, sorted(span.name for span in spans.get_finished_spans()),
                  confluent_kafka.Producer.__module__]))
"""


def instrumented(folder: Path, *command: str | Path) -> Any:
    """(accepted records, spans, the class that confluent_kafka has): what the application printed.

    It is started with the entry points of pyproject.toml, whatever is installed.
    """
    metadata = folder / "safeproducer-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: safeproducer\nVersion: 0\n")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {group: points for group, points in project["entry-points"].items() if "opentelemetry" in group}
    lines = [f"[{group}]\nsafeproducer = {points['safeproducer']}\n" for group, points in groups.items()]
    (metadata / "entry_points.txt").write_text("".join(lines))
    path = os.pathsep.join(map(str, (folder, ROOT)))
    done = ran(command, env={**os.environ, "PYTHONPATH": path, "OTEL_PYTHON_CONFIGURATOR": "the application"})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_producers_of_each_class_are_traced_and_measured(tmp_path: Path) -> None:
    """Also a subclass, and those that serialize."""
    start = (Path(sys.executable).with_name("opentelemetry-instrument"), sys.executable)
    accepted, spans, _ = instrumented(tmp_path, *start, "-c", APPLICATION)
    assert (accepted, spans) == (3, ["send orders"] * 3)


class Telemetry:
    def __init__(self) -> None:
        self.exporter, self.reader, self.tracing = InMemorySpanExporter(), InMemoryMetricReader(), TracerProvider()
        self.tracing.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.metering = MeterProvider([self.reader])

    def spans_of_a_record(self, *hooks: Hook) -> int:
        """How many spans one record of a new producer makes."""
        self.exporter.clear()
        producer = SafeProducer(MOCK, hooks=hooks)
        producer.produce("orders", b"1")
        producer.close(20)
        return len(self.exporter.get_finished_spans())

    @property
    def accepted(self) -> int:
        found: Any = self.reader.get_metrics_data()
        scopes = found.resource_metrics[0].scope_metrics if found else []
        metrics = [metric for scope in scopes for metric in scope.metrics if metric.name.endswith("records.accepted")]
        return sum(point.value for metric in metrics for point in metric.data.data_points)


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    made = Telemetry()
    SafeProducerInstrumentor().instrument(tracer_provider=made.tracing, meter_provider=made.metering)
    yield made
    if SafeProducerInstrumentor().is_instrumented_by_opentelemetry:
        SafeProducerInstrumentor().uninstrument()


def test_a_hook_of_the_application_stands_in_place_of_ours(telemetry: Telemetry) -> None:
    """With the one for traces metrics stay ours, and with both none is ours."""
    own = OpenTelemetryHook(telemetry.tracing)
    assert telemetry.spans_of_a_record(own) == 1
    assert telemetry.accepted == 1
    assert telemetry.spans_of_a_record(own, OpenTelemetryMetrics(MeterProvider())) == 1
    assert telemetry.accepted == 1


def test_another_hook_changes_nothing(telemetry: Telemetry) -> None:
    assert telemetry.spans_of_a_record(Hook()) == 1
    assert telemetry.accepted == 1


def test_uninstrument_ends_it(telemetry: Telemetry) -> None:
    """For producers that are made from then on."""
    SafeProducerInstrumentor().uninstrument()
    assert telemetry.spans_of_a_record() == 0
    assert telemetry.accepted == 0


@pytest.mark.parametrize(("scope", "kind", "spans"), [
    ("opentelemetry.instrumentation.confluent_kafka", SpanKind.PRODUCER, 1),
    ("opentelemetry.instrumentation.confluent_kafka", SpanKind.CONSUMER, 2),
    ("application", SpanKind.PRODUCER, 2),
])  # fmt: skip
def test_a_record_that_confluent_kafkas_instrumentation_traces_gets_no_second_span(
    telemetry: Telemetry, scope: str, kind: SpanKind, spans: int
) -> None:
    """Where it has a SafeProducer inside. A consumer's span is no span of a record, nor is the application's."""
    producer = SafeProducer(MOCK)
    with telemetry.tracing.get_tracer(scope).start_as_current_span("orders send", kind=kind):
        producer.produce("orders", b"1")
    producer.close(20)
    assert len(telemetry.exporter.get_finished_spans()) == spans
