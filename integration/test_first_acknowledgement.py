"""On real Kafka, too, the first acknowledgement of a new producer does not wait for librdkafka's half second."""

import statistics
from collections.abc import Callable

from integration.kafka.cluster import KafkaCluster
from safeproducer import SafeProducer
from tests.delivery.test_first_question import SOON, first_acknowledgement


def test_the_first_acknowledgement_takes_no_half_second(kafka: KafkaCluster, topic: Callable[..., str]) -> None:
    """By default, with a broker beside it."""
    config = {"bootstrap.servers": kafka.bootstrap}
    name = topic()
    took = [first_acknowledgement(SafeProducer, config, name) for _ in range(5)]
    assert statistics.median(took) < SOON, took
