"""Order of each key and exactly-once accounting over lanes, through everything that goes wrong."""

import time
from unittest import mock

import pytest

from safeproducer.policy.affinity import Affinity
from safeproducer.testing import FakeCluster
from tests.inside import engine_of
from tests.lanes.conftest import BATCH, LATE, RETAIN, Changes, Make
from tests.lanes.traffic import Traffic, batches, depths, most_unresolved

BACKLOG = 60 * BATCH
"""Records that wait while a load goes on, so that batches are ready for twenty lanes at once."""
FEW = 15 * BATCH
"""As many for a few lanes."""
OUT_OF_ORDER_SEQUENCE_NUMBER, NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_LEADER = 45, 20, 6
FEW_KEYS = 40
"""So few that most batches hold a key that is under way on some lane."""


def lanes_used(cluster: FakeCluster, topic: str, partition: int = 0) -> set[int]:
    """The producer IDs that wrote to a partition."""
    return {record.producer_id for record in cluster.log(topic, partition)}


def misfortunes(cluster: FakeCluster, make: Make) -> Traffic:
    """A load over several lanes and two partitions, through leader moves, cuts, lost acknowledgements and errors."""
    cluster.create_topic("t", 2, config={RETAIN: "20"})
    producer = make()
    load = Traffic(producer, "t", FEW_KEYS)
    load.until(lambda: producer.snapshot().lanes >= 8, backlog=BACKLOG)
    for partition in (0, 1):
        cluster.lose_acks(2, topic="t", partition=partition)
        load.keep(0.2, BACKLOG)
        cluster.move_leader("t", partition)
        load.keep(0.3, BACKLOG)
        cluster.cut()
        load.keep(0.2, BACKLOG)
        cluster.fail_next("Produce", NOT_LEADER, 3, topic="t", partition=partition)
        cluster.lose_acks(1)
        cluster.fail_next("Produce", NOT_ENOUGH_REPLICAS_AFTER_APPEND, 3)
        load.keep(0.3, BACKLOG)
    load.until(lambda: cluster.faults_left == 0, backlog=BACKLOG)
    assert set(load.finish()) == {"delivered"}
    return load


def test_moves_cuts_and_lost_acknowledgements(cluster: FakeCluster, make: Make) -> None:
    """All is delivered, once and in order."""
    load = misfortunes(cluster, make)
    assert len(lanes_used(cluster, "t")) > 2
    assert any(batch.duplicate for entry in cluster.journal("Produce") for batch in entry.batches)
    load.check(cluster, partitions=2)


def test_without_affinity_the_order_of_keys_is_lost(cluster: FakeCluster, make: Make) -> None:
    """The test above can fail: it does when keys are bound to no lane."""
    real_bind = Affinity.bind

    def any_lane(self: Affinity, key: bytes, lane: int) -> int:
        real_bind(self, key, lane)
        return lane

    with mock.patch.object(Affinity, "bind", any_lane):
        load = misfortunes(cluster, make)
    with pytest.raises(AssertionError, match="is behind number"):
        load.check(cluster, partitions=2)


def test_a_hot_key_among_others(cluster: FakeCluster, make: Make) -> None:
    """Nine of ten records have the same key, and the others use the other lanes."""
    cluster.create_topic("t", config={RETAIN: "20"})
    producer = make(safeproducer_lanes=4)
    load, hot = Traffic(producer, "t", 300, first=1), Traffic(producer, "t", 1)
    for _ in range(12):
        hot.send(9)
        load.send(1)
    for one in (load, hot):
        assert set(one.finish()) == {"delivered"}
    log = cluster.log("t")
    assert [record.value for record in log if record.key == b"k0"] == list(hot.ended)
    assert sorted(record.value or b"" for record in log) == sorted([*load.ended, *hot.ended])
    assert len({record.producer_id for record in log if record.key != b"k0"}) > 1


def test_lanes_grow_and_shrink(cluster: FakeCluster, make: Make, changes: Changes) -> None:
    """Up to the budget under load, down to one when they idle, up again, and no key notices."""
    cluster.create_topic("t", config={RETAIN: "20"})
    producer = make(safeproducer_producer_ids_per_hour=1_000_000)
    load = Traffic(producer, "t", 100)
    with mock.patch("safeproducer.policy.lanes.LONGEST_IDLE", 0.05):
        load.until(lambda: producer.snapshot().lanes >= 12, backlog=BACKLOG)
        load.until(lambda: producer.snapshot().lanes <= 4, backlog=2 * BATCH)
        load.until(lambda: producer.snapshot().lanes == 1)
    load.until(lambda: producer.snapshot().lanes >= 12, backlog=BACKLOG)
    assert set(load.finish()) == {"delivered"}
    grown = [event.after > event.before for event in changes.lanes]
    assert True in grown
    assert False in grown
    assert grown[-1]
    assert {event.reason for event in changes.lanes if event.after < event.before} == {"it was not needed any more"}
    load.check(cluster)


def test_records_whose_time_is_over_while_their_broker_hangs(cluster: FakeCluster, make: Make) -> None:
    """What was under way is unknown and stays in front of its successors; what waited was not written."""
    cluster.create_topic("t", config={RETAIN: "20"})
    producer = make(safeproducer_lanes=6, message_timeout_ms=800, socket_timeout_ms=20_000)
    load = Traffic(producer, "t", FEW_KEYS)
    load.until(lambda: most_unresolved(cluster, "t", LATE) == 6, backlog=BACKLOG)
    cluster.pause(cluster.leader("t")[0])
    paused_at = time.monotonic()
    load.until(lambda: time.monotonic() > paused_at + 1.2, backlog=BACKLOG)
    cluster.resume(cluster.leader("t")[0])
    load.keep(0.5, BACKLOG // 4)
    ended = load.finish()
    assert ended["unknown"] > 0
    assert ended["not_written"] > 0
    assert set(ended) == {"delivered", "unknown", "not_written"}
    load.check(cluster)


def test_ordering_none_spreads_one_key_over_lanes(cluster: FakeCluster, make: Make) -> None:
    """A single key fills the window; each record is delivered once, in whatever order."""
    cluster.create_topic("t", config={RETAIN: "20"})
    producer = make(safeproducer_ordering="none")
    load = Traffic(producer, "t", keys=1)
    load.until(lambda: most_unresolved(cluster, "t", LATE) == 20, backlog=BACKLOG)
    cluster.lose_acks(2)
    load.keep(3 * LATE, BACKLOG)
    assert set(load.finish()) == {"delivered"}
    assert most_unresolved(cluster, "t", LATE) == 20
    assert sorted(record.value or b"" for record in cluster.log("t")) == sorted(load.ended)


def test_ordering_partition_stays_on_one_lane(cluster: FakeCluster, make: Make, changes: Changes) -> None:
    """One producer ID, whatever the leader announces; nobody asks for that, and the whole partition is ordered."""
    cluster.create_topic("t", config={RETAIN: "20"})
    producer = make(safeproducer_ordering="partition")
    load = Traffic(producer, "t", FEW_KEYS)
    load.send(10 * BATCH)
    assert set(load.finish()) == {"delivered"}
    assert len({batch.producer_id for entry in cluster.journal("Produce") for batch in entry.batches}) == 1
    assert [record.value for record in cluster.log("t")] == list(load.ended)
    assert max(depth for _, depth in depths(batches(cluster, LATE))) <= 3
    assert changes.lanes == []
    assert producer.snapshot().lanes == 1
    assert cluster.journal("DescribeConfigs") == []


def test_purge_empties_all_lanes(cluster: FakeCluster, make: Make) -> None:
    """Not only the first one: nothing is left to wait for."""
    cluster.create_topic("t", config={RETAIN: "20"})
    producer = make(safeproducer_lanes=4)
    load = Traffic(producer, "t")
    load.until(lambda: most_unresolved(cluster, "t", LATE) == 4, backlog=FEW)
    load.finish()
    cluster.pause(cluster.leader("t")[0])
    load.send(8 * BATCH)
    load.until(lambda: producer.snapshot().held == 4 * BATCH)
    producer.purge()
    ended = load.finish(5)
    assert (ended["unknown"], ended["not_written"]) == (4 * BATCH, 4 * BATCH)
    cluster.resume(cluster.leader("t")[0])
    load.send(4 * BATCH)
    load.finish()
    load.check(cluster)


def test_a_record_of_unknown_outcome_keeps_its_key_on_its_lane(cluster: FakeCluster, make: Make) -> None:
    """Purged while its request is late, it is written behind nothing: its successor goes the same way, not by a lane
    whose request is sooner there."""
    cluster.create_topic("t", config={RETAIN: "20"})
    producer = make(safeproducer_lanes=2)
    load = Traffic(producer, "t")
    load.until(lambda: most_unresolved(cluster, "t", LATE) == 2, backlog=FEW)
    load.finish()
    lanes = engine_of(producer).dispatcher.lanes
    other, key = Traffic(producer, "t", 1, first=5000), Traffic(producer, "t", 1, first=6000)
    for late, one, under_way in ((0.2, other, 1), (0.8, key, 2)):
        cluster.delay(late, api="Produce", side="request")
        one.send(1)
        one.until(lambda under_way=under_way: sum(len(lane.batches) for lane in lanes) == under_way)  # type: ignore[misc]
        one.until(lambda: time.monotonic() > max(lane.used_at for lane in lanes) + 0.05)  # by when it has left
    producer.purge()
    cluster.delay(0, api="Produce", side="request")
    assert key.finish() == {"unknown": 1}
    key.send(1)
    assert key.finish() == {"delivered": 1, "unknown": 1}
    cluster.wait(lambda _: len(cluster.log("t")) == load.accepted + 3)
    assert [record.value for record in cluster.log("t") if record.key == b"k6000"] == list(key.ended)
    key.check(cluster)
