"""What a producer tells about itself: snapshot(), explain(), repr()."""

import dataclasses
import time

import pytest

from safeproducer import PartitionSnapshot, SafeProducer
from safeproducer.testing import FakeCluster
from tests.contract.support import send_one


def test_snapshot_counts_by_partition(producer: SafeProducer) -> None:
    producer.produce("snap", b"x", partition=2)
    producer.produce("snap", b"x", partition=2)
    producer.produce("snap", b"x", key=b"k")
    before = producer.snapshot()
    assert (before.accepted, before.unresolved, before.delivered) == (3, 3, 0)
    assert PartitionSnapshot("snap", 2, 2, 0, 0, 2) in before.partitions
    assert PartitionSnapshot("snap", -1, 1, 0, 0, 1) in before.partitions
    assert producer.flush(10) == 0
    after = producer.snapshot()
    assert (after.accepted, after.unresolved, after.delivered) == (3, 0, 3)
    assert sum(row.delivered for row in after.partitions) == 3
    assert all(row.partition >= 0 and row.unresolved == 0 for row in after.partitions)


def test_snapshot_is_a_frozen_value(producer: SafeProducer) -> None:
    taken = producer.snapshot()
    with pytest.raises(dataclasses.FrozenInstanceError):
        taken.accepted = 5  # type: ignore[misc]
    producer.produce("snap", b"x")
    assert taken.accepted == 0
    assert producer.flush(10) == 0


def test_repr_says_who_where_and_how_much(producer: SafeProducer) -> None:
    servers = producer.snapshot().bootstrap_servers
    send_one(producer, "snap", b"x")
    summary = "1 accepted, 1 delivered, 0 failed, 0 unresolved"
    assert repr(producer) == f"<SafeProducer 'rdkafka' to {servers} open: {summary}>"
    producer.close()
    assert repr(producer) == f"<SafeProducer 'rdkafka' to {servers} closed: {summary}>"


def test_an_unknown_partition_fails_on_no_partition(producer: SafeProducer) -> None:
    """A record that never got a partition is counted as failed all the same.

    Of a topic that the client has not heard of yet; it asks for the first one by itself, and would raise soon.
    """
    producer.produce("first", b"x")
    send_one(producer, "snap", b"x", partition=999)
    account = producer.snapshot()
    assert (account.delivered, account.failed, account.unresolved) == (1, 1, 0)


@pytest.mark.parametrize("lanes", [1, 3])
def test_snapshot_tells_the_producer_ids_of_its_lanes(lanes: int) -> None:
    """None before the first record; then those that the broker saw, once statistics or a lane's log told them."""
    config = {} if lanes == 1 else {"safeproducer.mode": "held", "safeproducer.ordering": "none"}
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("snap", 1, config={"producer.state.batches.to.retain": "20"})
        cluster.delay(0.05 if lanes > 1 else 0.0)
        settings = {"safeproducer.lanes": lanes, "batch.num.messages": 10} if lanes > 1 else {}
        producer = SafeProducer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **config, **settings})
        assert producer.snapshot().known_producer_ids == ()
        deadline = time.monotonic() + 30
        wrote: set[int] = set()
        while (len(wrote) < lanes or set(producer.snapshot().known_producer_ids) != wrote) and (
            time.monotonic() < deadline
        ):
            for _ in range(50):
                producer.produce("snap", b"x")
            assert producer.flush(10) == 0
            producer.poll(0.1)
            wrote = {batch.producer_id for batch in cluster.batches("snap", 0)}
        assert producer.snapshot().known_producer_ids == tuple(sorted(wrote))
        assert len(wrote) == producer.snapshot().producer_ids == lanes
        producer.close()
