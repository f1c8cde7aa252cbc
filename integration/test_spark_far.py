"""A query on real Spark far from its broker: the producer IDs that it reports are those that the broker remembers."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from integration import spark_endurance
from integration.conftest import TopicFactory
from integration.kafka.cluster import KafkaCluster
from integration.kafka.poll import until
from integration.spark import run_script
from integration.spark_endurance import REPORTS
from integration.tap import Tap

PARTITIONS = 3
ONE_WAY = 0.025
"""Seconds of the long link."""
BATCHES, MOST_BATCHES = 8, 60
WORKERS = 2


@pytest.mark.timeout(180)
def test_far_away_a_query_takes_the_producer_ids_that_it_reports(
    kafka_tapped: KafkaCluster, tap: Tap, topic: TopicFactory, tmp_path: Path
) -> None:
    """Its workers have several each, as each lane has one. After some micro-batches the last report names those, and no
    others, that the broker remembers; a lane that was made a moment ago has told of none and has written nothing."""
    name, reports = topic(PARTITIONS, on=kafka_tapped), tmp_path / "reports"
    tap.delay(ONE_WAY)
    reports.touch()
    settings = {
        "folder": str(tmp_path),
        "doors": {
            "sink": {
                "kafka.bootstrap.servers": kafka_tapped.bootstrap,
                "kafka.batch.size": "20000",
                "safeproducer.ordering": "key",
                "topic": name,
            }
        },
        "batches": MOST_BATCHES,
        "rows": 20_000,
        "trigger": "0 seconds",
    }
    (tmp_path / "settings.json").write_text(json.dumps(settings))

    def run() -> Any:
        script, arguments = Path(spark_endurance.__file__), [str(tmp_path / "settings.json")]
        return run_script(script, arguments, tmp_path, environment={REPORTS: str(reports)}, timeout=150)

    def remembered() -> set[int]:
        states = (kafka_tapped.admin.describe_producers(name, number) for number in range(PARTITIONS))
        return {state.producer_id for partition in states for state in partition}

    def agreed() -> bool:
        lines = reports.read_text(encoding="utf-8").splitlines(keepends=True)
        if len(lines) <= BATCHES or not lines[-1].endswith("\n"):
            return False
        last, found = json.loads(lines[-1]), remembered()
        told = len(last["producer_ids"]), last["ids_used"], last["ids_per_hour"]
        seen[:] = last["batch_id"], len(found), *told
        return len(found) > WORKERS and set(last["producer_ids"]) == found and set(told) == {len(found)}

    seen: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        query = pool.submit(run)
        try:
            has_agreed = until(lambda: agreed() or (query.done() and "never"), "the broker knows what is told", 120)
        finally:
            (tmp_path / "end").touch()
    done = query.result()
    assert done.returncode == 0, done.stderr[-5000:]
    assert has_agreed is True, (seen, done.stderr[-5000:])
