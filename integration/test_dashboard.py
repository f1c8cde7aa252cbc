"""The dashboard and the alert rules on a real Prometheus. It scrapes the example during a throttle, and a producer in
trouble. The rules are those of docs/operate/alerts.yml, but for the time for which they must hold: seconds here."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, start_http_server

from integration.kafka.poll import until
from integration.kafka.ports import free_ports
from safeproducer import SafeProducer
from safeproducer.telemetry import OpenTelemetryMetrics
from safeproducer.testing import FakeCluster
from tests.telemetry import dashboard, picture

ROOT = Path(__file__).parents[1]
OUT_OF_ORDER = 45
PICTURE, REST = os.environ.get("SAFEPRODUCER_PICTURE"), 10
"""The file that a picture of the dashboard is drawn to, and how many seconds it shows before and after the troubles."""
CONFIG = """
global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}
rule_files: [alerts.yml]
scrape_configs:
  - {{job_name: throttled, static_configs: [{{targets: ["127.0.0.1:{}"]}}]}}
  - {{job_name: in trouble, static_configs: [{{targets: ["127.0.0.1:{}"]}}]}}
"""


def program(name: str) -> str:
    found = shutil.which(name, path=f"{ROOT / '.cache/prometheus/usr/bin'}{os.pathsep}{os.environ['PATH']}")
    return found or pytest.skip("no Prometheus: scripts/test provides it")


class Prometheus:
    """One that runs in `folder` and scrapes two ports."""

    def __init__(self, folder: Path, *targets: int) -> None:
        (folder / "prometheus.yml").write_text(CONFIG.format(*targets))
        (folder / "alerts.yml").write_text(dashboard.rules(held="3s"))
        (self._port,) = free_ports(1)
        options = (f"--web.listen-address=127.0.0.1:{self._port}", f"--storage.tsdb.path={folder / 'data'}")
        command = (program("prometheus"), "--config.file=prometheus.yml", "--log.level=warn", *options)
        self.process = subprocess.Popen(command, cwd=folder)

    def ask(self, path: str, **arguments: str | float) -> Any:
        """The data of its answer; None before it is ready."""
        connection = HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            connection.request("GET", f"/api/v1/{path}?{urlencode(arguments)}")
            answer = connection.getresponse()
            return json.load(answer)["data"] if answer.status == 200 else None
        except ConnectionError:
            return None
        finally:
            connection.close()

    def values(self, query: str) -> list[Any]:
        found: list[Any] = (self.ask("query", query=query) or {"result": []})["result"]
        return found

    def firing(self) -> set[tuple[str, str]]:
        """(job, alert)."""
        found = (self.ask("alerts") or {"alerts": []})["alerts"]
        return {(it["labels"]["job"], it["labels"]["alertname"]) for it in found if it["state"] == "firing"}

    def lines(self, query: str, legend: str, began: float, ended: float) -> list[picture.Line]:
        found = self.ask("query_range", query=query, start=began, end=ended, step=0.25)["result"]
        lines = []
        for line in found:
            name = legend
            for label, value in line["metric"].items():
                name = name.replace(f"{{{{{label}}}}}", value)
            lines.append((name, [(at - began, float(value)) for at, value in line["values"] if value != "NaN"]))
        return lines


@pytest.fixture
def throttled() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        cluster.create_topic("orders", partitions=4)
        yield cluster


@pytest.fixture
def example(throttled: FakeCluster) -> Iterator[int]:
    """The port of the example's metrics."""
    arguments = ("--port", "0", "--seconds", "100", "--bootstrap-servers", throttled.bootstrap)
    command = (sys.executable, ROOT / "examples/metrics.py")
    with subprocess.Popen((*command, *arguments), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(re.findall(r":(\d+)/metrics", process.stdout.readline())[0])
        finally:
            process.kill()


@pytest.fixture
def trouble() -> Iterator[tuple[FakeCluster, SafeProducer, int]]:
    """Brokers, a producer, and the port of its metrics."""
    registry = CollectorRegistry()
    provider = MeterProvider([PrometheusMetricReader(registry=registry)])
    server, thread = start_http_server(0, "127.0.0.1", registry)
    with FakeCluster() as cluster:
        cluster.create_topic("trouble")
        config = {"bootstrap.servers": cluster.bootstrap, "safeproducer.fatal": "renew", "log_level": 0}
        hook = OpenTelemetryMetrics(provider)
        producer = SafeProducer(config, hooks=[hook])
        transactional = SafeProducer({**config, "transactional.id": "tx"}, hooks=[hook])
        yield cluster, producer, server.server_port
        transactional.close(10)
        for broker in cluster.brokers:
            cluster.resume(broker)
        producer.close(10)
    provider.shutdown()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def prometheus(tmp_path: Path, example: int, trouble: tuple[FakeCluster, SafeProducer, int]) -> Iterator[Prometheus]:
    running = Prometheus(tmp_path, example, trouble[2])
    yield running
    running.process.terminate()
    assert running.process.wait(30) == 0


def test_promtool_accepts_the_rules() -> None:
    """Those that are shipped."""
    subprocess.run([program("promtool"), "check", "rules", dashboard.ALERTS], check=True)


def test_each_query_finds_data_and_the_right_alerts_fire(
    prometheus: Prometheus, throttled: FakeCluster, trouble: tuple[FakeCluster, SafeProducer, int]
) -> None:
    """A throttle fires one alert; unknown outcomes and a silent broker fire two others for the other process."""
    cluster, producer, _ = trouble
    producer.produce("trouble", b"1")
    assert producer.flush(30) == 0
    zero = 'safeproducer_records_ended_total{job="in trouble", safeproducer_outcome="unknown"} == 0'
    until(lambda: prometheus.values(zero), "the first count of the producer")
    until(lambda: prometheus.values('safeproducer_records_ended_total{job="throttled"} > 300'), "the example's records")
    began = time.time()
    if PICTURE:
        time.sleep(REST)
    assert prometheus.firing() == set()

    throttled.set_throttle(1_000)
    cluster.fail_next("Produce", OUT_OF_ORDER)
    producer.produce("trouble", b"2")
    until(lambda: producer.poll(0.1) or producer.snapshot().renewals, "another native producer")
    producer.produce("trouble", b"3")
    assert producer.flush(30) == 0
    for broker in cluster.brokers:
        cluster.pause(broker)
    expected = {
        ("throttled", "SafeproducerThrottled"),
        ("in trouble", "SafeproducerUnknownOutcomes"),
        ("in trouble", "SafeproducerRecordsFail"),
        ("in trouble", "SafeproducerRecordsHeld"),
    }

    def fired() -> bool:
        producer.produce("trouble", b"4")
        return prometheus.firing() >= expected

    until(fired, "the alerts", timeout=60, interval=0.2)
    assert prometheus.firing() == expected

    def asked(query: str) -> str:
        return query.replace("$job", ".*").replace("$__rate_interval", "5s")

    queries = [asked(query) for panel in dashboard.panels() for query, _ in panel.queries]
    sides = re.compile(r" > 0 unless (?:on \([^)]*\) )?")
    queries += [side for alert in dashboard.alerts() for side in sides.split(alert.query)]
    assert [query for query in queries if not prometheus.values(query)] == []

    if PICTURE:
        time.sleep(REST)
        ended = time.time()
        lines = [
            (
                panel,
                [line for query, name in panel.queries for line in prometheus.lines(asked(query), name, began, ended)],
            )
            for panel in dashboard.panels()
        ]
        Path(PICTURE).write_text(picture.svg(lines, ended - began), encoding="utf-8")
