"""The one door by which tests and benchmarks look inside a producer; its own names are not a subclass's to touch."""

from __future__ import annotations

from typing import Any

from safeproducer import SafeProducer
from safeproducer import producer as of_producer
from safeproducer.pipeline.record import DeliveryCallback, ReportNumbers


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
