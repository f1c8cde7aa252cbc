"""A request that arrives in the next transaction, on Kafka."""

import contextlib
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from integration.kafka.cluster import KafkaCluster
from integration.tap import Tap
from integration.test_transaction_quota import committed
from safeproducer import SafeProducer

PATIENCE = 60


def seen(kafka: KafkaCluster, topic: str, keys: list[bytes]) -> list[bytes | None]:
    """What readers of committed records come to see: markers are written after commit_transaction() returns."""
    deadline = time.monotonic() + 10
    while (found := committed(kafka, topic)) != keys and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


@pytest.mark.parametrize("ends", ["commit", "abort"])
@pytest.mark.parametrize("cls", [Producer, SafeProducer])
def test_a_late_end_ends_no_other_transaction(
    kafka_tapped: KafkaCluster, tap: Tap, topic: Callable[..., str], cls: Any, ends: str
) -> None:
    """The end of the first transaction is held back, asked for again, and done. It arrives during the second one, of
    which the application has said nothing yet: confluent_kafka's is committed, or aborted, by it."""
    place = topic(partitions=1, on=kafka_tapped)
    config = {"bootstrap.servers": kafka_tapped.bootstrap, "transactional.id": uuid.uuid4().hex, "log_level": 0}
    producer = cls({**config, "socket.timeout.ms": 1_000})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    producer.produce(place, b"v", key=b"first")
    assert producer.flush(PATIENCE) == 0
    tap.drop_requests("EndTxn", 1, keep_open=True)
    getattr(producer, f"{ends}_transaction")(PATIENCE)
    assert not tap.drops_left
    first = [b"first"] if ends == "commit" else []
    assert seen(kafka_tapped, place, first) == first
    producer.begin_transaction()
    producer.produce(place, b"v", key=b"second")
    assert producer.flush(PATIENCE) == 0
    assert tap.deliver_late() == 1
    if cls is SafeProducer:
        producer.commit_transaction(PATIENCE)
        assert seen(kafka_tapped, place, [*first, b"second"]) == [*first, b"second"]
        producer.close()
        return
    with contextlib.suppress(KafkaException):
        getattr(producer, "abort_transaction" if ends == "commit" else "commit_transaction")(PATIENCE)
    last = [b"first", b"second"] if ends == "commit" else []
    assert seen(kafka_tapped, place, last) == last


@pytest.mark.parametrize(("cls", "ends"), [(Producer, "commit"), (SafeProducer, "commit"), (SafeProducer, "abort")])
def test_a_late_record_is_in_no_other_transaction(
    kafka_tapped: KafkaCluster, tap: Tap, topic: Callable[..., str], cls: Any, ends: str
) -> None:
    """It was sent again and committed, or given up: librdkafka ends no abort then, and the next transaction does."""
    place = topic(partitions=1, on=kafka_tapped)
    config = {"bootstrap.servers": kafka_tapped.bootstrap, "transactional.id": uuid.uuid4().hex, "log_level": 0}
    producer = cls({**config, "socket.timeout.ms": 1_000})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    tap.drop_requests("Produce", 1, keep_open=True)
    producer.produce(place, b"v", key=b"first")
    while tap.drops_left:
        producer.poll(0.05)
    with contextlib.nullcontext() if ends == "commit" else pytest.raises(KafkaException):
        getattr(producer, f"{ends}_transaction")(PATIENCE if ends == "commit" else 3)
    producer.begin_transaction()
    producer.produce(place, b"v", key=b"second")
    assert producer.flush(PATIENCE) == 0
    assert tap.deliver_late() == 1
    first = [b"first"] if ends == "commit" else []
    assert seen(kafka_tapped, place, first) == first
    producer.commit_transaction(PATIENCE)
    assert seen(kafka_tapped, place, [*first, b"second"]) == [*first, b"second"]
    producer.close()
