"""stats_cb: a document of each lane, as each native client has one."""

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from safeproducer.testing import FakeCluster
from tests.lanes.conftest import BATCH, Changes, Make
from tests.lanes.traffic import Traffic

INTERVAL_MS = 200
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
CLIENT_ID = 'the "first"'


class Documents(list[Any]):
    """A stats_cb that keeps what it was told."""

    def __call__(self, text: str) -> None:
        self.append(json.loads(text))

    def by_name(self) -> dict[str, list[Any]]:
        """Those of each native client."""
        found = defaultdict(list)
        for one in self:
            found[one["name"]].append(one)
        return found

    @property
    def sent(self) -> int:
        """Records that were put into requests."""
        return sum(told[-1]["txmsgs"] for told in self.by_name().values())

    @property
    def senders(self) -> int:
        """Clients that sent any."""
        return sum(told[-1]["txmsgs"] > 0 for told in self.by_name().values())


@pytest.mark.parametrize(("mode", "lanes", "clients"), [("held", 3, 3), ("auto", 2, 3)], ids=["held", "auto"])
def test_each_lane_tells_what_it_sent(cluster: FakeCluster, make: Make, mode: str, lanes: int, clients: int) -> None:
    """At the application's interval, which is two ticks of the direct lane and the first batch lane."""
    interval = 1000
    cluster.create_topic("t", 2)
    documents = Documents()
    producer = make(
        safeproducer_mode=mode,
        safeproducer_lanes=lanes,
        client_id=CLIENT_ID,
        stats_cb=documents,
        statistics_interval_ms=interval,
    )
    load = Traffic(producer, "t")
    load.until(lambda: documents.senders > 1, backlog=2 * clients * BATCH)
    load.finish()
    load.until(lambda: documents.sent == load.accepted and min(map(len, documents.by_name().values())) >= 4)
    told = documents.by_name()
    assert len(told) == clients
    assert {(one["client_id"], one["type"]) for one in documents} == {(CLIENT_ID, "producer")}
    for each in told.values():
        apart = [(later["ts"] - earlier["ts"]) / 1000 for earlier, later in pairwise(each)]
        assert all(0.6 * interval < one < 1.6 * interval for one in apart), apart


def test_a_lane_that_takes_anothers_place_tells(cluster: FakeCluster, make: Make, changes: Changes) -> None:
    """The other one tells no more. The application goes on to be told of errors as well."""
    cluster.create_topic("t")
    documents, errors = Documents(), []
    producer = make(
        safeproducer_lanes=1, error_cb=errors.append, stats_cb=documents, statistics_interval_ms=INTERVAL_MS
    )
    load = Traffic(producer, "t")
    load.send(8 * BATCH)
    load.finish()
    load.until(lambda: documents.sent == 8 * BATCH)
    (former,) = documents.by_name()
    cluster.fail_next("Produce", OUT_OF_ORDER_SEQUENCE_NUMBER)
    load.send(BATCH)
    load.until(lambda: [event.after for event in changes.lanes] == [0, 1])
    load.send(4 * BATCH)
    load.finish()
    load.until(lambda: documents.sent >= 12 * BATCH)
    documents.clear()
    load.until(lambda: len(documents) >= 3)
    (present,) = documents.by_name()
    assert present != former
    assert documents.sent == 4 * BATCH
    errors.clear()
    cluster.stop(1)
    cluster.stop(2)
    load.until(lambda: errors)
    assert producer.snapshot().last_error is not None


def test_flush_waits_for_no_lanes_statistics(cluster: FakeCluster, make: Make) -> None:
    """Lanes tick on, and those that idle are looked at now and then only: their ticks are no records."""
    cluster.create_topic("t")
    documents = Documents()
    lanes = 5
    producer = make(
        safeproducer_mode="auto",
        safeproducer_lanes=lanes,
        safeproducer_window=lanes,
        stats_cb=documents,
        statistics_interval_ms=50,
    )
    load = Traffic(producer, "t")
    load.until(lambda: producer.snapshot().lanes == lanes, backlog=2 * lanes * BATCH)
    load.finish()
    for _ in range(5):
        load.send(1)
        load.finish(5)
    load.until(lambda: documents.sent == load.accepted)
