"""The picture of the demonstration has heights in proportion and visible gaps; and the percentiles beside it."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

from safeproducer.cli.common.stop import StopRequest
from safeproducer.cli.demo.command import document, percentile, picture
from safeproducer.cli.demo.experiment import Line


def test_gaps_and_peaks_are_visible() -> None:
    """Nothing at all has a character of its own, one record another, and the largest count the highest."""
    assert picture([0, 1, 16, 64], 64, plain=False) == "·▁▄█"
    assert picture([0, 1, 16, 64], 64, plain=True) == " .=@"
    assert picture([0, 0], 0, plain=False) == "··"


def test_percentiles_are_nearest_rank() -> None:
    """p50 and p95 of 1..100 ms are the 50th and the 95th; a single value is all of them; failed records have none."""
    assert [percentile(range(1, 101), percent) for percent in (50, 95)] == [50, 95]
    assert [percentile([7.0], percent) for percent in (50, 95)] == [7.0, 7.0]
    failed = Line(0, b"", b"")
    records = [failed, *(Line(0, b"", b"", 0, 1, 1 + each / 1000, "delivered") for each in (9, 5))]
    experiment: Any = SimpleNamespace(records=records, stop=StopRequest(), seconds=1.0, topic="t", failures=Counter())
    assert document(experiment, {}, [], 0.0)["latency_ms"] == {"p50": 5.0, "p95": 9.0}
    experiment.records = [failed]
    assert document(experiment, {}, [], 0.0)["latency_ms"] == {"p50": None, "p95": None}
