"""Measures one collection of metrics: 10 producers with 1 000 partitions each, and the longest produce() meanwhile."""

from __future__ import annotations

import argparse
import threading
import time
from statistics import median

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from benchmarks.table import table
from safeproducer import SafeProducer
from safeproducer.telemetry import OpenTelemetryMetrics

PRODUCERS, PARTITIONS = 10, 1_000
ROUNDS = 10
TOPIC = "bench-collecting"


def main() -> None:
    argparse.ArgumentParser(prog="python -m benchmarks.collecting", description=__doc__).parse_args()
    collections, longest = measured()
    times = f"{median(collections) * 1000:.1f}", f"{max(collections) * 1000:.1f}", f"{longest * 1000:.1f}"
    print(f"No brokers, {PRODUCERS} producers of {PARTITIONS} partitions, {ROUNDS} collections")
    print(table(("median ms", "longest ms", "longest produce() ms"), [times]))


def measured() -> tuple[list[float], float]:
    """(seconds of each collection, of the longest produce() meanwhile)."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    hook = OpenTelemetryMetrics(provider)
    config = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    producers = [SafeProducer(config, hooks=[hook]) for _ in range(PRODUCERS)]
    for producer in producers:
        for number in range(PARTITIONS):
            producer.produce(TOPIC, b"x", partition=number)
    collections, calls, ended = [], [0.0], threading.Event()
    thread = threading.Thread(target=produce, args=(producers[0], calls, ended))
    thread.start()
    for _ in range(ROUNDS):
        time.sleep(0.05)
        began = time.perf_counter()
        reader.get_metrics_data()
        collections.append(time.perf_counter() - began)
    ended.set()
    thread.join()
    for producer in producers:
        producer.purge()
        producer.close(0)
    provider.shutdown()
    return collections, max(calls)


def produce(producer: SafeProducer, calls: list[float], ended: threading.Event) -> None:
    """At an even pace until `ended`; each call's seconds are appended."""
    number = 0
    while not ended.is_set():
        began = time.perf_counter()
        producer.produce(TOPIC, b"x", partition=number % PARTITIONS)
        calls.append(time.perf_counter() - began)
        number += 1
        if number % 10 == 0:
            producer.poll(0)
            time.sleep(0.0005)


if __name__ == "__main__":
    main()
