"""Measures hooks: SafeProducer with each of them against SafeProducer without any, keyword form, 10 partitions."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace

import structlog
from confluent_kafka.cimpl import Producer
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler, TraceIdRatioBased

from benchmarks import load as forms
from benchmarks.brokers import broker
from benchmarks.interleaved import Block, Spread, cpu_ratio, measure, rate, throughput_ratio
from benchmarks.interleaved import Row as Compared
from benchmarks.load import Load, VoidError, block
from benchmarks.table import disturbed, ratio, table
from safeproducer import Hook, SafeProducer
from safeproducer.kafka.native import KafkaError, Message
from safeproducer.records import Record
from safeproducer.telemetry import OpenTelemetryMetrics
from safeproducer.telemetry.opentelemetry import OpenTelemetryHook
from safeproducer.telemetry.structlog import StructlogHook

PARTITIONS = 10
RECORDS = 4_000
WARM_UP = 3
NO_HOOK = "no hook"
TRACEPARENT = 55
"""Bytes of such a header."""


class RecordHook(Hook):
    """Asks for every record and does nothing with it."""

    def record_accepted(self, record: Record) -> None:
        """Do nothing."""

    def record_resolved(self, record: Record, error: KafkaError | None, message: Message) -> None:
        """Do nothing."""


class ClientHook(Hook):
    """Asks only for what is not one record's."""

    def client_error(self, *event: object) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Row:
    title: str
    throughput: Spread
    cpu: Spread
    microseconds_per_record: Spread


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.telemetry", description=__doc__)
    parser.add_argument("--mock", action="store_true", help="librdkafka's mock cluster instead of real Kafka")
    parser.add_argument("--quick", action="store_true", help="9 rounds")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--rounds", type=int, help="rounds to measure (default: 25)")
    parser.add_argument("--value", type=int, default=100, help="bytes of a value (default: 100)")
    options = parser.parse_args()
    rounds = options.rounds or (9 if options.quick else 25)
    with broker(mock=options.mock) as where:
        load = Load.make("bench-telemetry", PARTITIONS, options.value, RECORDS)
        where.create_topic(load.topic, PARTITIONS)
        with ExitStack() as stack:
            variants = blocks({"bootstrap.servers": where.bootstrap, "enable.idempotence": True}, load, stack)
            measured = measure(variants, rounds, WARM_UP, seed=1, label="hooks")
            kind = where.kind
            bulk = bulk_rows({"bootstrap.servers": where.bootstrap, "enable.idempotence": True}, load, stack, rounds)
    rows = [
        Row(
            title,
            throughput_ratio(measured, title, NO_HOOK),
            cpu_ratio(measured, title, NO_HOOK),
            Spread.of([round_[title].cpu / load.records * 1e6 for round_ in measured.timings]),
        )
        for title in variants
    ]
    if options.json:
        result = {"broker": kind, "rounds": rounds, "disturbance": measured.disturbance}
        print(
            json.dumps(
                {**result, "rows": [asdict(row) for row in rows], "bulk": [asdict(row) for row in bulk]}, indent=2
            )
        )
        return
    cells = [
        (row.title, ratio(row.throughput), ratio(row.cpu), f"{row.microseconds_per_record.median:.1f}") for row in rows
    ]
    print(f"Against {kind}, {rounds} rounds, blocks of {RECORDS} records of {options.value} B")
    print(f"{disturbed(measured.disturbance)}; no hook: {rate(measured, NO_HOOK, RECORDS).median:,.0f} records/s")
    print(table(("hook / no hook", "throughput", "CPU", "CPU us a record"), cells))
    cells = [(row.title, ratio(row.throughput), ratio(row.cpu)) for row in bulk]
    print(table(("produce_batch() of 1 000", "throughput", "CPU"), cells))


def blocks(config: dict[str, object], load: Load, stack: ExitStack) -> dict[str, Block]:
    """The variants; their producers are closed with `stack`."""

    def with_hooks(hooks: Iterable[Hook]) -> Block:
        return block(forms.keyword, stack.enter_context(SafeProducer(config, hooks=hooks)), load)

    logger = structlog.wrap_logger(structlog.PrintLogger(sys.stderr))
    return {
        "stock producer": block(forms.keyword, stack.enter_context(Producer(config)), load),
        NO_HOOK: with_hooks([]),
        "hook without record events": with_hooks([ClientHook()]),
        "no-op hook with record events": with_hooks([RecordHook()]),
        "metrics, no durations": metered(with_hooks, 0, stack),
        "metrics, durations of 1/64": metered(with_hooks, 1 / 64, stack),
        "metrics, nothing collects": with_hooks([OpenTelemetryMetrics()]),
        "structlog": with_hooks([StructlogHook(logger)]),
        "OpenTelemetry, no SDK": with_hooks([OpenTelemetryHook()]),
        "OpenTelemetry, sampler off": traced(with_hooks, ALWAYS_OFF, (0, 0), load.records),
        "OpenTelemetry, 1 % sampled": traced(
            with_hooks, TraceIdRatioBased(0.01), (1, load.records // 10), load.records
        ),
        "OpenTelemetry, all sampled": traced(with_hooks, ALWAYS_ON, (load.records, load.records), load.records),
    }


class Collected(MetricExporter):
    """Throws away what is collected."""

    def export(self, metrics_data: MetricsData, *_: object, **__: object) -> MetricExportResult:
        """All is well."""
        return MetricExportResult.SUCCESS

    def force_flush(self, *_: object) -> bool:
        """There is nothing."""
        return True

    def shutdown(self, *_: object, **__: object) -> None:
        """There is nothing."""


def metered(with_hooks: Callable[[Iterable[Hook]], Block], durations: float, stack: ExitStack) -> Block:
    """A block under a collector that looks each second."""
    provider = MeterProvider([PeriodicExportingMetricReader(Collected(), 1000)], shutdown_on_exit=False)
    stack.callback(provider.shutdown)
    return with_hooks([OpenTelemetryMetrics(provider, durations=durations)])


def bulk_rows(config: dict[str, object], load: Load, stack: ExitStack, rounds: int) -> list[Compared]:
    """Throughput of produce_batch() with a span for each call: against one header, and a span for each record."""

    def with_hooks(hooks: Iterable[Hook]) -> Block:
        return block(forms.batch, stack.enter_context(SafeProducer(config, hooks=hooks)), load)

    header = {"headers": [("source", b"x" * TRACEPARENT)]}
    with_header = replace(load, batches=[[{**each, **header} for each in batch] for batch in load.batches])
    calls = (len(load.batches), len(load.batches))
    one, each = "one header, no hook", 'bulk="off"'
    measured = measure(
        {
            one: block(forms.batch, stack.enter_context(SafeProducer(config)), with_header),
            'bulk="send"': traced(with_hooks, ALWAYS_ON, calls, load.records),
            each: traced(with_hooks, ALWAYS_ON, (load.records, load.records), load.records, bulk="off"),
        },
        rounds,
        WARM_UP,
        seed=1,
        label="bulk",
    )
    send = 'bulk="send"'
    return [
        Compared(f"{send} / {peer}", throughput_ratio(measured, send, peer), cpu_ratio(measured, send, peer))
        for peer in (one, each)
    ]


def traced(
    with_hooks: Callable[[Iterable[Hook]], Block],
    sampler: Sampler,
    expected: tuple[int, int],
    records: int,
    bulk: str = "send",
) -> Block:
    """A block that is void when the number of exported spans is not within `expected`."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    produce = with_hooks([OpenTelemetryHook(tracer_provider=provider, bulk=bulk)])

    def run() -> None:
        exporter.clear()
        produce()
        spans = len(exporter.get_finished_spans())
        if not expected[0] <= spans <= expected[1]:
            raise VoidError(f"{spans} spans for {records} records; expected between {expected[0]} and {expected[1]}")

    return run


if __name__ == "__main__":
    main()
