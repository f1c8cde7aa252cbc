"""A query whose rows have an identity, and whose driver and workers are killed: readers that drop copies have each row.

The long form (`--full`) has 400 000 rows and kills ten drivers. By both doors.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Event, Thread

import psutil  # type: ignore[import-untyped]
import pytest

from integration.kafka.cluster import KafkaCluster
from integration.kafka.poll import until
from integration.spark import task_workers
from integration.spark_running import RunningQuery

EACH = 3.0
"""Seconds between two workers that are killed, or more: Spark gives a task up after some attempts."""
MOST = 3
"""Killed between two reports."""
PATIENCE = 400
"""Seconds for a micro-batch whose workers are killed: a new one has to import on a busy machine."""
FILES_A_DRIVER = 2
IDS = {"safeproducer.spark.row.id": "position"}

pytestmark = pytest.mark.timeout(1_800)


class Killer:
    """Kills any worker, whatever it does, from time to time."""

    def __init__(self, query: RunningQuery) -> None:
        self._query, self._dice, self._end = query, Random(1), Event()
        self.killed = 0
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        told, left = -1, 0
        while not self._end.wait(EACH):
            if (now := len(self._query.reports())) > told:
                told, left = now, MOST
            driver = self._query.driver
            with suppress(psutil.NoSuchProcess, IndexError):
                if driver is not None and left:
                    self._dice.choice(task_workers(psutil.Process(driver.pid))).kill()
                    self.killed, left = self.killed + 1, left - 1


def kill_driver(query: RunningQuery) -> None:
    """In the middle of a micro-batch; then start it again."""
    assert query.driver is not None
    query.add_file_and_meet_it(PATIENCE)
    tree = psutil.Process(query.driver.pid).children(recursive=True)
    query.kill()
    until(lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in tree), "all is gone")
    query.start()


def rows_told(query: RunningQuery) -> int:
    """A micro-batch may be told twice, once by each of two drivers."""
    return sum({report["batch_id"]: report["rows"] for report in query.reports()}.values())


@pytest.mark.parametrize(
    ("door", "rows", "drivers"),
    [
        pytest.param("sink", 4_000, 2, id="short"),
        pytest.param("sink", 20_000, 10, id="sink", marks=pytest.mark.full),
        pytest.param("source", 20_000, 10, id="source", marks=pytest.mark.full),
    ],
)
def test_behind_dropped_copies_each_row_is_there_once(
    kafka: KafkaCluster, tmp_path: Path, door: str, rows: int, drivers: int
) -> None:
    """A row's copies have one `sp-id`, which no other row has."""
    name = f"copies-{door}-{rows}"
    query = RunningQuery(kafka, tmp_path, door, (f"{name}-a", f"{name}-b"), "local[2,8]", options=IDS, rows=rows)
    query.prepare()
    began = time.monotonic()
    try:
        query.start()
        with Killer(query) as killer:
            for _ in range(drivers):
                for _ in range(FILES_A_DRIVER - 1):
                    query.add_file()
                kill_driver(query)
            query.add_file()  # Spark's source waits for one where its driver died after it had noted the last one
            while (told := rows_told(query)) < query.files * rows:
                query.until(lambda: rows_told(query) > told, "it goes on", PATIENCE)
        query.end()
    finally:
        query.kill()
    found: dict[bytes | None, tuple[int, int]] = {}
    copies = 0
    for _, file, row, record in query.records():
        sp_id = dict(record.headers or ())["sp-id"]
        copies += sp_id in found
        assert found.setdefault(sp_id, (file, row)) == (file, row)
    met = {"killed": killer.killed, "drivers": drivers, "copies": copies, "seconds": round(time.monotonic() - began)}
    print(json.dumps({"rows": len(found), **met}))
    assert Counter(found.values()) == Counter(itertools.product(range(query.files), range(rows)))
    assert copies
    assert killer.killed
