"""Percentiles and pictures of delivery latencies."""

import pytest

from safeproducer.cli.demo.display import Latencies, bar


def test_percentiles_are_nearest_rank() -> None:
    """p50 and p95 of 1..100 ms are the 50th and the 95th; a single value is all of them."""
    latencies = Latencies()
    for number in range(100, 0, -1):
        latencies.add(number / 1000)
    assert latencies.percentile(50) == pytest.approx(0.050)
    assert latencies.percentile(95) == pytest.approx(0.095)
    single = Latencies()
    single.add(0.007)
    assert single.percentile(50) == single.percentile(95) == 0.007


def test_the_picture_shows_peaks() -> None:
    """One slow report among many stands out; bars are in proportion."""
    latencies = Latencies()
    for number in range(1000):
        latencies.add(1.0 if number == 500 else 0.001)
    line = latencies.sparkline(10, ascii_only=False)
    assert len(line) == 10
    assert line.index("█") == 5
    assert line.count("▁") == 9
    assert (bar(5, 10, 8, ascii_only=True), bar(0, 10, 8, ascii_only=True), bar(0, 0, 8, ascii_only=True)) == (
        "####",
        "",
        "",
    )
