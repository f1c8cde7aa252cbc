"""Exactly once from topic to topic, on Kafka: as tests/transactions/test_consume_transform_produce.py."""

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from integration.kafka.cluster import KafkaCluster
from integration.tap import Tap
from tests.transformer import SESSION
from tests.transforming import GROUP, LOST, PARTITIONS, SOURCE, TARGET, play

COORDINATORS = ("__consumer_offsets", "__transaction_state")
"""Of one partition each: its leader coordinates all groups, or all transactions."""
LOOKS = "transaction.abort.timed.out.transaction.cleanup.interval.ms"


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(3, tapped=True, configs={LOOKS: "1000"}) as made:
        for topic in (SOURCE, TARGET):
            made.admin.create_topic(topic, PARTITIONS, 3)
        yield made


def played(cluster: KafkaCluster, folder: Path, seed: int, records: int, rate: int) -> None:
    rng = random.Random(-seed)
    visits: list[threading.Thread] = []

    def visit() -> None:
        """A member that comes and leaves."""
        settings = {"bootstrap.servers": cluster.direct_bootstrap, "group.id": GROUP, "log_level": 0}
        member = Consumer({**settings, "enable.auto.commit": False, "session.timeout.ms": SESSION})
        member.subscribe([SOURCE])
        member.poll(2)
        member.close()

    def rebalance() -> None:
        visits.append(threading.Thread(target=visit))
        visits[-1].start()

    def move() -> None:
        topic = rng.choice(COORDINATORS)
        if (partition := cluster.admin.partitions(topic).get(0)) is not None:  # it is made when it is needed
            cluster.admin.move_leader(
                topic, 0, rng.choice([node for node in cluster.nodes if node != partition.leader])
            )

    with Tap(cluster) as tap:
        lost = [lambda: tap.drop_answers(rng.choice(LOST))] * 2
        play(cluster.bootstrap, folder, seed, records, rate, [rebalance, *lost, move])
        for each in visits:
            each.join()


def test_each_record_comes_out_once(cluster: KafkaCluster, tmp_path: Path) -> None:
    played(cluster, tmp_path, seed=1, records=600, rate=60)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
def test_three_thousand_records(cluster: KafkaCluster, tmp_path: Path, seed: int) -> None:
    played(cluster, tmp_path, seed, records=3_000, rate=150)
