"""KIP-936 from the producer's side: a refused producer ID costs confluent_kafka its records, and SafeProducer some
time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from safeproducer import DeliveryError, Outcome, SafeProducer
from safeproducer.testing import FakeCluster
from tests.testing.raw import RawClient, make_batch

RATE = 900
"""New producer IDs per hour: as many at once and one more, then one every four seconds."""
RECORDS = 40


def use_up(cluster: FakeCluster, address: str) -> None:
    """The anonymous user's new producer IDs on this broker, which leads the topic `used`."""
    cluster.set_quota("producer_ids_rate", RATE, user="ANONYMOUS")
    with RawClient(address) as client:
        for producer_id in range(1_000_000, 1_000_000 + RATE + 3):
            batch = make_batch([b"x"], producer_id=producer_id, epoch=0, sequence=0)
            data = [{"name": "used", "partition_data": [{"index": 0, "records": batch}]}]
            answer = client.ask("Produce", 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
            if answer["throttle_time_ms"]:
                break


@pytest.fixture
def exhausted() -> Iterator[FakeCluster]:
    """A cluster on which that is so."""
    with FakeCluster(1) as cluster:
        cluster.create_topic("t", 2)
        cluster.create_topic("used", 1)
        use_up(cluster, cluster.bootstrap)
        yield cluster


def produced(
    cluster: FakeCluster, make: Callable[[dict[str, Any]], Any], partitions: int = 2, **config: Any
) -> list[tuple[Any, bytes]]:
    """(error, value) of each report, in order of arrival."""
    reports: list[tuple[Any, bytes]] = []
    producer = make({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0, **config})
    for number in range(RECORDS):
        producer.produce(
            "t",
            b"%d" % number,
            key=b"%d" % (number % 3),
            partition=number % partitions,
            headers=[("number", b"%d" % number)],
            on_delivery=lambda error, message: reports.append((error, message.value())),
        )
    end = time.monotonic() + 20
    while len(reports) < RECORDS and time.monotonic() < end:
        producer.poll(0.1)
    producer.close()
    return reports


def test_stock_loses_what_was_refused(exhausted: FakeCluster) -> None:
    """The trap: librdkafka takes error 89 for permanent, so the first records of a new producer fail at once."""
    reports = produced(exhausted, Producer)
    assert {error.name() for error, _ in reports if error is not None} == {"THROTTLING_QUOTA_EXCEEDED"}


@pytest.mark.parametrize("config", [{}, {"safeproducer.mode": "held"}, {"safeproducer.ordering": "key"}], ids=str)
def test_safeproducer_sends_them_again(exhausted: FakeCluster, config: dict[str, Any]) -> None:
    """They are certainly not written, wait for the broker's throttle time, and are delivered in order and once."""
    reports = produced(exhausted, SafeProducer, **config)
    assert [error for error, _ in reports if error is not None] == []
    for partition in (0, 1):
        records = exhausted.log("t", partition)
        expected = [b"%d" % number for number in range(partition, RECORDS, 2)]
        assert [record.value for record in records] == expected
        assert [dict(record.headers) for record in records] == [{"number": value} for value in expected]
    refused = [entry for entry in exhausted.journal("Produce") for batch in entry.batches if batch.error_code == 89]
    assert [entry for entry in refused if entry.batches[0].topic == "t"]


@pytest.mark.parametrize("config", [{}, {"safeproducer.mode": "held"}], ids=str)
def test_what_another_leader_counts_again_is_sent_again(config: dict[str, Any]) -> None:
    """The guard counts an ID once in its life, each leader for itself: the new one refuses what the former one knew."""
    with FakeCluster(2) as cluster:
        cluster.create_topic("t", 1)
        cluster.create_topic("used", 1)
        cluster.move_leader("used", to=2)
        use_up(cluster, cluster.bootstrap.split(",")[1])
        with SafeProducer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **config}) as producer:
            for number in range(RECORDS):
                if number == RECORDS // 2:
                    assert producer.flush(20) == 0
                    cluster.move_leader("t", to=2)
                    producer.list_topics("t", 10)  # or the refusal answers a second attempt, which proves less
                producer.produce("t", b"%d" % number)
            assert producer.flush(30) == 0
            account = producer.snapshot()
        assert (account.delivered, account.failed) == (RECORDS, 0)
        assert [record.value for record in cluster.log("t")] == [b"%d" % number for number in range(RECORDS)]
        codes = [batch.error_code for entry in cluster.journal("Produce") for batch in entry.batches]
        assert 89 in codes[-RECORDS:], "it was refused there"


def test_a_deadline_ends_the_waiting(exhausted: FakeCluster) -> None:
    """A record whose time is over before the quota lets it through fails, and is certainly not written."""
    exhausted.set_quota("producer_ids_rate", 1, user="ANONYMOUS")
    reports = produced(exhausted, SafeProducer, partitions=1, **{"message.timeout.ms": 2000})
    assert len(reports) == RECORDS
    assert all(isinstance(error, DeliveryError) and error.outcome is Outcome.NOT_WRITTEN for error, _ in reports)
    assert exhausted.log("t") == []
