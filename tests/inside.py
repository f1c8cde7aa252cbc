"""The one door by which tests and benchmarks look inside a producer; its own names are not a subclass's to touch."""

from __future__ import annotations

from typing import Any

from safeproducer import SafeProducer
from safeproducer import producer as of_producer
from safeproducer.pipeline.cluster.cluster_view import ClusterView
from safeproducer.pipeline.record import DeliveryCallback, ReportNumbers
from safeproducer.policy.types import TopicPartition
from safeproducer.policy.window import Window


def engine_of(producer: SafeProducer) -> Any:
    """The engine of `producer`."""
    return of_producer.engine_of(producer)


def settings_of(producer: SafeProducer) -> Any:
    """The checked settings of `producer`."""
    return producer._SafeProducer__settings  # type: ignore[attr-defined]


def hold(numbers: ReportNumbers, report: DeliveryCallback) -> int:
    """The number of `report`, for one more record, as `Intake._append` holds it."""
    number = id(report)
    numbers.uses[number] += 1
    numbers.reports[number] = report
    return number


_window = ClusterView.window


def of_whoever_said_most(
    self: ClusterView, tp: TopicPartition, max_age: float, now: float
) -> tuple[Window, int | None, int]:
    """A bug to plant in place of ClusterView.window(): not only the leader is believed."""
    found, *rest = _window(self, tp, max_age, now)
    said = [info.windows[tp[0]].window for info in self._brokers.values() if tp[0] in info.windows]
    return (max([found, *said], key=lambda window: window.size), *rest)  # type: ignore[return-value]
