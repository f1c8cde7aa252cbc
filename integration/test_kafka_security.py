"""The secure listeners let in whom they should, and refuse the others for the reason they should."""

import socket
import ssl
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AclOperation, ScramMechanism  # type: ignore[attr-defined]

from integration.kafka.cluster import KafkaCluster
from integration.kafka.poll import until
from integration.kafka.security import EXPIRED, MISNAMED, PLAIN_PASSWORD, PLAIN_USER, SECURE

TopicFactory = Callable[..., str]


def client(cluster: KafkaCluster, user: str, password: str, **changes: object) -> dict[str, object]:
    """Settings of a client that logs in over TLS."""
    return {
        "bootstrap.servers": cluster.secure_bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.location": str(cluster.ca_pem),
        "log_level": 0,
        **{name.replace("_", "."): value for name, value in changes.items()},
    }


def delivery_error(config: dict[str, object], topic: str) -> KafkaError | None:
    """The delivery report of one record; a record that times out counts as its error."""
    reports: list[KafkaError | None] = []
    producer = Producer({**config, "message.timeout.ms": 10_000})
    producer.produce(topic, "x", on_delivery=lambda error, _: reports.append(error))
    assert producer.flush(30) == 0
    return reports[0]


def connection_error(config: dict[str, object]) -> KafkaError:
    """The first error that tells why no connection came about."""
    seen: list[KafkaError] = []
    producer = Producer({**config, "error_cb": seen.append})

    def reason() -> list[KafkaError]:
        producer.poll(0.05)
        return [error for error in seen if error.code() != KafkaError._ALL_BROKERS_DOWN]

    return until(reason, "a connection error", 20)[0]


@pytest.fixture
def alice(kafka_secure: KafkaCluster) -> str:
    """A user who may write to topics that begin with `t-`."""
    kafka_secure.admin.add_scram_user("alice", "alice-password")
    return "alice"


def test_scram_user_with_acl_can_write(kafka_secure: KafkaCluster, topic: TopicFactory, alice: str) -> None:
    """A SCRAM user with the right ACL delivers over TLS, with the certificate verified."""
    name = topic(on=kafka_secure)
    kafka_secure.admin.add_acl(f"User:{alice}", name, AclOperation.WRITE, AclOperation.DESCRIBE)
    assert delivery_error(client(kafka_secure, alice, "alice-password"), name) is None


def test_other_mechanisms(kafka_secure: KafkaCluster, topic: TopicFactory) -> None:
    """SCRAM-SHA-256 and PLAIN users get in as well."""
    name = topic(on=kafka_secure)
    admin = kafka_secure.admin
    admin.add_scram_user("bob", "bob-password", ScramMechanism.SCRAM_SHA_256)
    for user in ("bob", PLAIN_USER):
        admin.add_acl(f"User:{user}", name, AclOperation.WRITE)
    bob = client(kafka_secure, "bob", "bob-password", sasl_mechanisms="SCRAM-SHA-256")
    plain = client(kafka_secure, PLAIN_USER, PLAIN_PASSWORD, sasl_mechanisms="PLAIN")
    assert delivery_error(bob, name) is None
    assert delivery_error(plain, name) is None


def test_acl_denies(kafka_secure: KafkaCluster, topic: TopicFactory, alice: str) -> None:
    """A user without an ACL for the topic is refused, while the loopback plaintext listener may do anything."""
    name = topic(on=kafka_secure)
    error = delivery_error(client(kafka_secure, alice, "alice-password"), name)
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert delivery_error({"bootstrap.servers": kafka_secure.bootstrap}, name) is None


def test_wrong_password_is_refused(kafka_secure: KafkaCluster, alice: str) -> None:
    """A wrong password is an authentication error."""
    error = connection_error(client(kafka_secure, alice, "wrong"))
    assert error.code() == KafkaError._AUTHENTICATION


@pytest.mark.parametrize(
    ("listener", "trusted", "reason"),
    [
        (SECURE, "other_ca", "unable to get local issuer|self-signed"),
        (EXPIRED, "ca", "expired"),
        (MISNAMED, "ca", "IP address mismatch"),
    ],
)
def test_bad_certificate_is_refused(
    kafka_secure: KafkaCluster, alice: str, listener: str, trusted: str, reason: str
) -> None:
    """An unknown CA, an expired certificate and one for another host are refused.

    librdkafka words all three alike, so Python's own handshake tells that each fails for its own reason.
    """
    certificates = kafka_secure.certificates
    assert certificates is not None
    authority = str(getattr(certificates, trusted))
    address = kafka_secure.tls_bootstrap(listener)
    host, port = address.split(":")
    context = ssl.create_default_context(cafile=authority)
    with (
        socket.create_connection((host, int(port)), 10) as plain,
        pytest.raises(ssl.SSLCertVerificationError, match=reason),
    ):
        context.wrap_socket(plain, server_hostname=host)
    config = client(kafka_secure, alice, "alice-password", bootstrap_servers=address, ssl_ca_location=authority)
    error = connection_error(config)
    # librdkafka calls it a transport failure when the connection is gone before it looks why, which is timing.
    assert error.code() in (KafkaError._SSL, KafkaError._TRANSPORT)
    assert "certificate verify failed" in error.str()


def test_plain_cluster_has_no_secure_address(kafka: KafkaCluster) -> None:
    """Asking a plain cluster for its TLS address says what is missing."""
    with pytest.raises(ValueError, match="secure=True"):
        _ = kafka.secure_bootstrap
