"""Exactly once from topic to topic: instances are killed and paused, groups rebalance, coordinators move, offsets are
refused, answers are lost. integration/test_consume_transform_produce_kafka.py has the same on Kafka."""

import random
from pathlib import Path

import pytest

from safeproducer.testing import FakeCluster
from tests.transforming import GROUP, INSTANCES, LOST, PARTITIONS, SOURCE, TARGET, play

REFUSED = [("TxnOffsetCommit", 22), ("EndTxn", 120)]
"""Requests, and the errors for which a transaction has to be aborted: ILLEGAL_GENERATION, TRANSACTION_ABORTABLE."""
NAMES = [GROUP, *(f"tx-{number}" for number in range(INSTANCES))]


def played(folder: Path, seed: int, records: int, rate: int) -> None:
    rng = random.Random(-seed)
    with FakeCluster() as cluster:
        for topic in (SOURCE, TARGET):
            cluster.create_topic(topic, PARTITIONS)

        def rebalance() -> None:
            if GROUP in cluster.groups():
                cluster.rebalance(GROUP)

        def lose() -> None:
            cluster.lose_acks(api=rng.choice(LOST))

        def refuse() -> None:
            cluster.fail_next(*rng.choice(REFUSED))

        def move() -> None:
            cluster.move_coordinator(rng.choice(NAMES))

        found = play(cluster.bootstrap, folder, seed, records, rate, [rebalance, lose, lose, refuse, move])
        assert found["SIGKILL"], found
        assert found["SIGSTOP"], found
        assert sum(cluster.groups()[GROUP].offsets.values()) == records


def test_each_record_comes_out_once(tmp_path: Path) -> None:
    played(tmp_path, seed=1, records=600, rate=120)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(20))
def test_three_thousand_records(tmp_path: Path, seed: int) -> None:
    played(tmp_path, seed, records=3_000, rate=200)
