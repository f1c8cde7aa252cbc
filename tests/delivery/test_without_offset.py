"""Records that librdkafka reports as delivered because a later batch was acknowledged, and which nobody has.

That confluent_kafka's report of them is without an error is in tests/contract/test_differences.py: when that fails,
librdkafka has stopped to conclude, and without_offset.py can go.
"""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from safeproducer import DeliveryError, Hook, Record, SafeProducer
from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster
from tests.contract.support import poll_until
from tests.inside import engine_of

UNKNOWN_TOPIC_OR_PART, NOT_LEADER_OR_FOLLOWER = 3, 6
LATE = 0.4
"""Seconds until an answer arrives: time enough for the next record to be sent."""

Send = Callable[[Any, bytes, Callable[..., Any]], object]


cluster = fake_cluster({"t": 2})


class Resolved(Hook):
    def __init__(self) -> None:
        self.errors: list[Any] = []

    def record_resolved(self, record: Record, error: KafkaError | None, message: Any) -> None:
        self.errors.append(error)


def write_two(cluster: FakeCluster, producer: Any, send: Send) -> dict[bytes, Any]:
    """The leader does not know the topic when the first record comes, and does when the second comes."""
    told: dict[bytes, Any] = {}

    def report(error: Any, message: Any) -> None:
        told[message.value()] = error
        assert message.error() is error

    producer.produce("t", b"zero", partition=1)
    poll_until(producer, lambda: not engine_of(producer).holds.slow_start)
    cluster.delay(LATE, api="Produce")
    cluster.fail_next("Produce", UNKNOWN_TOPIC_OR_PART, topic="t", partition=0)
    for number, value in enumerate((b"one", b"two"), 2):
        send(producer, value, report)
        while len(cluster.journal("Produce")) < number:
            producer.poll(0.01)
    assert producer.flush(10) == 0
    assert [record.value for record in cluster.log("t", partition=0)] == [b"two"], "only then it shows what it is about"
    return told


def by_batch(producer: Any, value: bytes, report: Callable[..., Any]) -> None:
    producer.produce_batch("t", [{"value": value}], partition=0, on_delivery=report)


SENDS: dict[str, Send] = {
    "partition": lambda producer, value, report: producer.produce("t", value, partition=0, on_delivery=report),
    "no partition": lambda producer, value, report: producer.produce("t", value, b"d", on_delivery=report),
    "batch": by_batch,
}


@pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)
@pytest.mark.parametrize("hooked", [False, True])
def test_a_record_that_no_broker_acknowledged_is_unknown(cluster: FakeCluster, send: Send, hooked: bool) -> None:
    """The report, the hooks and the counts say so; the record that was acknowledged is delivered."""
    hook = Resolved()
    producer = SafeProducer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0}, hooks=[hook] if hooked else [])
    told = write_two(cluster, producer, send)
    error = told[b"one"]
    assert isinstance(error, DeliveryError)
    assert (error.outcome, error.code(), error.partition) == ("unknown", KafkaError._INCONSISTENT, 0)
    assert told[b"two"] is None
    assert hook.errors == ([None, error, None] if hooked else [])
    snapshot = producer.snapshot()
    assert (snapshot.delivered, snapshot.failed, snapshot.unknown) == (2, 1, 1)
    producer.close()


def test_the_first_batch_of_a_partition_is_alone(cluster: FakeCluster) -> None:
    """The leader of a topic that was just made may reject it for now, and would take the next one."""
    cluster.delay(LATE, api="Produce")
    for number in (0, 1):
        cluster.fail_next("Produce", NOT_LEADER_OR_FOLLOWER, topic="t", partition=number)
    errors: list[Any] = []
    with SafeProducer({"bootstrap.servers": cluster.bootstrap}) as producer:
        for number in range(20):
            producer.produce("t", b"v", partition=number % 2, on_delivery=lambda error, message: errors.append(error))
            while number > 3 and len(cluster.journal("Produce")) < 2:
                producer.poll(0.01)
        assert producer.flush(10) == 0
    assert errors == [None] * 20


@pytest.mark.parametrize("acks", ["0", "1"])
def test_without_idempotence_a_report_is_taken_as_it_is(cluster: FakeCluster, acks: str) -> None:
    """With acks=0 there never is an offset."""
    errors: list[Any] = []
    with SafeProducer({"bootstrap.servers": cluster.bootstrap, "acks": acks}) as producer:
        for partition in (0, -1):
            producer.produce("t", b"v", partition=partition, on_delivery=lambda error, message: errors.append(error))
        assert producer.flush(10) == 0
    assert errors == [None, None]
