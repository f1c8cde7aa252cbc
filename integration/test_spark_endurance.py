"""A query that lives long: the memory of its workers, and the producer IDs of triggers that are far apart.

The long form.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import pytest

from integration import spark_endurance
from integration.conftest import TopicFactory
from integration.kafka.cluster import KafkaCluster
from integration.spark import Finished, run_script
from integration.spark_endurance import REPORTS

DOORS = ("sink", "source")
ROWS = 10
BATCHES = 1000
SLOW_BATCHES = 4
FLAT = 1.05
"""Memory in the last quarter to that in the second one; the first one is where caches fill."""
PAUSES = "micro-batches of this query are more than a minute apart"
"""How the note about them begins."""

pytestmark = [pytest.mark.full, pytest.mark.timeout(1300)]


def endured(kafka: KafkaCluster, topic: str, scratch: Path, batches: int, trigger: str, door: str) -> Finished:
    """The query that wrote so many micro-batches."""
    (scratch / "reports").touch()
    settings = {
        "folder": str(scratch),
        "doors": {door: {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic}},
        "batches": batches,
        "rows": ROWS,
        "trigger": trigger,
    }
    (scratch / "settings.json").write_text(json.dumps(settings))
    done = run_script(
        Path(spark_endurance.__file__),
        [str(scratch / "settings.json")],
        scratch,
        environment={REPORTS: str(scratch / "reports")},
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert len(done.tasks) >= batches, done.stderr[-5000:]
    return done


@pytest.mark.parametrize("door", DOORS)
def test_memory_of_the_workers_is_flat_over_a_thousand_micro_batches(
    kafka: KafkaCluster, topic: TopicFactory, tmp_path: Path, door: str
) -> None:
    """All of them together, as the system counts it; they are the same processes from the second quarter on."""
    found = endured(kafka, topic(2), tmp_path, BATCHES, "0 seconds", door).tasks[:BATCHES]
    assert {line["report"]["delivered"] for line in found} == {ROWS}
    quarters = [found[start : start + BATCHES // 4] for start in range(0, BATCHES, BATCHES // 4)]
    (workers,) = {tuple(sorted(line["memory"])) for quarter in quarters[1:] for line in quarter}
    assert len(workers) == found[-1]["report"]["writers"] == 2
    taken = [fmean(sum(line["memory"].values()) for line in quarter) for quarter in quarters]
    print("MB by quarter", [round(one / 1e6, 1) for one in taken])
    assert taken[3] / taken[1] <= FLAT, taken


@pytest.mark.parametrize("door", DOORS)
def test_slow_triggers_take_the_producer_ids_that_are_reported(
    kafka: KafkaCluster, topic: TopicFactory, tmp_path: Path, door: str
) -> None:
    """Spark ends workers that idle for a minute, so each trigger after 75 s has new ones. Only the first pause may be
    shorter: Spark counts intervals from the epoch. Also where each commit has a process of its own, the IDs of the hour
    add up, and what to do is told once."""
    name = topic(2)
    done = endured(kafka, name, tmp_path, SLOW_BATCHES, "75 seconds", door)
    reports = [line["report"] for line in done.tasks[:SLOW_BATCHES]]
    known = {state.producer_id for number in range(2) for state in kafka.admin.describe_producers(name, number)}
    assert len(known) >= sum(report["writers"] for report in reports[1:])
    assert reports[-1]["ids_per_hour"] == len(known)
    assert {one for report in reports for one in report["producer_ids"]} <= known
    assert (done.stdout + done.stderr).count(PAUSES) == 1, done.stdout + done.stderr
