"""Tests of application.py against brokers that throttle, hand over, refuse and lose answers: real TCP, no Docker.

    pip install '.[testing]'
    pytest examples/test_application.py

The fixture `kafka_cluster` comes with the package: three brokers inside this process, as new for each test.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest
from application import Reports, send

from safeproducer import SafeProducer
from safeproducer.testing import FakeCluster

MESSAGE_TOO_LARGE = 10
"""The protocol's number for it."""


@pytest.fixture
def producer(kafka_cluster: FakeCluster) -> Iterator[SafeProducer]:
    """The application's producer, on the test's own cluster."""
    made = SafeProducer({"bootstrap.servers": kafka_cluster.bootstrap, "client.id": "orders", "linger.ms": 1})
    yield made
    made.close(10)


def order(number: int) -> dict[str, object]:
    return {"id": f"order-{number}", "amount": number * 100}


def written(cluster: FakeCluster, topic: str = "orders", partition: int = 0) -> list[str]:
    """What stands in the log, which is what a consumer would get."""
    return [json.loads(record.value or b"")["id"] for record in cluster.log(topic, partition)]


def held(producer: SafeProducer, partition: int) -> int:
    """Orders that wait in the producer for this partition."""
    return sum(row.held for row in producer.snapshot().partitions if row.partition == partition)


def poll_until(producer: SafeProducer, happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not happened():
        assert time.monotonic() < deadline, producer.explain()
        producer.poll(0.01)


def test_a_lost_acknowledgement_doubles_no_order(kafka_cluster: FakeCluster, producer: SafeProducer) -> None:
    """The broker writes an order and its answer gets lost: the producer sends it again, the log has it once."""
    kafka_cluster.create_topic("orders")
    reports = Reports()
    kafka_cluster.lose_acks(1, topic="orders")
    for number in range(10):
        send(producer, "orders", order(number), reports)
    assert producer.flush(10) == 0

    assert written(kafka_cluster) == [f"order-{number}" for number in range(10)]
    assert (reports.delivered[0], reports.failed) == (10, {})
    # It did happen: one answer was lost, and the batch came a second time.
    requests = kafka_cluster.journal("Produce")
    assert [request.outcome for request in requests].count("lost") == 1
    assert any(batch.duplicate for request in requests for batch in request.batches)


def test_a_deadline_after_a_lost_answer_doubles_no_order(kafka_cluster: FakeCluster) -> None:
    """A batch of 40 is written, its answer is lost, and 10 orders expire before the broker is back.

    confluent_kafka builds the batch anew without the ten, with `enable.idempotence`, too. It has another sequence
    number then, so the broker writes 30 orders twice (`python examples/four_clients.py deadline`).
    """
    kafka_cluster.create_topic("orders")
    reports = Reports()
    settings = {"message.timeout.ms": 3000, "linger.ms": 1400}
    with SafeProducer({"bootstrap.servers": kafka_cluster.bootstrap, **settings}) as producer:
        send(producer, "orders", order(0), reports)
        assert producer.flush(10) == 0
        kafka_cluster.delay(30, api="Produce")  # the answer is lost with the connection, below
        begun = time.monotonic()
        for number in range(1, 41):
            if number == 11:
                time.sleep(1.3)
            send(producer, "orders", order(number), reports)
        kafka_cluster.wait(lambda cluster: len(cluster.log("orders")) == 41)
        for broker in kafka_cluster.brokers:
            kafka_cluster.pause(broker)
        kafka_cluster.cut()
        kafka_cluster.delay(0, api="Produce")
        time.sleep(max(0, begun + 3.5 - time.monotonic()))
        for broker in kafka_cluster.brokers:
            kafka_cluster.resume(broker)
        producer.flush(10)
        account = producer.snapshot()

    assert sorted(written(kafka_cluster)) == sorted(f"order-{number}" for number in range(41))
    assert (account.not_written, account.unresolved) == (0, 0)


def test_orders_follow_a_leader_that_moves(kafka_cluster: FakeCluster, producer: SafeProducer) -> None:
    """Another broker takes over in the middle: every order arrives, in order."""
    kafka_cluster.create_topic("orders")
    reports = Reports()
    for number in range(50):
        send(producer, "orders", order(number), reports)
    assert producer.flush(10) == 0
    old, epoch = kafka_cluster.leader("orders")
    new = kafka_cluster.move_leader("orders")
    for number in range(50, 100):
        send(producer, "orders", order(number), reports)
    assert producer.flush(10) == 0

    assert new != old
    assert kafka_cluster.leader("orders") == (new, epoch + 1)
    assert written(kafka_cluster) == [f"order-{number}" for number in range(100)]
    assert reports.delivered[0] == 100
    assert kafka_cluster.journal("Produce", broker=new)


def test_a_throttled_broker_delays_its_own_orders_only(kafka_cluster: FakeCluster, producer: SafeProducer) -> None:
    """A broker over its quota asks for silence: the orders of its partition wait, those of the others go out."""
    kafka_cluster.create_topic("orders", partitions=3)
    reports = Reports()
    throttled, _ = kafka_cluster.leader("orders", 0)
    kafka_cluster.set_throttle(2_000, broker=throttled)
    for number in range(30):
        send(producer, "orders", order(number), reports)
    poll_until(producer, lambda: throttled in producer.snapshot().throttled_brokers)
    kafka_cluster.set_throttle(0, broker=throttled)
    for number in range(30, 130):
        send(producer, "orders", order(number), reports)
    # What waits in the end is all for partition 0, and waits in the producer.
    poll_until(producer, lambda: held(producer, 0) == producer.snapshot().unresolved > 0)
    assert "held back" in producer.explain("orders", 0)

    assert producer.flush(10) == 0
    in_the_log = [name for partition in range(3) for name in written(kafka_cluster, "orders", partition)]
    assert sorted(in_the_log) == sorted(f"order-{number}" for number in range(130))


def test_an_order_that_is_refused_is_reported(kafka_cluster: FakeCluster) -> None:
    """The application learns which order was refused, and why; it is certainly not written, and the rest are."""
    kafka_cluster.create_topic("orders")
    reports = Reports()
    # An answer that comes before any second attempt can is to the first one, so the outcome is certain. With the
    # default of 0.1 s a slow machine may answer too late for that.
    retries = {"retry.backoff.ms": 10_000, "retry.backoff.max.ms": 10_000}
    with SafeProducer({"bootstrap.servers": kafka_cluster.bootstrap, "linger.ms": 1, **retries}) as producer:
        send(producer, "orders", order(0), reports)
        assert producer.flush(10) == 0
        kafka_cluster.fail_next("Produce", MESSAGE_TOO_LARGE, topic="orders")
        send(producer, "orders", order(1), reports)
        assert producer.flush(10) == 0
        send(producer, "orders", order(2), reports)
        assert producer.flush(10) == 0

        assert written(kafka_cluster) == ["order-0", "order-2"]
        assert list(reports.failed) == ["order-1"]
        assert producer.snapshot().not_written == 1
