"""Metrics of a producer for Prometheus: while the example runs, `curl localhost:9464/metrics` shows them.

    pip install ".[otel,testing]" opentelemetry-exporter-prometheus
    python examples/metrics.py                                       # on a cluster inside the process, which throttles
    python examples/metrics.py --bootstrap-servers localhost:9092    # on yours

Prints where records ended and for how long they were held. Exits with 0 when all were delivered, else with 1. Other
pipelines take an exporter of their own, such as that for OTLP, in place of the one for Prometheus.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from safeproducer import SafeProducer

try:
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from opentelemetry.sdk.metrics import MeterProvider
    from prometheus_client import REGISTRY, start_http_server

    from safeproducer.telemetry import OpenTelemetryMetrics
except ModuleNotFoundError as error:
    sys.exit(f"{error.name} is not installed: pip install '.[otel]' opentelemetry-exporter-prometheus")


@contextmanager
def brokers(given: str | None, topic: str) -> Iterator[str]:
    """Those that were given, else some that answer each request with a throttle time of half a second."""
    if given:
        yield given
        return
    from safeproducer.testing import FakeCluster  # noqa: PLC0415 - the only one here that needs the extra `testing`

    with FakeCluster() as cluster:
        cluster.create_topic(topic, partitions=4)
        cluster.set_throttle(500)
        yield cluster.bootstrap


def produce(producer: SafeProducer, topic: str, rate: float, seconds: float) -> None:
    """Send `rate` records a second."""
    began = time.monotonic()
    for number in range(int(rate * seconds)):
        producer.produce(topic, key=f"customer-{number % 100}", value=b"an order")
        producer.poll(max(0.0, began + number / rate - time.monotonic()))


def main() -> int:
    parser = argparse.ArgumentParser(description="Show the metrics of a producer to Prometheus.")
    parser.add_argument("--bootstrap-servers", help="default: a cluster that throttles, inside this process")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--port", type=int, default=9464, help="of the metrics; 0: any free one")
    parser.add_argument("--rate", type=float, default=200, help="records a second")
    parser.add_argument("--seconds", type=float, default=3)
    args = parser.parse_args()

    provider = MeterProvider([PrometheusMetricReader()])  # an application does this once
    server, thread = start_http_server(args.port, "127.0.0.1")
    print(f"metrics: http://127.0.0.1:{server.server_port}/metrics", flush=True)
    with brokers(args.bootstrap_servers, args.topic) as bootstrap:
        config = {"bootstrap.servers": bootstrap, "client.id": "metrics", "safeproducer.ordering": "key"}
        producer = SafeProducer(config, hooks=[OpenTelemetryMetrics(provider)])
        produce(producer, args.topic, args.rate, args.seconds)
        report = producer.close(30)
    for metric in REGISTRY.collect():
        if metric.name in ("safeproducer_records_ended", "safeproducer_hold_time_seconds"):
            for sample in metric.samples:
                labels = {name.rpartition("_")[2]: value for name, value in sample.labels.items() if "otel" not in name}
                print(f"{sample.name} {sample.value:g} {labels}")
    provider.shutdown()
    server.shutdown()
    server.server_close()
    thread.join()
    return 0 if report.accepted == report.delivered else 1


if __name__ == "__main__":
    sys.exit(main())
