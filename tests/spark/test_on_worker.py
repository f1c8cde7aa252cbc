"""Each worker calls a function once, which may export what its producers count."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import start_http_server

from safeproducer.spark.errors import KafkaWriteError
from safeproducer.spark.task import Task, write_task
from safeproducer.spark.worker_producers import producers
from safeproducer.telemetry.instrumentor import SafeProducerInstrumentor
from safeproducer.testing import FakeCluster
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
    """By the function that the document has."""
    assert write_task([rows(0, 321)], options(**on_worker(export)), TASK).delivered == 321
    ((server, thread),) = SERVED
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=10) as answer:
            told = answer.read().decode()
    finally:
        server.shutdown()
        thread.join(10)
    sent = [line for line in told.splitlines() if line.startswith("messaging_client_sent_messages_total")]
    assert sum(float(line.rpartition(" ")[2]) for line in sent) == 321, told[:2000]
