"""Transactions in a test: by all libraries; coordinators, leaders and time move, and answers are lost."""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from safeproducer.testing import FakeCluster
from tests.clusters import cluster_of
from tests.conformance.target import Target
from tests.conformance.test_clients import in_transactions, read
from tests.conformance.test_transactions import ABORT, COMMIT, FENCED, INVALID_EPOCH, Tx
from tests.contract.support import send_one
from tests.testing.raw import RawClient

PATIENCE = 20
NOT_COORDINATOR = 16


def settings(cluster: FakeCluster, name: str = "tx", **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "log_level": 0, **more}


def test_the_log_shows_both_views(cluster: FakeCluster) -> None:
    """All records, or those that were committed; no marker."""
    cluster.create_topic("t", 2)
    in_transactions(Producer)(cluster.bootstrap, "t", "tx")
    for partition in (0, 1):
        assert [one.value for one in cluster.log("t", partition)] == [b"1"] * 2 + [b"0"] * 2 + [b"1"] * 2
        assert [one.value for one in cluster.log("t", partition, isolation="read_committed")] == [b"1"] * 4
        assert [batch.control for batch in cluster.batches("t", partition)].count(True) == 3
    found = cluster.transactions()["tx"]
    assert (found.state, found.partitions, found.groups) == ("CompleteCommit", (), ())


def test_what_is_open_is_shown(cluster: FakeCluster) -> None:
    cluster.create_topic("t")
    began = cluster.now()
    client = Producer(settings(cluster))
    client.init_transactions(PATIENCE)
    assert cluster.transactions()["tx"].since is None
    client.begin_transaction()
    client.produce("t", b"a")
    client.flush(PATIENCE)
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "log_level": 0})
    client.send_offsets_to_transaction([TopicPartition("t", 0, 7)], reader.consumer_group_metadata(), PATIENCE)
    found = cluster.transactions()["tx"]
    assert (found.state, found.epoch, found.partitions, found.groups) == ("Ongoing", 0, (("t", 0),), ("g",))
    assert found.since is not None
    assert began - 1 < found.since < cluster.now() + 1
    assert cluster.groups()["g"].offsets == {}
    client.commit_transaction(PATIENCE)
    assert cluster.groups()["g"].offsets == {("t", 0): 7}
    reader.close()


def bring(cluster: FakeCluster, broker: int, *names: str) -> None:
    """Have this broker coordinate them."""
    for name in names:
        while cluster.move_coordinator(name) != broker:
            pass


@pytest.fixture
def raw(cluster: FakeCluster) -> Iterator[Tx]:
    """One transactional producer of version 1, by raw requests to its coordinator, which leads its partition, too."""
    cluster.create_topic("t")
    with RawClient(cluster.bootstrap, cluster.leader("t")[0]) as client:
        made = Tx(client, "t")
        bring(cluster, cluster.leader("t")[0], made.id, made.group)
        yield made


def test_time_can_be_moved_to_the_end_of_a_transaction(cluster: FakeCluster, raw: Tx) -> None:
    """No transaction stays open longer than its time-out, and readers wait no longer."""
    raw.init(transaction_timeout_ms=30_000)
    raw.add()
    raw.write()
    cluster.advance(29)
    assert cluster.transactions()[raw.id].state == "Ongoing"
    cluster.advance(1.5)
    found = cluster.transactions()[raw.id]
    assert (found.state, found.epoch) == ("CompleteAbort", raw.epoch + 1)
    assert cluster.log("t", isolation="read_committed") == []
    assert raw.try_end(COMMIT)["error_code"] == FENCED
    assert raw.write() == INVALID_EPOCH


def test_readers_wait_for_an_instance_that_is_gone_until_its_time_is_over(cluster: FakeCluster) -> None:
    """In real time, though nobody asks for the transaction; its producer writes and commits nothing any more."""
    cluster.create_topic("t")
    gone = Producer(settings(cluster, **{"transaction.timeout.ms": 2_000}))
    gone.init_transactions(PATIENCE)
    gone.begin_transaction()
    send_one(gone, "t", b"of one that is gone")
    began = time.monotonic()
    other = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    send_one(other, "t", b"behind")
    assert cluster.log("t", isolation="read_committed") == []
    assert [one.value() for one in read(Target("fake", cluster.bootstrap), "t", 1, 1)] == [b"behind"]
    assert 1 < time.monotonic() - began < PATIENCE / 2
    with pytest.raises(KafkaException):
        gone.commit_transaction(PATIENCE)
    assert [one.value for one in cluster.log("t", isolation="read_committed")] == [b"behind"]
    with suppress(KafkaException):
        gone.close()


def test_a_coordinator_that_moves(cluster: FakeCluster, raw: Tx) -> None:
    """Whoever asks the old one is sent away; what is open goes on at the new one."""
    raw.in_state("Ongoing")
    cluster.move_coordinator(raw.id)
    assert raw.try_end(COMMIT)["error_code"] == NOT_COORDINATOR
    assert raw.add() == NOT_COORDINATOR
    assert raw.try_init()["error_code"] == NOT_COORDINATOR
    assert raw.described()["error_code"] == NOT_COORDINATOR
    assert raw.client.ask("ListTransactions", 1)["transaction_states"] == []
    assert raw.write() == 0
    bring(cluster, cluster.leader("t")[0], raw.id)
    raw.end(COMMIT)
    assert len(cluster.log("t", isolation="read_committed")) == 2


def test_an_end_waits_for_a_leader(cluster: FakeCluster, raw: Tx) -> None:
    """Until all markers are written it is prepared, and readers wait."""
    cluster.create_topic("u", replication_factor=1)
    raw.init()
    home = cluster.leader("t")[0]
    away = cluster.leader("u")[0]
    assert away != home
    assert raw.add(topic="u") == 0
    assert raw.add() == 0
    assert raw.write() == 0
    bring(cluster, home, raw.id)
    cluster.stop(away)
    assert raw.try_end(ABORT)["error_code"] == 0
    assert cluster.transactions()[raw.id].state == "PrepareAbort"
    assert raw.add() == 51
    assert raw.try_init()["error_code"] == 51
    cluster.start(away)
    assert cluster.transactions()[raw.id].state == "CompleteAbort"
    assert [batch.control for batch in cluster.batches("u")] == [True]


@pytest.mark.parametrize(
    "api", ["InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"]
)
def test_faults_reach_the_apis_of_transactions(cluster: FakeCluster, raw: Tx, api: str) -> None:
    """By `api=`: an error without work, and work without an answer."""
    raw.in_state("Ongoing")
    raw.add_offsets()
    asked = {
        "InitProducerId": lambda: raw.try_init()["error_code"],
        "AddPartitionsToTxn": raw.add,
        "AddOffsetsToTxn": raw.add_offsets,
        "TxnOffsetCommit": lambda: raw.commit_offset(7),
        "EndTxn": lambda: raw.try_end(COMMIT)["error_code"],
    }
    cluster.fail_next(api, NOT_COORDINATOR)
    assert asked[api]() == NOT_COORDINATOR
    assert cluster.transactions()[raw.id].state == "Ongoing"
    cluster.lose_acks(api=api)
    with pytest.raises(ConnectionError):
        asked[api]()
    states = {"EndTxn": "CompleteCommit", "InitProducerId": "CompleteAbort"}
    assert cluster.transactions()[raw.id].state == states.get(api, "Ongoing")


def test_epochs_run_out(cluster: FakeCluster) -> None:
    """Behind the last one comes a new producer ID, by InitProducerId and by an end of version 2."""
    with cluster_of({"t": 1}, first_epoch=32_764) as other, RawClient(other.bootstrap) as client:
        one, two = Tx(client, "t"), Tx(client, "t", 5)
        assert one.init()["producer_epoch"] == 32_764
        first = one.pid
        assert [one.init()["producer_epoch"] for _ in range(3)] == [32_765, 32_766, 0]
        assert one.pid > first
        two.in_state("Ongoing")
        first = two.pid
        two.end(COMMIT)
        two.add()
        answer = two.try_end(COMMIT)
        assert (answer["error_code"], answer["producer_epoch"]) == (0, 0)
        assert answer["producer_id"] > first


def test_the_version_of_transactions_is_told() -> None:
    """As a feature, by which clients choose their requests."""
    for version in (1, 2):
        with FakeCluster(1, transaction_version=version) as cluster, RawClient(cluster.bootstrap) as client:  # type: ignore[arg-type]
            answer = client.ask("ApiVersions", 3, client_software_name="a", client_software_version="1")
            (told,) = answer["finalized_features"]
            assert (told["name"], told["max_version_level"]) == ("transaction.version", version)


def test_a_wrong_isolation_is_refused(cluster: FakeCluster) -> None:
    cluster.create_topic("t")
    with pytest.raises(ValueError, match="isolation='all'"):
        cluster.log("t", isolation="all")  # type: ignore[arg-type]


def test_markers_that_replicas_lack() -> None:
    """The end is prepared until they have them; a leader that begins without one writes it anew, and what was cut off
    the log is in no transaction."""
    with FakeCluster(3, replica_link=100_000_000) as cluster:
        cluster.create_topic("t", replication_factor=2)
        leader = cluster.leader("t")[0]
        follower = leader % 3 + 1
        with RawClient(cluster.bootstrap, leader) as client:
            tx = Tx(client, "t")
            bring(cluster, leader, tx.id)
            tx.in_state("Ongoing")
            cluster.pause(follower)
            assert tx.try_end(ABORT)["error_code"] == 0
            assert cluster.transactions()[tx.id].state == "PrepareAbort"
            cluster.resume(follower)
            cluster.wait(lambda c: c.transactions()[tx.id].state == "CompleteAbort")
            tx.add()
            tx.write()
            cluster.pause(follower)
            tx.try_end(COMMIT)
            cluster.resume(follower)
            cluster.stop(leader)
        cluster.wait(lambda c: c.transactions()[tx.id].state == "CompleteCommit")
        assert len(cluster.log("t", isolation="read_committed")) == 1
        assert cluster._state.topics["t"].partitions[0].last_stable_offset == cluster.batches("t")[-1].base_offset + 1


def test_a_topic_that_goes_amid_a_transaction(cluster: FakeCluster, raw: Tx) -> None:
    """The end does not wait for it, also if one with fewer partitions has its name."""
    cluster.create_topic("gone", 3)
    raw.init()
    raw.topic = "gone"
    assert raw.add(0, 1, 2) == [0, 0, 0]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.delete_topics(["gone"])["gone"].result(10)
    cluster.create_topic("gone")
    assert raw.try_end(COMMIT)["error_code"] == 0
    assert cluster.transactions()[raw.id].state == "CompleteCommit"
