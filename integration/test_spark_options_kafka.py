"""Logins and authorities in Java's names, against brokers that ask for them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AclOperation, ScramMechanism  # type: ignore[attr-defined]

from integration.kafka.cluster import KafkaCluster
from integration.kafka.security import MISNAMED, PLAIN_PASSWORD, PLAIN_USER
from safeproducer import SafeProducer
from safeproducer.spark.jaas import MODULES
from safeproducer.spark.options import Options

TopicFactory = Callable[..., str]
DIFFICULT = 'p"w;=\\ //x'
"""A password with everything that a JAAS text must escape."""


def login(mechanism: str, user: str, password: str) -> dict[str, str]:
    """As for Java's producer."""
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    return {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": f'{MODULES[mechanism]} required username="{user}" password="{quoted}";',
    }


def delivery_error(options: dict[str, str], bootstrap: str, topic: str) -> KafkaError | None:
    """The report of one record."""
    checked = Options.parse({"kafka.bootstrap.servers": bootstrap, "safeproducer.spark.deadline": "10", **options})
    reports: list[KafkaError | None] = []
    with SafeProducer({**checked.config, **checked.resolve_secrets(), "log_level": 0}) as producer:
        producer.produce(topic, "x", on_delivery=lambda error, _: reports.append(error))
        producer.flush(20)
    return reports[0]


def test_each_mechanism_logs_in(
    kafka_secure: KafkaCluster, topic: TopicFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Authorities in PEM from a file, as text and at a place, and a store of Java's keytool; passwords likewise."""
    name, admin, brokers = topic(on=kafka_secure), kafka_secure.admin, kafka_secure.secure_bootstrap
    admin.add_scram_user("carol", DIFFICULT)
    admin.add_scram_user("dave", "dave-password", ScramMechanism.SCRAM_SHA_256)
    for user in ("carol", "dave", PLAIN_USER):
        admin.add_acl(f"User:{user}", name, AclOperation.WRITE, AclOperation.DESCRIBE)
    (tmp_path / "password").write_text("dave-password\n", encoding="utf-8")
    javas = tmp_path / "trust.p12"
    make = ["keytool", "-importcert", "-noprompt", "-alias", "ca", "-storetype", "PKCS12", "-storepass", "changeit"]
    subprocess.run([*make, "-file", str(kafka_secure.ca_pem), "-keystore", str(javas)], check=True, capture_output=True)
    store = {"kafka.ssl.truststore.type": "PKCS12", "kafka.ssl.truststore.location": str(javas)}
    plain = login("PLAIN", PLAIN_USER, PLAIN_PASSWORD)
    monkeypatch.setenv("KAFKA_JAAS", plain["kafka.sasl.jaas.config"])
    pem = {"kafka.ssl.truststore.type": "PEM"}
    location = {**pem, "kafka.ssl.truststore.location": str(kafka_secure.ca_pem)}
    text = {**pem, "kafka.ssl.truststore.certificates": kafka_secure.ca_pem.read_text(encoding="utf-8")}
    place = {**pem, "kafka.ssl.truststore.certificates": f"file:{kafka_secure.ca_pem}"}
    for options in (
        {**location, **login("SCRAM-SHA-512", "carol", DIFFICULT)},
        {**store, "kafka.ssl.truststore.password": "changeit", **login("SCRAM-SHA-512", "carol", DIFFICULT)},
        {**text, **login("SCRAM-SHA-256", "dave", f"file:{tmp_path}/password")},
        {**place, **plain, "kafka.sasl.jaas.config": "env:KAFKA_JAAS"},
    ):
        assert delivery_error(options, brokers, name) is None, sorted(options)
    wrong = delivery_error({**location, **login("SCRAM-SHA-512", "carol", "wrong")}, brokers, name)
    assert wrong is not None


def test_a_host_name_is_verified_unless_the_algorithm_is_empty(kafka_secure: KafkaCluster, topic: TopicFactory) -> None:
    """As Java's empty `ssl.endpoint.identification.algorithm` has it."""
    name = topic(on=kafka_secure)
    kafka_secure.admin.add_acl(f"User:{PLAIN_USER}", name, AclOperation.WRITE, AclOperation.DESCRIBE)
    options = {
        **login("PLAIN", PLAIN_USER, PLAIN_PASSWORD),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(kafka_secure.ca_pem),
    }
    brokers = kafka_secure.tls_bootstrap(MISNAMED)
    assert delivery_error(options, brokers, name) is not None
    unverified = {**options, "kafka.ssl.endpoint.identification.algorithm": ""}
    assert delivery_error(unverified, brokers, name) is None
