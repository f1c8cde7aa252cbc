"""Clients that know nothing of FakeCluster, against FakeCluster."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic

from safeproducer import SafeProducer
from safeproducer.testing import FakeCluster

RETAIN = "producer.state.batches.to.retain"


def read(cluster: FakeCluster, topic: str, partitions: int, wanted: int) -> list[tuple[int, int, bytes | None]]:
    """Partition, offset and value of `wanted` records, by a confluent_kafka consumer with assigned partitions."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: list[tuple[int, int, bytes | None]] = []
    deadline = time.monotonic() + 10
    try:
        while len(found) < wanted and time.monotonic() < deadline:
            for message in consumer.consume(wanted, 0.2):
                assert message.error() is None
                found.append((message.partition() or 0, message.offset() or 0, message.value()))
    finally:
        consumer.close()
    return found


def test_safeproducer_writes_what_a_consumer_reads(cluster: FakeCluster) -> None:
    """Every record arrives once, in the order of its partition, and the log says the same."""
    cluster.create_topic("t", 3)
    with SafeProducer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 1}) as producer:
        for number in range(300):
            producer.produce("t", b"%d" % number, partition=number % 3)
        assert producer.flush(10) == 0
    found = read(cluster, "t", 3, 300)
    for partition in range(3):
        values = [value for where, _, value in found if where == partition]
        assert values == [b"%d" % number for number in range(partition, 300, 3)]
        assert values == [record.value for record in cluster.log("t", partition)]
        assert [record.sequence for record in cluster.log("t", partition)] == list(range(100))
    assert {entry.outcome for entry in cluster.journal()} == {"answered"}


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_packed_records_can_be_read_back(cluster: FakeCluster, codec: str) -> None:
    """All four compressions pass through as they came, and `log()` unpacks them."""
    cluster.create_topic("t")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.type": codec, "linger.ms": 20})
    for number in range(50):
        producer.produce("t", b"the same again and again %d" % number)
    assert producer.flush(10) == 0
    assert [value for _, _, value in read(cluster, "t", 1, 50)] == [
        b"the same again and again %d" % number for number in range(50)
    ]
    assert any(header.compression for header in cluster.batches("t"))
    assert [record.value for record in cluster.log("t")] == [b"the same again and again %d" % n for n in range(50)]


def test_the_admin_client_makes_topics_and_reads_configs(cluster: FakeCluster) -> None:
    """CreateTopics, and both configs of KIP-1269 with where they come from."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    made = admin.create_topics(
        [NewTopic("t", 2, 3, config={RETAIN: "20"}), NewTopic("bad", 1, 3, config={RETAIN: "4"})]
    )
    made["t"].result(5)
    refused = made["bad"].exception(5)
    assert refused is not None
    assert "below the minimum of 5" in str(refused)
    cluster.set_broker_config(1, "log." + RETAIN, "9")
    topic, broker = (describe(admin, kind, name) for kind, name in (("topic", "t"), ("broker", "1")))
    assert topic(RETAIN) == ("20", ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
    assert broker("log." + RETAIN) == ("9", ConfigSource.DYNAMIC_BROKER_CONFIG.value)
    assert describe(admin, "broker", "2")("log." + RETAIN) == ("5", ConfigSource.DEFAULT_CONFIG.value)
    assert len(admin.describe_cluster().result(5).nodes) == 3


def describe(admin: AdminClient, kind: str, name: str) -> Callable[[str], tuple[str | None, int] | None]:
    resource = ConfigResource(kind, name)
    found = admin.describe_configs([resource])[resource].result(5)

    def value(key: str) -> tuple[str | None, int] | None:
        return (found[key].value, found[key].source) if key in found else None

    return value


def test_many_clusters_side_by_side() -> None:
    """Two clusters share nothing but the process."""
    with FakeCluster(1) as one, FakeCluster(2) as two:
        one.create_topic("t")
        two.create_topic("t")
        with SafeProducer({"bootstrap.servers": one.bootstrap}) as producer:
            producer.produce("t", b"a")
            assert producer.flush(5) == 0
        assert (len(one.log("t")), len(two.log("t"))) == (1, 0)
        assert len(two.bootstrap.split(",")) == 2
