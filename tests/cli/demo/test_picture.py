"""The picture of the demonstration has heights in proportion and visible gaps; and the percentiles beside it."""

from types import SimpleNamespace
from typing import Any

from safeproducer.cli.common.stop import StopRequest
from safeproducer.cli.demo.command import Result, picture
from safeproducer.cli.demo.experiment import Line


def test_gaps_and_peaks_are_visible() -> None:
    """Nothing at all has a character of its own, one record another, and the largest count the highest."""
    assert picture([0, 1, 16, 64], 64, plain=False) == "·▁▄█"
    assert picture([0, 1, 16, 64], 64, plain=True) == " .=@"
    assert picture([0, 0], 0, plain=False) == "··"


def test_percentiles_are_nearest_rank() -> None:
    """p50 and p95 of 1..100 ms are the 50th and the 95th; a single value is all of them; failed records have none."""

    def result(*milliseconds: int) -> Result:
        failed = Line(0, b"", b"")
        records = [
            Line(0, b"", b"", accepted_at=1, reported_at=1 + each / 1000, fate="delivered") for each in milliseconds
        ]
        experiment: Any = SimpleNamespace(records=[failed, *records], stop=StopRequest(), seconds=1.0)
        return Result(experiment, {}, [], 0.0)

    assert [result(*range(100, 0, -1)).percentile(percent) for percent in (50, 95)] == [50.0, 95.0]
    assert [result(7).percentile(percent) for percent in (50, 95)] == [7.0, 7.0]
    assert result().percentile(50) is None
