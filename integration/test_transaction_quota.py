"""A transaction under a byte quota: it is committed whole, or not at all."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from integration.kafka.cluster import KafkaCluster
from integration.kafka.log import read_records
from safeproducer import SafeProducer

RATE = 20_000
DEBIT = b"x" * 700_000
"""More than the quota allows within half a minute."""


def committed(kafka: KafkaCluster, topic: str) -> list[bytes | None]:
    """Keys of what a consumer of committed records sees."""
    return [record.key for record in read_records(kafka.direct_bootstrap, topic, isolation="read_committed")[0]]


@pytest.mark.parametrize("cls", [Producer, SafeProducer])
def test_no_transaction_is_committed_without_one_of_its_records(
    kafka: KafkaCluster, topic: Callable[..., str], cls: Any
) -> None:
    """The second record's time runs out while the broker throttles: the commit raises, and the abort hides both."""
    place, client = topic(partitions=1), f"quota-{uuid.uuid4().hex[:8]}"
    kafka.admin.set_quota(client_id=client, producer_byte_rate=RATE)
    producer = cls(
        {
            "bootstrap.servers": kafka.bootstrap,
            "client.id": client,
            "transactional.id": client,
            "message.timeout.ms": 2_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(place, DEBIT, key=b"debit")
    assert producer.flush(10) == 0
    producer.produce(place, b"y", key=b"credit")
    with pytest.raises(KafkaException) as raised:
        producer.commit_transaction(30)
    assert raised.value.args[0].txn_requires_abort()
    producer.abort_transaction(60)
    assert committed(kafka, place) == []
