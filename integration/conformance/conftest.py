"""The suite's fixtures with real Kafka where FakeCluster was."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from confluent_kafka.admin import ScramMechanism  # type: ignore[attr-defined]

from integration.again import rewrite_asserts
from integration.kafka.cluster import KafkaCluster

rewrite_asserts("tests.conformance")
target: Any = import_module("tests.conformance.target")
fixtures: Any = import_module("tests.conformance.fixtures")
client = fixtures.client
untouched = fixtures.untouched


@pytest.fixture(scope="module")
def kafka_conforming() -> Iterator[KafkaCluster]:
    """One node with the suite's own settings, and with listeners that want a log-in."""
    with KafkaCluster(secure=True, configs=target.CONFIGS) as kafka:
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            kafka.admin.add_scram_user(target.SCRAM_USER, target.SCRAM_PASSWORD, mechanism)
        yield kafka


@pytest.fixture(scope="module")
def cluster(kafka_conforming: KafkaCluster) -> Any:
    """One broker of Kafka 4.4.0."""
    return target.Target("kafka", kafka_conforming.bootstrap)


@pytest.fixture(scope="module")
def cluster3(kafka3: KafkaCluster) -> Any:
    """Three brokers of Kafka 4.4.0."""
    return target.Target("kafka", kafka3.bootstrap, lambda topic, broker: kafka3.admin.move_leader(topic, 0, broker))


@pytest.fixture(scope="module")
def secure(kafka_conforming: KafkaCluster) -> Any:
    """The same broker, behind SASL; what lies under it is TLS, which FakeCluster does not have."""
    context = ssl.create_default_context(cafile=str(kafka_conforming.ca_pem))
    return target.Target("kafka", kafka_conforming.secure_bootstrap, tls=context)
