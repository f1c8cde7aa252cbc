"""How much a task has under way: never more than brokers take within the rows' deadline."""

from __future__ import annotations

import pytest

from safeproducer.spark import pace
from safeproducer.spark.pace import AT_ONCE, Pace, most_rows
from safeproducer.spark.task import Task, write_task
from safeproducer.testing import FakeCluster
from tests.spark.arrow import numbers, rows
from tests.spark.conftest import MakeOptions

KB = 1024


def test_a_few_bytes_may_always_be_under_way() -> None:
    found = Pace(60.0, 0.0)
    found.sent(AT_ONCE // KB, AT_ONCE)
    assert found.is_to_look()
    assert not found.is_ahead(AT_ONCE // KB, 1000.0)
    assert not found.is_to_look()
    found.sent(1, KB)
    assert found.is_ahead(AT_ONCE // KB + 1, 1000.0)


def test_more_may_be_under_way_where_brokers_take_it_in_a_part_of_the_deadline() -> None:
    """At the rate of the attempt so far."""
    found = Pace(60.0, 100.0)
    found.sent(1_000_000, 1_000_000 * KB)
    assert not found.is_ahead(199_000, 130.0), "801 000 in 30 s: 200 250 in 7.5 s"
    assert found.is_ahead(201_000, 130.0)


def test_no_more_is_under_way_than_was_taken() -> None:
    """Brokers with a quota take some seconds' worth at once, and then throttle."""
    found = Pace(60.0, 100.0)
    found.sent(100_000, 100_000 * KB)
    assert not found.is_ahead(50_000, 100.5)
    assert found.is_ahead(51_000, 100.5)


@pytest.mark.parametrize(("deadline", "times"), [(4.0, 1), (30.0, 2), (60.0, 4), (600.0, 4)])
def test_in_the_first_second_more_may_be_under_way(deadline: float, times: int) -> None:
    """Quick brokers must not wait until it is known how quick they are, and slow ones take that within the deadline."""
    found = Pace(deadline, 100.0)
    rows = times * AT_ONCE // KB
    found.sent(rows + 1, (rows + 1) * KB)
    assert not found.is_ahead(rows, 100.9)
    assert found.is_ahead(rows + 1, 100.9)
    assert found.is_ahead(rows, 101.1) is (times > 1)


def test_a_look_costs_little() -> None:
    """It is for megabytes of rows, and a large Arrow batch goes in parts."""
    found = Pace(60.0, 0.0)
    found.sent(1, AT_ONCE // 2 - 1)
    assert not found.is_to_look()
    assert most_rows(10_000, AT_ONCE) == 10_000
    assert most_rows(10_000, 20 * AT_ONCE) == 500
    assert most_rows(2, 100 * AT_ONCE) == 1


def test_a_task_has_no_more_under_way_than_slow_brokers_take_in_time(
    cluster: FakeCluster, options: MakeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take about 0.6 MB a second here. The buffer took all 5 MB at once, and rows expired in it."""
    monkeypatch.setattr(pace, "AT_ONCE", 200_000)
    monkeypatch.setattr(pace, "_LOOK_EVERY", 50_000)
    made = options(safeproducer_spark_deadline=4, kafka_batch_size=40_000, safeproducer_mode="passthrough")
    write_task([rows(0, 1)], made, Task(0, 0))  # its producer knows the topic then
    cluster.delay(0.2, api="Produce")
    totals = write_task([rows(start, 1000, 1000) for start in range(1, 5001, 1000)], made, Task(0, 0))
    assert (totals.rows, totals.delivered) == (5000, 5000)
    assert totals.seconds_without_room > 0
    assert numbers(cluster) == list(range(5001))
