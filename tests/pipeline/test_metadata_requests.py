"""How many Metadata requests a producer of many topics makes, beside those that confluent_kafka's makes."""

import time
from typing import Any

from confluent_kafka.cimpl import Producer

from safeproducer import SafeProducer
from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster

TOPICS = [f"t{number}" for number in range(1000)]


cluster = fake_cluster(dict.fromkeys(TOPICS, 1), brokers=3, scope="module")


def requests(cluster: FakeCluster, producer: Any, topics: list[str]) -> int:
    """Metadata requests from the first record of each topic until two seconds after its acknowledgement.

    No broker answers before: librdkafka itself asks once for each topic that it is given while it is connected.
    """
    before, failed = len(cluster.journal("Metadata")), []
    for broker in cluster.brokers:
        cluster.pause(broker)
    for topic in topics:
        producer.produce(topic, b"x", partition=0, on_delivery=lambda error, _: error and failed.append(error))
    for broker in cluster.brokers:
        cluster.resume(broker)
    assert producer.flush(60) == 0
    for _ in range(20):
        time.sleep(0.1)
        producer.poll(0)
    assert not failed
    return len(cluster.journal("Metadata")) - before


def test_a_thousand_topics_take_thirty_questions_at_most(cluster: FakeCluster) -> None:
    """Replicas of all of them are known then."""
    config = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0}
    native = requests(cluster, Producer(config), TOPICS)
    producer = SafeProducer(config)
    ours = requests(cluster, producer, TOPICS)
    rows = producer.snapshot().partitions
    producer.close(10)
    assert ours <= native + 30
    assert len([row for row in rows if row.replication is not None]) == len(TOPICS)
