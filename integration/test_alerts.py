"""The figures of producers at their default settings, in real time, and which alerts Prometheus makes of them."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from safeproducer import SafeProducer
from safeproducer.telemetry import OpenTelemetryMetrics
from safeproducer.testing import FakeCluster
from tests.telemetry import dashboard
from tests.telemetry.rules import SCRAPE, fired

TOLD = 120
"""Seconds after which an alert is there."""
WRONG = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "old",
}


class Scraped:
    """A producer with default settings, whose figures are read as Prometheus reads them."""

    def __init__(self, cluster: FakeCluster, **settings: Any) -> None:
        self._reader = InMemoryMetricReader()
        self._provider = MeterProvider([self._reader])
        hooks = [OpenTelemetryMetrics(meter_provider=self._provider)]
        config = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, **settings}
        self.producer = SafeProducer(config, hooks=hooks)
        self.series: dict[str, list[float | None]] = {}
        self.scrapes = 0

    def scrape(self) -> None:
        """One value more of each metric."""
        data = self._reader.get_metrics_data()
        found = {
            f"{dashboard.prometheus(dashboard.BY_NAME[metric.name])}{self._labels(point.attributes)}": point.value
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
            if hasattr(point, "value")
        }
        for name in found.keys() | self.series.keys():
            row = self.series.setdefault(name, [None] * self.scrapes)
            row.append(found.get(name))
        self.scrapes += 1

    @staticmethod
    def _labels(attributes: Any) -> str:
        labels = [*{"job": "j", "instance": "i"}.items(), *attributes.items()]
        return "{" + ",".join(f'{dashboard.label(name)}="{value}"' for name, value in labels) + "}"

    def close(self) -> None:
        self.producer.close(0)
        self._provider.shutdown()


@contextmanager
def loaded(one: Scraped, pause: Callable[[], float]) -> Iterator[None]:
    """Records, one after each pause."""
    ends = threading.Event()

    def load() -> None:
        while not ends.is_set():
            one.producer.produce("orders", b"x")
            one.producer.poll(0)
            ends.wait(pause())

    thread = threading.Thread(target=load)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def test_alerts_come_within_two_minutes_and_none_of_a_healthy_load() -> None:
    """All brokers stop; the password is wrong from the start; bursts and rests while leaders move."""
    with FakeCluster() as stopping, FakeCluster(users={"alice": "new"}) as refusing, FakeCluster() as healthy:
        for cluster in (stopping, refusing, healthy):
            cluster.create_topic("orders", partitions=3)
        scraped = [Scraped(stopping), Scraped(refusing, **WRONG), Scraped(healthy)]
        began = time.monotonic()

        def odd() -> float:
            return (0.0005, 0.2, 20.0)[int(time.monotonic() - began) // 12 % 3]

        paces: list[Callable[[], float]] = [lambda: 0.1, lambda: 0.1, odd]
        with loaded(scraped[0], paces[0]), loaded(scraped[1], paces[1]), loaded(scraped[2], paces[2]):
            for number in range(3 + TOLD // SCRAPE):
                time.sleep(max(0.0, began + number * SCRAPE - time.monotonic()))
                for one in scraped:
                    one.scrape()
                if number == 1:
                    for broker in stopping.brokers:
                        stopping.stop(broker)
                if number % 2:
                    healthy.move_leader("orders", number % 3)
        for one in scraped:
            one.close()
    ends = (scraped[0].scrapes - 1) * SCRAPE
    assert fired(scraped[0].series, 0, 2 * SCRAPE) == set()
    away, delivers = {"SafeproducerNoBrokerAnswers"}, {"SafeproducerNothingDelivered"}
    assert away <= fired(scraped[0].series, 0, SCRAPE + TOLD) <= away | delivers
    login = {"SafeproducerLoginRefused"}
    assert login | away <= fired(scraped[1].series, 0, TOLD) <= login | away | delivers
    assert fired(scraped[2].series, 0, ends) == set()
