"""librdkafka's rolling windows, several as one."""

from __future__ import annotations

import random
from statistics import pstdev

import pytest

from safeproducer.kafka.rolling_window import RollingWindow, empty

QUANTILES = {"p50": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99, "p99_99": 99.99}


def percentile(values: list[int], percent: float) -> int:
    """The smallest value that is not below so many of a hundred."""
    rank = -(-len(values) * round(percent * 100) // 10_000)
    return sorted(values)[rank - 1]


def fields(values: list[int]) -> dict[str, int]:
    """The window that librdkafka would write of these samples, with a histogram that keeps each."""
    return {
        "min": min(values),
        "max": max(values),
        "avg": sum(values) // len(values),
        "sum": sum(values),
        "stddev": round(pstdev(values)),
        **{name: percentile(values, percent) for name, percent in QUANTILES.items()},
        "outofrange": 1,
        "hdrsize": 11_376,
        "cnt": len(values),
    }


def read(values: list[int]) -> RollingWindow:
    found = RollingWindow.read(fields(values))
    assert found is not None
    return found


@pytest.mark.parametrize("values", [[7], [1, 2, 3], list(range(1, 1000, 7)), [5] * 20 + [1_000_000]])
def test_one_window_is_itself(values: list[int]) -> None:
    assert read(values).written() == fields(values)


def test_counts_are_exact_and_percentiles_between_the_true_one_and_the_largest() -> None:
    """Whatever the parts are like: few and many samples, near and far."""
    chance = random.Random(1)
    for _ in range(200):
        parts = [
            [int(chance.lognormvariate(chance.uniform(2, 9), 0.5)) for _ in range(chance.choice((1, 3, 40)))]
            for _ in range(chance.randint(2, 6))
        ]
        windows = [read(part) for part in parts]
        whole = windows[0]
        for window in windows[1:]:
            whole += window
        told, truth = whole.written(), fields([value for part in parts for value in part])
        for exact in ("min", "max", "avg", "sum", "cnt"):
            assert told[exact] == truth[exact]
        assert told["outofrange"] == len(parts)
        assert told["stddev"] == pytest.approx(truth["stddev"], rel=0.05, abs=2)
        for name, percent in QUANTILES.items():
            assert truth[name] <= told[name] <= max(percentile(part, percent) for part in parts)


def test_many_windows_take_no_more_room_than_their_values() -> None:
    """An hour of ticks."""
    whole = read([1, 2, 3])
    for _ in range(5000):
        whole += read([1, 2, 3])
    assert len(whole.values) <= 3
    assert whole.written() == fields([1, 2, 3] * 5001) | {"outofrange": 5001}


def test_what_is_empty_or_malformed_is_no_window() -> None:
    none = empty(fields([1]))
    assert none == dict.fromkeys(fields([1]), 0) | {"hdrsize": 11_376}
    for wrong in (none, {}, None, 5, {"cnt": 1}, {**fields([1]), "p50": None}, {**fields([1]), "stddev": "1"}):
        assert RollingWindow.read(wrong) is None
