"""A query that lives long: the memory of its workers, and the producer IDs of triggers that are far apart.

The long form.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from integration import spark_endurance
from integration.conftest import TopicFactory
from integration.kafka.cluster import KafkaCluster
from integration.spark import run_script
from integration.spark_endurance import ROWS

BATCHES = 1000
SLOW_BATCHES = 4
FLAT = 1.05
"""Memory in the last quarter to that in the second one; the first one is where caches fill."""

pytestmark = [pytest.mark.full, pytest.mark.timeout(1300)]


def lines(kafka: KafkaCluster, topic: str, scratch: Path, batches: int, trigger: str) -> list[dict[str, Any]]:
    """What so many micro-batches printed."""
    arguments = [kafka.bootstrap, topic, str(scratch), str(batches), trigger]
    done = run_script(Path(spark_endurance.__file__), arguments, scratch, timeout=1200)
    assert done.returncode == 0, done.stderr[-5000:]
    assert len(done.tasks) >= batches, done.stderr[-5000:]
    return done.tasks[:batches]


def test_memory_of_the_workers_is_flat_over_a_thousand_micro_batches(
    kafka: KafkaCluster, topic: TopicFactory, tmp_path: Path
) -> None:
    """All of them together, as the system counts it; they are the same processes from the second quarter on."""
    found = lines(kafka, topic(2), tmp_path, BATCHES, "0 seconds")
    assert {line["report"]["delivered"] for line in found} == {ROWS}
    quarters = [found[start : start + BATCHES // 4] for start in range(0, BATCHES, BATCHES // 4)]
    workers = {tuple(sorted(line["memory"])) for quarter in quarters[1:] for line in quarter}
    assert len(workers) == 1
    taken = [fmean(sum(line["memory"].values()) for line in quarter) for quarter in quarters]
    print("MB by quarter", [round(one / 1e6, 1) for one in taken])
    assert taken[3] / taken[1] <= FLAT, taken


def test_slow_triggers_take_the_producer_ids_that_are_reported(
    kafka: KafkaCluster, topic: TopicFactory, tmp_path: Path
) -> None:
    """Spark ends workers that idle for a minute, so each trigger after 75 s has new ones. Only the first pause may be
    shorter: Spark counts intervals from the epoch."""
    name = topic(2)
    reports = [line["report"] for line in lines(kafka, name, tmp_path, SLOW_BATCHES, "75 seconds")]
    known = {state.producer_id for number in range(2) for state in kafka.admin.describe_producers(name, number)}
    assert len(known) >= sum(report["writers"] for report in reports[1:])
    assert reports[-1]["ids_per_hour"] == len(known)
    assert {one for report in reports for one in report["producer_ids"]} <= known
