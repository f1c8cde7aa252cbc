"""What `scripts/bench spark` makes of the figures that its sessions print."""

from __future__ import annotations

import statistics
from typing import Any
from unittest import mock

import psutil
import pytest

from benchmarks import spark_triggers, spark_writes
from benchmarks.interleaved import Row, Spread
from benchmarks.load import VoidError
from benchmarks.spark_session import cpu
from benchmarks.spark_triggers import Block
from benchmarks.spark_variants import NO_OP_SINK, SINK, SOURCE, SPARK, STOCK, Comparison
from benchmarks.spark_writes import Cpu, Run

# --- micro-batches ---------------------------------------------------------------------------------------------------


def test_triggers_are_grouped_by_round_without_those_that_warm_up() -> None:
    """The first one is told by itself; lines may come in any order."""
    took = [900.0, 1.0, 1.0, 1.0, 1.0, 10.0, 20.0, 30.0]
    lines = [{"round": number, "name": SINK.name, "milliseconds": took, "found": None} for number in (1, 0)]
    lines[0]["milliseconds"] = [x + 1 for x in took]
    with mock.patch.object(spark_triggers, "session", return_value=(lines, 0.1)):
        rounds, strangers = spark_triggers.measured({})
    assert strangers == 0.1
    assert rounds == [{SINK.name: Block(900.0, [10.0, 20.0, 30.0])}, {SINK.name: Block(901.0, [11.0, 21.0, 31.0])}]


def test_triggers_that_lack_rows_are_void() -> None:
    """A log may have more: a trigger that was under way at the end."""
    line = {"round": 0, "name": SINK.name, "milliseconds": [1.0] * 7, "found": 7 * spark_triggers.ROWS - 1}
    with (
        mock.patch.object(spark_triggers, "session", return_value=([line], 0.1)),
        pytest.raises(VoidError, match="the log"),
    ):
        spark_triggers.measured({})
    with mock.patch.object(
        spark_triggers, "session", return_value=([line | {"found": 7 * spark_triggers.ROWS + 50}], 0.1)
    ):
        assert len(spark_triggers.measured({})[0]) == 1


def test_a_door_is_compared_with_the_no_op_sink_of_its_round() -> None:
    """The geometric mean of the rounds' ratios meets the bars; a door without a no-op sink has none."""
    rounds = [
        {SINK.name: Block(500.0, [2.0, 2.0]), NO_OP_SINK: Block(100.0, [1.0, 1.0])},
        {SINK.name: Block(700.0, [16.0, 16.0]), NO_OP_SINK: Block(100.0, [2.0, 2.0])},
    ]
    triggers, bars = spark_triggers.evaluated(rounds)
    assert [one.name for one in triggers] == [SINK.name, NO_OP_SINK]
    assert [(bar.measured, bar.passed) for bar in bars] == [(pytest.approx(4.0), False)] * 2
    sink, idle = triggers
    assert (sink.first.median, sink.median.median) == (600.0, 9.0)
    assert sink.to_idle is not None
    assert sink.to_idle.median == pytest.approx(4.0)
    assert (idle.to_idle, idle.p90_to_idle) == (None, None)
    text = spark_triggers.described(triggers).splitlines()
    assert text[2].split()[1:4] == ["600", "9", "9"]


def test_p90_is_that_of_the_later_triggers() -> None:
    """Of ten equal steps the ninth, of few the nearest between them."""
    assert Block(1000.0, [float(x) for x in range(11)]).p90 == 9.0
    assert Block(1000.0, [1.0, 2.0]).p90 == pytest.approx(1.9)


# --- writes ----------------------------------------------------------------------------------------------------------


def line(number: int, name: str, found: int = 1000, **figures: float) -> dict[str, Any]:
    """What a session prints of one write."""
    parts = {"seconds": 1.0, "jvm": 0.1, "librdkafka": 0.2, "python": 0.3}
    return {"round": number, "name": name, "found": found, **parts, **figures}


def test_writes_are_grouped_by_round_without_those_that_warm_up() -> None:
    """Rounds before the first one have negative numbers."""
    lines = [line(-1, "a", seconds=9.0), line(1, "a", seconds=2.0), line(0, "a"), line(0, "b", python=0.4)]
    with mock.patch.object(spark_writes, "session", return_value=(lines, 0.1)):
        rounds, strangers = spark_writes.written({"rows": 1000})
    assert strangers == 0.1
    cpu = Cpu(0.1, 0.2, 0.3)
    assert rounds == [{"a": Run(1.0, cpu), "b": Run(1.0, Cpu(0.1, 0.2, 0.4))}, {"a": Run(2.0, cpu)}]


@pytest.mark.parametrize("found", [999, 1001])
def test_writes_of_other_than_all_rows_are_void(found: int) -> None:
    """Also while they warm up."""
    with (
        mock.patch.object(spark_writes, "session", return_value=([line(-1, "a", found)], 0.1)),
        pytest.raises(VoidError, match=f"1000 rows written, the log got {found} more"),
    ):
        spark_writes.written({"rows": 1000})


def run(seconds: float, cpu: float) -> Run:
    """All of its CPU is Python's."""
    return Run(seconds, Cpu(0.0, 0.0, cpu))


ROUNDS = [
    {SINK.name: run(1.0, 2.0), STOCK.name: run(1.0, 1.0), SPARK.name: run(4.0, 1.0)},
    {SINK.name: run(1.0, 8.0), STOCK.name: run(4.0, 1.0), SPARK.name: run(4.0, 1.0)},
]


def test_ratios_are_means_within_rounds() -> None:
    """Only of variants that were run; throughput and CPU have bars of their own, by distance."""
    comparisons = [
        Comparison(SINK, STOCK, near=(2.5, 3.0), far=(1.5, None)),
        Comparison(SOURCE, STOCK, near=(1.0, 1.0)),
        Comparison(SINK, SPARK),
    ]
    ratios, bars = spark_writes.compared(comparisons, ROUNDS, 0.0, 1000)
    assert [row.title for row in ratios] == [f"{SINK.name} / {STOCK.name}", f"{SINK.name} / {SPARK.name}"]
    assert ratios[0].throughput.median == pytest.approx(2.0)
    assert ratios[0].cpu.median == pytest.approx(4.0)
    assert [(bar.limit, bar.at_least, bar.passed) for bar in bars] == [(2.5, True, False), (3.0, False, False)]
    _, far = spark_writes.compared(comparisons, ROUNDS, 100.0, 1000)
    assert [(bar.limit, bar.at_least, bar.passed) for bar in far] == [(1.5, True, True)]


def test_speeds_are_rows_a_second_and_microseconds_a_row() -> None:
    """By name; each part of the CPU is a mean over the rounds."""
    runs = [{"a": Run(1.0, Cpu(0.001, 0.002, 0.003))}, {"a": Run(2.0, Cpu(0.003, 0.002, 0.001))}]
    (speed,) = spark_writes.speeds(runs, 1000)
    assert speed.name == "a"
    assert speed.rate.median == pytest.approx(statistics.median([1000, 500]))
    assert (speed.cpu.jvm, speed.cpu.librdkafka, speed.cpu.python) == pytest.approx((2.0, 2.0, 2.0))
    assert speed.cpu.total == pytest.approx(6.0)
    one = Spread(1.0, 1.0, 1.0)
    text = spark_writes.described(spark_writes.Writes("rows", 1000, 0.0, [speed], [Row("a / b", one, one)]))
    assert text.splitlines()[2].split()[-4:] == ["6.00", "2.00", "2.00", "2.00"]
    assert text.splitlines()[-1].split()[:3] == ["a", "/", "b"]


# --- CPU -------------------------------------------------------------------------------------------------------------


class Process:
    """A JVM; `times` are read one after the other, None when it is gone by then."""

    def __init__(self, *times: float | None) -> None:
        self.times = list(times)

    def name(self) -> str:
        return "java"

    def cpu_times(self) -> Any:
        if (user := self.times.pop(0)) is None:
            raise psutil.NoSuchProcess(1)
        return mock.Mock(user=user, system=0.0)


def watched(*children: list[Process]) -> cpu.Watch:
    """A process that has these children: each list is what one look finds, before or after times are read."""
    root = mock.Mock(spec=psutil.Process)
    root.children.side_effect = children
    return cpu.Watch(root)


def test_a_process_that_ends_or_begins_while_times_are_read_is_read_again() -> None:
    """One of them would be missing."""
    parent, child, new = Process(1.0, 5.0, 6.0), Process(None), Process(2.0)
    watch = watched([parent, child], [parent], [parent, new], [parent, new], [parent, new])
    assert watch.now().jvm == pytest.approx(8.0)


def test_the_time_of_a_process_that_has_ended_still_counts() -> None:
    """Spark's daemon ignores how its workers end: without it the difference of two readings was negative, and a run of
    ten minutes for nothing."""
    daemon, worker = Process(1.0, 2.0), Process(7.0)
    watch = watched([daemon, worker], [daemon, worker], [daemon], [daemon])
    before = watch.now()
    assert (watch.now() - before).total == pytest.approx(1.0)
