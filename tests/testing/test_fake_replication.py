"""FakeCluster with `replica_link`: followers that lag, as clients and tests see them."""

import time

import pytest
from confluent_kafka import Producer

from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster
from tests.conformance.target import end_offset, fetch, part
from tests.conformance.test_replication import moves, reassign, replicas_of, sizes
from tests.testing.raw import RawClient, make_batch, produce_body

MB = 1_000_000
TIMED_OUT, NOT_ENOUGH, AFTER_APPEND, NOT_LEADER = 7, 19, 20, 6


linked = fake_cluster({}, brokers=3, scope="module", replica_link=4)
"""Slow enough that a small batch takes half a minute, unless time is moved on."""


@pytest.fixture
def cluster(linked: FakeCluster) -> FakeCluster:
    linked.reset()
    return linked


def post(client: RawClient, acks: int = -1, timeout: float = 30, **producer: int) -> None:
    body = produce_body("t", make_batch([b"a"], **producer), acks=acks, timeout_ms=round(timeout * 1000))
    client.post("Produce", 9, **body)


def error(client: RawClient) -> int:
    return int(part(client.answer("Produce", 9))["error_code"])


def in_sync(cluster: FakeCluster) -> list[int]:
    with RawClient(cluster.bootstrap) as client:
        return replicas_of(client, "t")[1]


def size(cluster: FakeCluster, broker: int) -> dict[int, int]:
    """Of the replica of partition 0 there."""
    with RawClient(cluster.bootstrap, broker) as client:
        return sizes(client, "t", [0])


def test_acks_all_waits_for_followers_and_others_do_not(cluster: FakeCluster) -> None:
    """A consumer sees the record when the write is acknowledged; time that is moved on copies it."""
    cluster.create_topic("t", replication_factor=3)
    with RawClient(cluster.bootstrap) as one, RawClient(cluster.bootstrap) as other:
        post(one, acks=1)
        assert error(one) == 0
        one.set_timeout(0.2)
        post(one)
        with pytest.raises(TimeoutError):
            one.receive()
        found = part(fetch(other, 11, "t"))
        assert (found["high_watermark"], bytes(found["records"]), end_offset(other, "t")) == (0, b"", 0)
        cluster.advance(60)
        one.set_timeout(5)
        assert error(one) == 0
        assert end_offset(other, "t") == 2
    assert cluster.replication(2)["SumReplicaLag"] == 0


def test_acknowledgements_come_by_themselves() -> None:
    """Nobody has to move time on: followers fetch in real time, too."""
    with FakeCluster(replica_link=100 * MB) as cluster:
        cluster.create_topic("t", replication_factor=3)
        with RawClient(cluster.bootstrap) as client:
            for _ in range(3):
                post(client)
                assert error(client) == 0
        assert in_sync(cluster) == [1, 2, 3]


def test_a_write_that_is_not_copied_in_time_times_out(cluster: FakeCluster) -> None:
    """The record stays in the log; the journal has the error."""
    cluster.create_topic("t", replication_factor=3)
    with RawClient(cluster.bootstrap) as client:
        post(client, timeout=0.05)
        assert error(client) == TIMED_OUT
    assert len(cluster.batches("t")) == 1
    assert [batch.error_code for entry in cluster.journal("Produce") for batch in entry.batches] == [TIMED_OUT]


def test_below_the_minimum_writes_wait_or_are_refused(cluster: FakeCluster) -> None:
    """What was under way gets no answer, what comes later is refused at once, and acks=1 goes on."""
    cluster.create_topic("t", replication_factor=2, config={"min.insync.replicas": "2"})
    with RawClient(cluster.bootstrap) as one, RawClient(cluster.bootstrap) as other:
        post(one, timeout=0.3)
        cluster.wait(lambda cluster: len(cluster.batches("t")) == 1)
        cluster.stop(2)
        assert in_sync(cluster) == [1]
        post(other)
        assert error(other) == NOT_ENOUGH
        post(other, acks=1)
        assert error(other) == 0
        assert error(one) == TIMED_OUT
        cluster.start(2)
        cluster.advance(200)
        assert in_sync(cluster) == [1, 2]
        post(other)
        cluster.wait(lambda cluster: len(cluster.batches("t")) == 3)
        cluster.advance(200)
        assert error(other) == 0
    assert len(cluster.batches("t")) == 3


def test_a_set_that_shrinks_before_the_answer(cluster: FakeCluster) -> None:
    """The batch was copied in time; then the follower fell behind: the write is appended, and refused."""
    cluster.create_topic("t", replication_factor=2, config={"min.insync.replicas": "2"})
    with RawClient(cluster.bootstrap) as client:
        post(client)
        cluster.wait(lambda cluster: len(cluster.batches("t")) == 1)
        cluster.advance(1)
        cluster.fill("t", 0, MB, replicated=False)
        cluster.advance(100)
        assert error(client) == AFTER_APPEND
        assert end_offset(client, "t") == 1
    assert in_sync(cluster) == [1]


def test_a_leader_that_goes_answers_what_waits(cluster: FakeCluster) -> None:
    """The client asks the new leader, which has only what it had copied."""
    cluster.create_topic("t", replication_factor=2)
    with RawClient(cluster.bootstrap) as client:
        post(client, producer_id=7, epoch=0, sequence=0)
        cluster.wait(lambda cluster: len(cluster.batches("t")) == 1)
        assert [*cluster.producer_state("t")] == [7]
        assert cluster.move_leader("t") == 2
        assert error(client) == NOT_LEADER
    assert cluster.batches("t") == []
    assert cluster.producer_state("t") == {}


def test_a_leader_knows_the_transactions_of_what_it_has() -> None:
    """Records that it lacks are gone; those before them are committed, or aborted, as they were."""
    with FakeCluster(2, replica_link=MB) as cluster, RawClient(cluster.bootstrap, 1) as client:
        cluster.create_topic("t")
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "x", "log_level": 0})
        producer.init_transactions()
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.produce("t", end.__name__)
            assert producer.flush(10) == 0
            end()
        cluster.pause(2)
        post(client, acks=1)
        assert error(client) == 0
        assert cluster.move_leader("t") == 2
        assert [record.value for record in cluster.log("t")] == [b"commit_transaction", b"abort_transaction"]
        assert [record.value for record in cluster.log("t", isolation="read_committed")] == [b"commit_transaction"]


def test_a_replica_out_of_sync_does_not_lead(cluster: FakeCluster) -> None:
    cluster.create_topic("t", replication_factor=2)
    cluster.stop(2)
    cluster.fill("t", 0, 100)
    cluster.start(2)
    assert in_sync(cluster) == [1]
    with pytest.raises(ValueError, match="does not follow"):
        cluster.move_leader("t", to=2)
    cluster.stop(1)
    assert cluster.leader("t")[0] == -1


def test_a_paused_follower_fetches_nothing(cluster: FakeCluster) -> None:
    """It leaves the set after replica.lag.time.max.ms, and comes back by itself."""
    cluster.create_topic("t", replication_factor=2)
    cluster.pause(2)
    cluster.fill("t", 0, 4, replicated=False)
    cluster.advance(25)
    assert in_sync(cluster) == [1, 2]
    cluster.advance(6)
    assert in_sync(cluster) == [1]
    assert cluster.replication(2)["SumReplicaLag"] == 4
    cluster.resume(2)
    cluster.advance(2)
    assert in_sync(cluster) == [1, 2]


def test_a_throttled_move_as_tools_see_it() -> None:
    """Moves, sizes, metrics; rates and lists act at once, set by any admin client or by the test."""
    with FakeCluster(replica_link=100 * MB) as cluster, RawClient(cluster.bootstrap) as client:
        cluster.create_topic("t", replication_factor=2)
        cluster.fill("t", 0, 60 * MB)
        for side, replicas in (("leader", "0:1"), ("follower", "0:3")):
            cluster.set_topic_config("t", f"{side}.replication.throttled.replicas", replicas)
            for broker in cluster.brokers:
                cluster.set_broker_config(broker, f"{side}.replication.throttled.rate", str(2 * MB))
        assert reassign(client, "t", [1, 3]) == 0
        cluster.advance(12)
        (partition,) = moves(client)["t"]
        assert (partition["adding_replicas"], partition["removing_replicas"]) == ([3], [2])
        assert size(cluster, 2) == {0: 60 * MB}
        copied = size(cluster, 3)[0]
        assert copied == pytest.approx(24 * MB, rel=0.15)
        metrics = cluster.replication(3)
        assert metrics["FollowerReplicationThrottledRate"] == pytest.approx(2 * MB, rel=0.3)
        assert metrics["SumReplicaLag"] == pytest.approx(60 * MB - copied, rel=0.1)
        assert metrics["PartitionBytesInRate"]["t", 0] == pytest.approx(2 * MB, rel=0.3)
        assert cluster.replication(1)["LeaderReplicationThrottledRate"] == pytest.approx(2 * MB, rel=0.3)
        cluster.set_topic_config("t", "leader.replication.throttled.replicas", None)
        cluster.set_topic_config("t", "follower.replication.throttled.replicas", None)
        cluster.advance(3)
        assert moves(client) == {}
        assert (size(cluster, 2), size(cluster, 3)) == ({}, {0: 60 * MB})
        assert in_sync(cluster) == [1, 3]


def test_deleted_topics_are_forgotten(cluster: FakeCluster) -> None:
    """A write that waits for one gets an answer, and nothing is copied any more."""
    cluster.create_topic("t", replication_factor=3)
    with RawClient(cluster.bootstrap) as client, RawClient(cluster.bootstrap) as other:
        post(client)
        cluster.wait(lambda cluster: len(cluster.batches("t")) == 1)
        other.ask("DeleteTopics", 5, topic_names=["t"], timeout_ms=1000)
        assert error(client) == 3
    cluster.advance(100)
    assert cluster.replication(2) == {
        "LeaderReplicationThrottledRate": 0,
        "FollowerReplicationThrottledRate": 0,
        "SumReplicaLag": 0,
        "PartitionBytesInRate": {},
    }


# --- without a link --------------------------------------------------------------------------------------------------


def test_without_a_link_nothing_ever_lags() -> None:
    """A move is over at once, unless the new replica's broker is down; throttles have nothing to hold back."""
    with FakeCluster() as cluster, RawClient(cluster.bootstrap) as client:
        cluster.create_topic("t", replication_factor=2)
        cluster.set_topic_config("t", "follower.replication.throttled.replicas", "*")
        cluster.set_broker_config(3, "follower.replication.throttled.rate", "0")
        cluster.fill("t", 0, 5 * MB, replicated=False)
        began = time.monotonic()
        post(client)
        assert error(client) == 0
        assert time.monotonic() - began < 5
        assert size(cluster, 2)[0] > 5 * MB
        assert reassign(client, "t", [1, 3]) == 0
        assert (moves(client), in_sync(cluster)) == ({}, [1, 3])
        cluster.stop(2)
        assert reassign(client, "t", [2, 3]) == 0
        assert moves(client)["t"][0]["adding_replicas"] == [2]
        cluster.start(2)
        assert (moves(client), cluster.leader("t")[0]) == ({}, 2)
        assert cluster.replication(3)["FollowerReplicationThrottledRate"] == 0


def test_filling_what_cannot_be_filled(cluster: FakeCluster) -> None:
    cluster.create_topic("t", replication_factor=1)
    with pytest.raises(ValueError, match="size: -1"):
        cluster.fill("t", 0, -1)
    with pytest.raises(ValueError, match="not one with number 1"):
        cluster.fill("t", 1, 1)
    cluster.stop(1)
    with pytest.raises(ValueError, match="has no leader"):
        cluster.fill("t", 0, 1)
    with pytest.raises(ValueError, match="there is no broker 9"):
        cluster.replication(9)
