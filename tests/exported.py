"""What OpenTelemetry is told of producers, beside what they tell themselves at the same moment."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from safeproducer import Hook, SafeProducer
from safeproducer.telemetry import OpenTelemetryMetrics
from safeproducer.telemetry import conventions as names
from safeproducer.telemetry.opentelemetry import OpenTelemetryHook

Points = dict[str, dict[tuple[Any, ...], float]]
"""Instrument -> values of its attributes, in the order of their names -> value."""
LOOKS = 50
BLAMES = {
    "throttled": "throttle",
    "leader_silent": "silent",
    "window": "window",
    "producer_id_limit": "ids",
    "producer_id_quota": "id quota",
}
"""Reasons that blame somebody, and the mark of a case where that is right."""
UNTOLD = {"waiting", "expired", "refused", "no_broker"}
"""What health() says of records for which nothing is known, of those that have failed, and of no records."""


class Exported:
    """Hooks of the producers of one situation."""

    def __init__(self) -> None:
        self._reader, self._spans = InMemoryMetricReader(), InMemorySpanExporter()
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.hooks: list[Hook] = [
            OpenTelemetryMetrics(meters, partitions=True, durations=0),
            OpenTelemetryHook(tracers),
        ]
        self._compared = 0
        self._waited: set[str] = set()
        self._before: Counter[str] = Counter()

    def points(self) -> Points:
        data: Any = self._reader.get_metrics_data()
        return {
            metric.name: {
                tuple(value for _, value in sorted(point.attributes.items())): point.value
                for point in metric.data.data_points
            }
            for each in data.resource_metrics
            for scope in each.scope_metrics
            for metric in scope.metrics
        }

    def begin(self) -> None:
        """What records waited for up to now is over."""
        self._before = _seconds(self.points())
        self._spans.clear()

    def throttles(self, points: Points | None = None) -> bool:
        """Whether a broker does."""
        remaining = (points or self.points()).get(names.THROTTLE_REMAINING, {})
        return any(seconds > 0 for seconds in remaining.values())

    def agree(self, producers: Iterable[SafeProducer], marks: str) -> None:
        """Compare what was the same before and after the collection; `marks`: what may be blamed."""
        for _ in range(LOOKS):
            before, points = [_told(each) for each in producers], self.points()
            if before == [_told(each) for each in producers]:
                break
        else:
            return
        held, codes = set[str](), set[str]()
        windows: dict[tuple[Any, ...], int] = {}
        for _, rows, found, causes in before:
            held |= rows
            codes.update(causes)
            assert {*causes[:1]} - UNTOLD <= _held(points), (causes, points[names.HELD])
            windows.update((key, min(size, windows.get(key, size))) for key, size in found.items())
        unresolved = sum(count for count, *_ in before)
        assert _held(points) <= codes, (points[names.HELD], codes)
        assert points.get(names.WINDOW, {}) == windows
        assert sum(points[names.UNRESOLVED].values()) == unresolved == points[names.BUFFER_RECORDS][()]
        assert 0 <= points[names.BUFFER_BYTES][()] < points[names.BUFFER_LIMIT][()]
        throttles = self.throttles(points)
        assert "throttle" in marks if throttles else "throttled" not in held
        _blame_only(held | _held(points), marks)
        self._waited |= held
        self._compared += 1

    def over(self, marks: str, code: str | None, held: str) -> None:
        """Nothing waits any more. Spans and seconds name what records were seen to wait for, and nothing else."""
        points = self.points()
        for name in (names.HELD, names.UNRESOLVED, names.BUFFER_RECORDS):
            assert not any(points.get(name, {}).values()), (name, points[name])
        spans: dict[Any, Any] = {}
        for each in self._spans.get_finished_spans():
            told = each.attributes or {}
            assert (names.HOLD_REASON in told) == (names.HOLD_DURATION in told)
            if reason := told.get(names.HOLD_REASON):
                spans[reason] = max(told[names.HOLD_DURATION], spans.get(reason, 0.0))  # type: ignore[call-overload]
        seconds = _seconds(points)
        seconds.subtract(self._before)
        assert min(seconds.values(), default=0) >= 0, seconds
        _blame_only({*spans, *(reason for reason in seconds if seconds[reason])}, marks)
        assert self._compared
        for told in {held or str(code)} & {*self._waited, held}:
            assert spans.get(told, 0) > 0 < seconds[told], (spans, seconds)


def _seconds(points: Points) -> Counter[str]:
    """For how long partitions have waited, by the reason."""
    seconds: Counter[str] = Counter()
    for (*_, reason), value in points.get(names.HOLD_TIME, {}).items():
        seconds[reason] += value  # type: ignore[assignment]
    return seconds


def _blame_only(reasons: Iterable[str], marks: str) -> None:
    assert all(BLAMES[reason] in marks.split(", ") for reason in reasons if reason in BLAMES), (reasons, marks)


def _held(points: Points) -> set[str]:
    """What records wait for."""
    return {str(reason) for (*_, reason), count in points.get(names.HELD, {}).items() if count}


def _told(producer: SafeProducer) -> tuple[int, set[str], dict[tuple[Any, ...], int], list[str]]:
    account, health = producer.snapshot(), producer.health(unresolved_for=0)
    rows = {str(row.reason) for row in account.partitions if row.held}
    windows = {(each.topic, str(each.partition), each.source): each.size for each in account.windows}
    return account.unresolved, rows, windows, [reason.code for reason in health.reasons]
