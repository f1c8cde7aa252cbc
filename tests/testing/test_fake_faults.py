"""FakeCluster misbehaving on purpose, seen by SafeProducer and confluent_kafka."""

from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, Message

from safeproducer import SafeProducer, testing
from safeproducer.testing import FakeCluster
from tests.contract.support import send_one
from tests.testing.raw import RawClient, make_batch

INVALID_RECORD, NOT_LEADER, NOT_ENOUGH_REPLICAS = 87, 6, 19


@pytest.fixture
def producer(cluster: FakeCluster) -> Iterator[SafeProducer]:
    cluster.create_topic("t")
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "linger.ms": 0,
        "retry.backoff.ms": 10,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 50,
        "topic.metadata.refresh.interval.ms": 100,
        "log_level": 0,
    }
    with SafeProducer(settings) as made:
        yield made


def deliver(producer: SafeProducer, *values: bytes) -> list[KafkaError | None]:
    """Each value in a batch of its own, in turn; what the reports say."""
    found: list[KafkaError | None] = []

    def report(error: KafkaError | None, message: Message) -> None:
        found.append(error)

    for value in values:
        send_one(producer, "t", value, on_delivery=report)
    return found


def values(cluster: FakeCluster) -> list[bytes | None]:
    return [record.value for record in cluster.log("t")]


def test_a_lost_acknowledgement_leaves_one_copy(cluster: FakeCluster, producer: SafeProducer) -> None:
    """The retry of a batch whose answer was lost is recognised: delivered, and once in the log."""
    cluster.lose_acks()
    assert deliver(producer, b"a", b"b") == [None, None]
    assert values(cluster) == [b"a", b"b"]
    assert cluster.faults_left == 0
    journal = [(e.outcome, b.duplicate, b.first_sequence) for e in cluster.journal("Produce") for b in e.batches]
    assert journal == [("lost", False, 0), ("answered", True, 0), ("answered", False, 1)]


def test_a_moved_leader_is_found(cluster: FakeCluster, producer: SafeProducer) -> None:
    """The old leader says who leads now; the epoch has grown and is in the batches."""
    assert deliver(producer, b"a") == [None]
    old, epoch = cluster.leader("t")
    new = cluster.move_leader("t")
    assert cluster.leader("t") == (new, epoch + 1)
    assert deliver(producer, b"b") == [None]
    assert values(cluster) == [b"a", b"b"]
    assert [header.leader_epoch for header in cluster.batches("t")] == [epoch, epoch + 1]
    refused = [b.error_code for e in cluster.journal("Produce", broker=old) for b in e.batches]
    assert refused in ([0, NOT_LEADER], [0])  # librdkafka may have learnt of the move from metadata


def test_a_stopped_leader_is_replaced_and_comes_back_on_its_port(cluster: FakeCluster, producer: SafeProducer) -> None:
    """Records go on through another broker, and to the same address after the start."""
    assert deliver(producer, b"a") == [None]
    bootstrap, (old, _) = cluster.bootstrap, cluster.leader("t")
    cluster.stop(old)
    assert deliver(producer, b"b") == [None]
    cluster.start(old)
    assert cluster.bootstrap == bootstrap
    cluster.move_leader("t", to=old)
    assert deliver(producer, b"c") == [None]
    assert values(cluster) == [b"a", b"b", b"c"]


def test_all_brokers_may_stop_and_start(cluster: FakeCluster) -> None:
    """Without a living replica there is no leader and nobody to ask; the first that comes back leads."""
    cluster.create_topic("t")
    for broker in cluster.brokers:
        cluster.stop(broker)
        with pytest.raises(ConnectionRefusedError):
            RawClient(cluster.bootstrap, broker)
    assert cluster.leader("t")[0] == -1
    cluster.start(3)
    assert cluster.leader("t")[0] == 3
    with RawClient(cluster.bootstrap, 3) as client:
        assert client.produce("t", make_batch([b"a"]))["error_code"] == 0


def test_an_ordered_error_is_answered_n_times(cluster: FakeCluster, producer: SafeProducer) -> None:
    """A permanent error fails the record and writes nothing; the next record goes through."""
    cluster.fail_next("Produce", INVALID_RECORD)
    (error, none) = deliver(producer, b"a", b"b")
    assert error is not None
    assert error.code() == INVALID_RECORD
    assert none is None
    assert values(cluster) == [b"b"]


def test_too_few_in_sync_replicas_refuse_the_write(cluster: FakeCluster, producer: SafeProducer) -> None:
    """`min.insync.replicas` counts living replicas, and a start brings them back."""
    cluster.set_topic_config("t", "min.insync.replicas", "3")
    cluster.stop(3)
    producer.produce("t", b"a")
    cluster.wait(lambda c: any(b.error_code == NOT_ENOUGH_REPLICAS for e in c.journal("Produce") for b in e.batches))
    assert values(cluster) == []
    cluster.start(3)
    assert producer.flush(10) == 0
    assert values(cluster) == [b"a"]


def test_reset_leaves_a_cluster_as_new(cluster: FakeCluster, producer: SafeProducer) -> None:
    """Topics, faults, journal, configs and stopped brokers do not reach the next test; producer IDs are not reused."""
    assert deliver(producer, b"a") == [None]
    first = cluster.log("t")[0].producer_id
    producer.close(5)
    cluster.lose_acks(9)
    cluster.delay(9)
    cluster.set_throttle(9)
    cluster.set_kip_1269(1, False)
    cluster.stop(1)
    cluster.reset()
    assert (cluster.journal(), cluster.faults_left) == ([], 0)
    cluster.create_topic("t")
    with SafeProducer({"bootstrap.servers": cluster.bootstrap}) as other:
        assert deliver(other, b"b") == [None]
    assert values(cluster) == [b"b"]
    assert cluster.log("t")[0].producer_id > first


def test_a_fault_ends_before_its_time(cluster: FakeCluster) -> None:
    """Of 0 it ends for the same requests and the same error; and all of them, though topics stay."""
    cluster.create_topic("orders")
    cluster.create_topic("other")
    cluster.fail_next("Produce", 19, n=5, topic="orders")
    cluster.fail_next("Produce", 6, n=7, topic="orders")
    cluster.fail_next("Produce", 19, n=11, topic="other")
    cluster.lose_acks(13)
    cluster.fail_next("Produce", 19, n=0, topic="orders")
    assert cluster.faults_left == 7 + 11 + 13
    cluster.lose_acks(0)
    assert cluster.faults_left == 7 + 11
    cluster.fail_next("Produce", 19, n=0)
    assert cluster.faults_left == 7
    with pytest.raises(ValueError, match="n: -1 is below 0"):
        cluster.fail_next("Produce", 19, n=-1)
    cluster.delay(30)
    cluster.end_faults()
    assert cluster.faults_left == 0
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    send_one(producer, "orders", b"x")
    assert len(cluster.log("orders")) == 1


def test_names_of_what_methods_return_are_public(cluster: FakeCluster) -> None:
    cluster.create_topic("orders")
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    send_one(producer, "orders", b"x")
    (entry,) = cluster.journal("Produce")
    assert isinstance(entry, testing.JournalEntry)
    assert isinstance(entry.batches[0], testing.JournalBatch)
    assert isinstance(cluster.log("orders")[0], testing.StoredRecord)
    assert isinstance(cluster.batches("orders")[0], testing.BatchHeader)
    (state,) = cluster.producer_state("orders").values()
    assert isinstance(state, testing.ProducerEntry)
    assert isinstance(state.batches[0], testing.AppendedBatch)


def test_a_request_held_back_arrives_after_the_one_that_followed_it(cluster: FakeCluster) -> None:
    """Its client has hung up by then, and asked again: the batch of the second request is the first in the log."""
    cluster.create_topic("t")
    cluster.hold_next("Produce")
    leader = cluster.leader("t")[0]
    with RawClient(cluster.bootstrap, leader) as first:
        first.set_timeout(0.1)
        with pytest.raises(TimeoutError):
            first.produce("t", make_batch([b"late"]))
        assert cluster.held_back == 1
    with RawClient(cluster.bootstrap, leader) as second:
        second.produce("t", make_batch([b"early"]))
    assert values(cluster) == [b"early"]
    assert cluster.release() == 1
    cluster.wait(lambda found: len(found.log("t")) == 2)
    assert values(cluster) == [b"early", b"late"]
    assert (cluster.held_back, cluster.faults_left, cluster.release()) == (0, 0, 0)


def test_the_end_of_faults_lets_arrive_what_is_held_back(cluster: FakeCluster, producer: SafeProducer) -> None:
    cluster.hold_next("Produce", 3)
    assert cluster.faults_left == 3
    producer.produce("t", b"a")
    cluster.wait(lambda found: found.held_back == 1)
    cluster.end_faults()
    assert producer.flush(10) == 0
    assert deliver(producer, b"b") == [None]
    assert values(cluster) == [b"a", b"b"]
