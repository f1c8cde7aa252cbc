"""The suite's fixtures with real Kafka where FakeCluster was."""

import ssl
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from confluent_kafka.admin import ScramMechanism  # type: ignore[attr-defined]

from integration.again import rewrite_asserts
from integration.kafka.cluster import KafkaCluster
from integration.kafka.security import SECURE

rewrite_asserts("tests.conformance")
target: Any = import_module("tests.conformance.target")
fixtures: Any = import_module("tests.conformance.fixtures")
client = fixtures.client
name = fixtures.name
TOKENS = f"listener.name.{SECURE.lower()}.oauthbearer"
untouched = fixtures.untouched


@pytest.fixture(scope="module")
def kafka_conforming() -> Iterator[KafkaCluster]:
    """One node with the suite's own settings, and with listeners that want a log-in."""
    expiry = {f"{TOKENS}.connections.max.reauth.ms": str(target.LOGIN_SECONDS * 1000)}
    with KafkaCluster(secure=True, configs={**target.CONFIGS, **expiry}) as kafka:
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
    """The same broker, behind SASL over TLS."""
    context = ssl.create_default_context(cafile=str(kafka_conforming.ca_pem))
    return target.Target("kafka", kafka_conforming.secure_bootstrap, tls=context)


@pytest.fixture(scope="module")
def tokens(secure: Any) -> Any:
    """The same: log-ins with a token end."""
    return secure


@pytest.fixture(scope="module")
def encrypted(kafka_conforming: KafkaCluster) -> Any:
    """All of its listeners with TLS."""
    found = kafka_conforming.certificates
    assert found is not None
    files = {"ca": found.ca, "other_ca": found.other_ca, "certificate": found.client, "key": found.client}
    return target.Target(
        "kafka",
        kafka_conforming.bootstrap,
        listeners=lambda kind: kafka_conforming.tls_bootstrap("SECURE" if kind == "good" else kind.upper()),
        files={name: str(path) for name, path in files.items()},
    )
