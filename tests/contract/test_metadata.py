"""list_topics(), cluster_id() and set_sasl_credentials()."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ClusterMetadata

from tests.contract.support import NOWHERE, PARTITIONS, error_of


@pytest.mark.parametrize("form", ["positional", "keyword"])
def test_one_topic(producer: Any, topic: str, form: str) -> None:
    """list_topics() of one topic tells its partitions, their leaders and the brokers."""
    args, kwargs = ((topic, 10), {}) if form == "positional" else ((), {"topic": topic, "timeout": 10})
    found = producer.list_topics(*args, **kwargs)
    assert isinstance(found, ClusterMetadata)
    assert set(found.topics) == {topic}
    partitions = found.topics[topic].partitions
    assert set(partitions) == set(range(PARTITIONS))
    assert all(partition.leader in found.brokers for partition in partitions.values())


def test_all_topics(producer: Any, topic: str) -> None:
    """list_topics() without arguments answers with every topic."""
    assert topic in producer.list_topics().topics
    assert topic in producer.list_topics(None, 10).topics


def test_cluster_id(producer: Any) -> None:
    """cluster_id() is a text, the same by both forms of the call."""
    found = producer.cluster_id(10)
    assert isinstance(found, str)
    assert found
    assert producer.cluster_id(timeout=10) == found == producer.cluster_id()


def test_list_topics_of_an_unreachable_cluster_raises(make: Any) -> None:
    """Nobody answers within the timeout: KafkaException with _TRANSPORT."""
    producer = make({"bootstrap.servers": NOWHERE})
    with pytest.raises(KafkaException) as caught:
        producer.list_topics(timeout=0.2)
    assert error_of(caught.value).code() == KafkaError._TRANSPORT


def test_cluster_id_of_an_unreachable_cluster_raises(make: Any) -> None:
    """Nobody answers within the timeout: KafkaException with _TIMED_OUT."""
    producer = make({"bootstrap.servers": NOWHERE})
    with pytest.raises(KafkaException) as caught:
        producer.cluster_id(timeout=0.2)
    assert error_of(caught.value).code() == KafkaError._TIMED_OUT


def test_credentials_can_be_set_at_any_time(make: Any) -> None:
    """set_sasl_credentials() takes two texts, by position and by name, and returns None."""
    producer = make(
        {
            "bootstrap.servers": NOWHERE,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "user",
            "sasl.password": "first",
        }
    )
    assert producer.set_sasl_credentials("user", "password") is None
    assert producer.set_sasl_credentials(username="user", password="other") is None
