"""One trace from an application's span, through the producer and the log, to the consumer that works on the record.

    pip install ".[otel]"
    python examples/tracing.py                                       # on a cluster inside the process
    python examples/tracing.py --bootstrap-servers localhost:9092    # on yours

Prints the trace. Exits with 0 when each record's trace reached its consumer, else with 1. A real application would
give the TracerProvider an exporter for its collector instead of the list used here.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from opentelemetry.propagate import extract
from opentelemetry.trace import SpanKind, Tracer

from safeproducer import SafeProducer

try:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from safeproducer.telemetry.opentelemetry import OpenTelemetryHook
except ModuleNotFoundError as error:
    sys.exit(f"{error.name} is not installed: pip install '.[otel]'")


def consume(bootstrap: str, partitions: list[TopicPartition], tracer: Tracer, wanted: set[str], seconds: float) -> int:
    """Work on the `wanted` records, each inside a span that continues the trace its headers carry."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "tracing-example", "enable.auto.commit": False})
    consumer.assign(partitions)
    deadline = time.monotonic() + seconds
    left = set(wanted)
    while left and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is None or message.error() is not None:
            continue
        key = (message.key() or b"").decode(errors="replace")
        if key in left:
            left.discard(key)
            with tracer.start_as_current_span(
                f"process {message.topic()}", context=extract(text_headers(message)), kind=SpanKind.CONSUMER
            ):
                pass  # the application's work
    consumer.close()
    return len(wanted) - len(left)


def text_headers(message: Any) -> dict[str, str]:
    """Headers as a propagator reads them: text."""
    return {name: value.decode(errors="replace") for name, value in message.headers() or [] if value is not None}


def show(spans: list[ReadableSpan], parent: int | None = None, depth: int = 0) -> int:
    """Print the spans below `parent` and return how deep they go."""
    deepest = depth
    for span in sorted(spans, key=lambda span: span.start_time or 0):
        if (span.parent.span_id if span.parent else None) == parent:
            took = ((span.end_time or 0) - (span.start_time or 0)) / 1e6
            where = {name.rsplit(".")[-1]: value for name, value in (span.attributes or {}).items() if "kafka" in name}
            print(f"{'  ' * depth}{span.name} ({span.kind.name.lower()}, {took:.1f} ms) {where or ''}".rstrip())
            deepest = max(deepest, show(spans, span.context.span_id if span.context else None, depth + 1))
    return deepest


def main() -> int:
    parser = argparse.ArgumentParser(description="Trace records from the application to the consumer.")
    parser.add_argument("--bootstrap-servers", help="default: librdkafka's mock cluster, inside this process")
    parser.add_argument("--topic", default="traced-orders")
    parser.add_argument("--records", type=int, default=3)
    parser.add_argument("--deadline", type=float, default=20, help="seconds to wait for each end")
    args = parser.parse_args()

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("examples.tracing")

    cluster = {"bootstrap.servers": args.bootstrap_servers} if args.bootstrap_servers else {"test.mock.num.brokers": 3}
    producer = SafeProducer({**cluster, "client.id": "tracing"}, hooks=[OpenTelemetryHook(provider)])
    run = time.time_ns()
    keys = {f"{run}-{number}" for number in range(args.records)}
    for key in sorted(keys):
        with tracer.start_as_current_span("checkout"):
            producer.produce(args.topic, key=key, value=b"an order")
    unanswered = producer.flush(args.deadline)
    consumed = 0
    if not unanswered:
        metadata = producer.list_topics(args.topic, timeout=args.deadline)
        bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in metadata.brokers.values())
        partitions = [TopicPartition(args.topic, n, OFFSET_BEGINNING) for n in metadata.topics[args.topic].partitions]
        consumed = consume(bootstrap, partitions, tracer, keys, args.deadline)
    producer.close(0)

    spans = list(exporter.get_finished_spans())
    depth = show(spans)
    traces = {span.context.trace_id for span in spans if span.context}
    print(f"{consumed} of {args.records} records reached the consumer; {unanswered} without a delivery report")
    return 0 if consumed == len(traces) == args.records and depth == 3 else 1


if __name__ == "__main__":
    sys.exit(main())
