"""Each worker calls a function once, which may export what its producers count."""

from __future__ import annotations

import os
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from prometheus_client import start_http_server

from safeproducer.spark.errors import KafkaWriteError
from safeproducer.spark.task import Task, write_task
from safeproducer.spark.worker_producers import producers
from safeproducer.telemetry.instrumentor import SafeProducerInstrumentor
from safeproducer.testing import FakeCluster
from tests.contract.support import poll_until
from tests.spark.arrow import rows
from tests.spark.conftest import MakeOptions

TASK = Task(0, 0)
CALLED: list[int] = []
SERVED: list[Any] = []


def note() -> None:
    CALLED.append(len(producers._idle))


def fail() -> None:
    raise LookupError("no exporter")


def export() -> None:
    """As in docs/operate/spark.md."""
    SafeProducerInstrumentor().instrument(meter_provider=MeterProvider([PrometheusMetricReader()]))
    SERVED.append(start_http_server(0))


COLLECTOR = "OTEL_EXPORTER_OTLP_ENDPOINT"
PUSHING: list[Any] = []


def push() -> None:
    """Metrics and traces, to the collector that OpenTelemetry's own variable names."""
    meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter(), export_interval_millis=100)])
    traces = TracerProvider()
    traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=100))
    PUSHING.extend((meters, traces))
    SafeProducerInstrumentor().instrument(meter_provider=meters, tracer_provider=traces)


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, bytes]]]:
    """Path and body of what a collector's stand-in got; its exporters end with it."""
    got: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv(COLLECTOR, f"http://127.0.0.1:{server.server_port}")
    yield got
    while PUSHING:
        PUSHING.pop().shutdown()
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    CALLED.clear()
    producers._begun.clear()
    yield
    SafeProducerInstrumentor().uninstrument()


def on_worker(function: Any) -> dict[str, str]:
    return {"safeproducer_spark_on_worker": f"{__name__}:{function.__name__}"}


def test_a_worker_calls_the_function_once_before_its_first_producer(cluster: FakeCluster, options: MakeOptions) -> None:
    """However many tasks it has, and sets of options; a child of the process calls it again."""
    for more in ({}, {}, {"kafka_linger_ms": 7}):
        write_task([rows(0, 3)], options(**on_worker(note), **more), TASK)
    assert CALLED == [0]
    producers._begun = {(os.getpid() + 1, name) for _, name in producers._begun}
    write_task([rows(0, 3)], options(**on_worker(note)), TASK)
    assert len(CALLED) == 2


@pytest.mark.parametrize(
    ("name", "said"), [(f"{__name__}:fail", "no exporter"), ("no.such.module:function", "No module named 'no'")]
)
def test_a_function_that_fails_ends_the_task(name: str, said: str, cluster: FakeCluster, options: MakeOptions) -> None:
    """Its name, the host, and what it raised; and it is called again in the next attempt."""
    for _ in range(2):
        with pytest.raises(KafkaWriteError, match=f"safeproducer.spark.on.worker={name} failed on .*: {said}"):
            write_task([rows(0, 3)], options(safeproducer_spark_on_worker=name), TASK)


def test_prometheus_reads_what_a_worker_delivered(cluster: FakeCluster, options: MakeOptions) -> None:
    assert write_task([rows(0, 321)], options(**on_worker(export)), TASK).delivered == 321
    ((server, thread),) = SERVED
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=10) as answer:
            told = answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
    sent = [line for line in told.splitlines() if line.startswith("messaging_client_sent_messages_total")]
    assert sum(float(line.rpartition(" ")[2]) for line in sent) == 321, told[:2000]


def test_a_collector_gets_what_a_worker_delivered(options: MakeOptions, collected: list[tuple[str, bytes]]) -> None:
    """By OTLP: the count of records, and a span for each."""
    assert write_task([rows(0, 321)], options(**on_worker(push)), TASK).delivered == 321
    (worker,) = producers._idle.values()
    poll_until(worker.kafka, lambda: counted(collected) == 321 and spans(collected) == 321, 30)


def counted(collected: list[tuple[str, bytes]]) -> float:
    bodies = [body for path, body in list(collected) if path == "/v1/metrics"]
    total = 0.0
    for of_resource in ExportMetricsServiceRequest.FromString(bodies[-1]).resource_metrics if bodies else ():
        for metric in (one for scope in of_resource.scope_metrics for one in scope.metrics):
            if metric.name == "messaging.client.sent.messages":
                total += sum(point.as_int or point.as_double for point in metric.sum.data_points)
    return total


def spans(collected: list[tuple[str, bytes]]) -> int:
    told = [ExportTraceServiceRequest.FromString(body) for path, body in list(collected) if path == "/v1/traces"]
    return sum(len(scope.spans) for one in told for resource in one.resource_spans for scope in resource.scope_spans)
