"""Records for topics of which brokers hear late: who is patient, and for how long, as confluent_kafka is."""

import importlib
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from safeproducer import SafeProducer
from safeproducer.testing import FakeCluster
from tests.clusters import cluster_of

TOPICS = 10
LATE = 0.7
"""Seconds after which the last of the brokers knows a topic."""
PATIENCE_MS = 1500
UNKNOWN_TOPIC_OR_PARTITION = 3
_requests = importlib.import_module("safeproducer.testing.fake.handlers.metadata")


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_a_broker_that_hears_late_of_new_topics_fails_nothing(mode: str) -> None:
    """However often it is asked: what it says of a topic that others know is an answer, too."""
    answered, errors = _requests._asked_for, list[KafkaError | None]()
    asked: Counter[str] = Counter()
    until = 0.0

    def asked_for(request: Any, name: str, topic_id: Any) -> Any:
        """Each second answer is that of a broker that has not heard of the topic."""
        asked[name] += 1
        if asked[name] % 2 and time.monotonic() < until:
            return _requests._topic(request, name, topic_id, None, UNKNOWN_TOPIC_OR_PARTITION)
        return answered(request, name, topic_id)

    with cluster_of({"warm": 3}) as cluster, mock.patch.object(_requests, "_asked_for", asked_for):
        config = {"bootstrap.servers": cluster.bootstrap, "safeproducer.mode": mode, "log_level": 0}
        with SafeProducer(config) as producer:
            for partition in range(3):
                producer.produce("warm", b"x", partition=partition)
            assert producer.flush(20) == 0
            for number in range(TOPICS):
                cluster.create_topic(f"new-{number}", 3)
            until = time.monotonic() + LATE
            count = 0
            while time.monotonic() < until + 0.5:
                for number in range(TOPICS):
                    producer.produce(f"new-{number}", b"x", on_delivery=lambda error, _: errors.append(error))
                    count += 1
                producer.poll(0.05)
            assert producer.flush(20) == 0
    assert errors == [None] * count


def patience(make: Callable[[dict[str, Any]], Any]) -> float:
    """Seconds for which produce() takes records of a topic that does not exist."""
    with FakeCluster(brokers=1) as cluster:
        config = {"topic.metadata.propagation.max.ms": PATIENCE_MS, "topic.metadata.refresh.fast.interval.ms": 50}
        producer = make({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **config})
        began = time.monotonic()
        while time.monotonic() < began + 20:
            try:
                producer.produce("missing", b"x")
            except KafkaException as refused:
                assert refused.args[0].code() == KafkaError._UNKNOWN_TOPIC  # noqa: PT017 - it may raise at any time
                break
            producer.poll(0.02)
        took = time.monotonic() - began
        assert producer.flush(10) == 0
        producer.close()
    return took


def test_a_topic_that_no_broker_knows_is_refused_no_earlier_than_by_confluent_kafka() -> None:
    """`topic.metadata.propagation.max.ms` counts from when librdkafka heard of the topic first: from its first
    record."""
    ours, stock = patience(SafeProducer), patience(Producer)
    assert PATIENCE_MS / 1000 <= ours < stock + 2.0, (ours, stock)
