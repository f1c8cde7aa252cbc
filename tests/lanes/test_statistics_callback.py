"""stats_cb: one document for all lanes. What each lane sent is in it, also when that lane is gone."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from safeproducer.testing import FakeCluster
from tests.lanes.conftest import BATCH, Changes, Make
from tests.lanes.traffic import Traffic

INTERVAL_MS = 200
OUT_OF_ORDER_SEQUENCE_NUMBER = 45


class Documents(list[Any]):
    """A stats_cb that keeps what it was told."""

    def __call__(self, text: str) -> None:
        self.append(json.loads(text))

    @property
    def sent(self) -> int:
        """Records that were put into requests."""
        return int(self[-1]["txmsgs"]) if self else 0

    def check(self, topic: str) -> None:
        """The sums agree with each other, and no count ever went back; librdkafka itself forgets bootstrap brokers."""
        for earlier, later in pairwise(self):
            for count in ("txmsgs", "txmsg_bytes"):
                assert later[count] >= earlier[count], count
            for name in set(earlier["brokers"]) & set(later["brokers"]):
                if earlier["brokers"][name]["nodeid"] < 0:
                    continue
                assert later["brokers"][name]["tx"] >= earlier["brokers"][name]["tx"]
        last = self[-1]
        partitions = last["topics"][topic]["partitions"].values()
        assert sum(entry["txmsgs"] for entry in partitions) == last["txmsgs"]
        assert sum(broker["tx"] for broker in last["brokers"].values()) == last["tx"]
        assert len({one["name"] for one in self}) == 1
        assert [one["age"] for one in self] == sorted(one["age"] for one in self)


def test_all_lanes_are_counted(cluster: FakeCluster, make: Make) -> None:
    """With the order of keys: each record once, by topic, partition and broker, and no record too many."""
    cluster.create_topic("t", 2)
    documents = Documents()
    producer = make(safeproducer_lanes=3, stats_cb=documents, statistics_interval_ms=INTERVAL_MS)
    load = Traffic(producer, "t")
    load.send(40 * BATCH)
    load.finish()
    assert producer.snapshot().lanes == 3
    load.until(lambda: documents.sent == 40 * BATCH and documents[-1]["msg_cnt"] == 0)  # sent, and answered too
    documents.check("t")
    last = documents[-1]
    assert sum(broker["req"]["Produce"] for broker in last["brokers"].values()) == producer.snapshot().handed_over
    assert last["msg_size"] == 0
    assert any(one["msg_cnt"] > 20 * BATCH for one in documents)


def test_records_that_wait_for_a_quota_are_counted(cluster: FakeCluster, make: Make) -> None:
    """Records that are in no native producer, by the direct lane's documents: they were librdkafka's own before."""
    cluster.create_topic("t")
    documents = Documents()
    producer = make(
        safeproducer_mode="auto",
        safeproducer_ordering="partition",
        stats_cb=documents,
        statistics_interval_ms=INTERVAL_MS,
    )
    load = Traffic(producer, "t")
    load.send(1)
    load.finish()
    cluster.set_throttle(3000)
    load.send(1)
    load.until(lambda: producer.snapshot().throttled_brokers)
    load.send(30)
    cluster.set_throttle(0)
    load.until(lambda: documents and documents[-1]["msg_cnt"] == 30)  # else the one before has no report yet
    partitions = documents[-1]["topics"]["t"]["partitions"].values()
    assert sum(entry["msgq_cnt"] for entry in partitions) == documents[-1]["msg_cnt"] == producer.snapshot().held == 30
    assert documents[-1]["msg_max"] == 100_000
    load.finish()


def test_a_lane_that_is_replaced_leaves_its_counts(cluster: FakeCluster, make: Make, changes: Changes) -> None:
    """The first one too, which tells: its place is taken, and the application goes on to be told, of errors as well."""
    cluster.create_topic("t")
    documents, errors = Documents(), []
    producer = make(
        safeproducer_lanes=1, error_cb=errors.append, stats_cb=documents, statistics_interval_ms=INTERVAL_MS
    )
    load = Traffic(producer, "t")
    load.send(8 * BATCH)
    load.finish()
    load.until(lambda: documents.sent == 8 * BATCH)
    cluster.fail_next("Produce", OUT_OF_ORDER_SEQUENCE_NUMBER)
    load.send(BATCH)
    load.until(lambda: [event.after for event in changes.lanes] == [0, 1])
    before = len(documents)
    load.send(4 * BATCH)
    load.finish()
    load.until(lambda: documents.sent >= 12 * BATCH)
    assert len(documents) > before
    documents.check("t")
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
    documents.check("t")
