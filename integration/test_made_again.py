"""A topic is deleted and re-created while records are on their way: none of them is said to be where it is not."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from integration.kafka.cluster import KafkaCluster
from integration.lost_answers import settled
from integration.tap import Tap
from safeproducer import SafeProducer
from safeproducer.pipeline.lanes.direct_lane import DirectLane
from tests.contract.support import poll_until
from tests.inside import engine_of

LATE = 3.0
"""Seconds until an answer arrives. To make the topic again takes less, so both requests leave before any answer."""


ATTEMPTS = 5
"""On a busy machine a broker may come to the first record only when the new topic is there."""


@pytest.mark.parametrize(("kind", "first"), [(Producer, "delivered"), (SafeProducer, "unknown")])
def test_records_that_met_the_deletion_are_unknown(
    kafka_tapped: KafkaCluster, tap: Tap, kind: Callable[..., Any], first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new topic does not know the producer and takes its second batch: from that, librdkafka concludes that it has
    the first one, too. So does confluent_kafka."""
    monkeypatch.setattr(DirectLane, "rest", lambda lane: None)  # on probation the first one would be alone
    for _ in range(ATTEMPTS):
        told, log = meet_the_deletion(kafka_tapped, tap, kind)
        if log == [[b"two"]]:
            break
    assert log == [[b"two"]], "only then it shows what it is about"
    assert told == {b"before": "delivered", b"one": first, b"two": "delivered"}


def meet_the_deletion(
    kafka: KafkaCluster, tap: Tap, kind: Callable[..., Any]
) -> tuple[dict[bytes, str], list[list[bytes | None]]]:
    """What was told of the records, and what is in the new topic."""
    admin, name = kafka.admin, f"again-{uuid.uuid4().hex[:8]}"
    admin.create_topic(name)
    producer = kind({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0})
    told: dict[bytes, str] = {}

    def report(error: Any, message: Any) -> None:
        told[message.value()] = "delivered" if error is None else str(error.outcome)

    def produce(value: bytes) -> None:
        producer.produce(name, value, partition=0, on_delivery=report)

    produce(b"before")
    assert producer.flush(10) == 0
    if isinstance(producer, SafeProducer):
        poll_until(producer, lambda: engine_of(producer).route.goes_direct)
    admin.delete_topic(name)
    sent = len(tap.batches)
    tap.delay(LATE, to_broker=False)
    produce(b"one")
    tap.wait(lambda tap: len(tap.batches) == sent + 1)
    admin.create_topic(name)
    produce(b"two")
    tap.wait(lambda tap: len(tap.batches) == sent + 2)
    tap.delay(0)
    assert producer.flush(30) == 0
    producer.close()
    return told, settled(kafka, name)
