"""The cluster does what the other tests rely on: it starts, elects, keeps data, and never outlives its owner."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from integration.kafka.cluster import KafkaCluster
from integration.kafka.poll import until


def produce(bootstrap: str, topic: str, count: int, **config: object) -> list[object]:
    """Deliver `count` records to partition 0 and return their errors."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0, **config})
    for number in range(count):
        producer.produce(
            topic, str(number), str(number), partition=0, on_delivery=lambda error, _: errors.append(error)
        )
    assert producer.flush(30) == 0
    return [error for error in errors if error is not None]


def test_topic_is_usable_at_once(kafka: KafkaCluster, topic: Callable[..., str]) -> None:
    """A fresh topic takes records as soon as the factory has returned, and its end offsets count them."""
    name = topic(partitions=3)
    assert produce(kafka.bootstrap, name, 7) == []
    assert kafka.admin.end_offsets(name) == [7, 0, 0]


def test_describe_producers_names_the_producer(kafka: KafkaCluster, topic: Callable[..., str]) -> None:
    """The leader remembers one producer ID and the sequence of its last record."""
    name = topic()
    produce(kafka.bootstrap, name, 5)
    (state,) = kafka.admin.describe_producers(name, 0)
    assert state.producer_id >= 0
    assert (state.epoch, state.last_sequence, state.transaction_start_offset) == (0, 4, -1)


def test_restart_keeps_data(topic: Callable[..., str]) -> None:
    """After a clean restart, and after a kill, the node serves what was acknowledged before."""
    with KafkaCluster() as cluster:
        name = topic(on=cluster)
        produce(cluster.bootstrap, name, 10)
        node = cluster.nodes[1]
        before = node.pid
        node.restart()
        assert node.pid != before
        assert cluster.admin.end_offsets(name) == [10]
        produce(cluster.bootstrap, name, 10)
        node.kill()
        assert node.state == "stopped"
        node.start()
        assert cluster.admin.end_offsets(name) == [20]


@pytest.mark.timeout(120)
def test_leader_kill_elects_another(kafka3: KafkaCluster, topic: Callable[..., str]) -> None:
    """When a leader is killed another in-sync node leads, nothing acknowledged is lost, and the node comes back."""
    name = topic(replication=3, on=kafka3)
    produce(kafka3.bootstrap, name, 10)
    admin = kafka3.admin
    old = admin.leader(name, 0)
    kafka3.nodes[old].kill()
    try:
        new = until(lambda: {admin.leader(name, 0)} - {old, -1}, "another leader", 15).pop()
        assert new != old
        assert produce(kafka3.bootstrap, name, 10) == []
        assert admin.end_offsets(name) == [20]
    finally:
        kafka3.nodes[old].start()
    until(lambda: len(admin.partitions(name)[0].in_sync) == 3, "three nodes in sync")
    admin.move_leader(name, 0, old)
    assert admin.leader(name, 0) == old
