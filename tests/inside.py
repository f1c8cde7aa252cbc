"""The one door by which tests and benchmarks look inside a producer; its own names are not a subclass's to touch."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka

from safeproducer import SafeProducer
from safeproducer import producer as of_producer
from safeproducer.pipeline.cluster.cluster_view import ClusterView
from safeproducer.pipeline.lanes.batch_lane import BatchLane
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


def fatal_planter() -> Callable[[SafeProducer | BatchLane], None]:
    """Makes librdkafka raise a fatal error in a producer or in one of its batch lanes, by a function that it
    exports."""
    libraries = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs").glob("librdkafka*")
    library = ctypes.CDLL(str(next(libraries)))
    library.rd_kafka_test_fatal_error.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
    out_of_order_sequence_number = 45

    def plant(owner: SafeProducer | BatchLane) -> None:
        after_object_header = (
            id(owner.client.native if isinstance(owner, BatchLane) else engine_of(owner).route.native) + 16
        )
        handle = ctypes.c_void_p.from_address(after_object_header).value
        assert library.rd_kafka_test_fatal_error(handle, out_of_order_sequence_number, b"planted") == 0

    return plant
