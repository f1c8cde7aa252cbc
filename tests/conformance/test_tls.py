"""What a client says of certificates: the same words, whoever the broker is."""

import socket
import ssl

import pytest
from confluent_kafka import KafkaError, Producer

from tests.conformance.target import SCRAM_PASSWORD, SCRAM_USER, Target, until
from tests.testing.raw import RawClient, hung_up


def address(encrypted: Target, kind: str) -> str:
    assert encrypted.listeners is not None
    return encrypted.listeners(kind)


def complaint(encrypted: Target, kind: str, **changes: str) -> KafkaError | None:
    """The first error of a librdkafka client that is about its connection; None if it gets in."""
    seen: list[KafkaError] = []
    settings = {
        "bootstrap.servers": address(encrypted, kind),
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": SCRAM_USER,
        "sasl.password": SCRAM_PASSWORD,
        "ssl.ca.location": encrypted.files["ca"],
        "log_level": 0,
        **{name.replace("_", "."): value for name, value in changes.items()},
    }
    producer = Producer({**settings, "error_cb": seen.append})

    def said() -> list[KafkaError | None]:
        producer.poll(0.05)
        real: list[KafkaError | None] = [one for one in seen if one.code() != KafkaError._ALL_BROKERS_DOWN]
        if real:
            return real
        try:
            return [None] if producer.list_topics(timeout=0.2).brokers else []
        except Exception:
            return []

    return until(said, "an error or a connection", 20)[0]


def test_a_good_certificate(encrypted: Target) -> None:
    assert complaint(encrypted, "good") is None


@pytest.mark.parametrize(
    ("kind", "trusted", "reason"),
    [
        ("good", "other_ca", "unable to get local issuer|self-signed"),
        ("expired", "ca", "expired"),
        ("early", "ca", "not yet valid"),
        ("misnamed", "ca", "IP address mismatch"),
    ],
)
def test_a_certificate_that_is_not_good(encrypted: Target, kind: str, trusted: str, reason: str) -> None:
    """librdkafka words all alike; Python's own handshake tells that each fails for its own reason."""
    host, port = address(encrypted, kind).split(":")
    context = ssl.create_default_context(cafile=encrypted.files[trusted])
    with (
        socket.create_connection((host, int(port)), 10) as plain,
        pytest.raises(ssl.SSLCertVerificationError, match=reason),
    ):
        context.wrap_socket(plain, server_hostname=host)
    error = complaint(encrypted, kind, ssl_ca_location=encrypted.files[trusted])
    assert error is not None
    assert error.code() in (KafkaError._SSL, KafkaError._TRANSPORT)
    assert "certificate verify failed" in error.str()


def test_a_client_without_a_certificate(encrypted: Target) -> None:
    """Where one is wanted it is told so; with one it gets in."""
    error = complaint(encrypted, "mutual")
    assert error is not None
    assert "alert" in error.str()
    files = encrypted.files
    assert (
        complaint(encrypted, "mutual", ssl_certificate_location=files["certificate"], ssl_key_location=files["key"])
        is None
    )


def test_a_plain_client_on_a_port_with_tls(encrypted: Target) -> None:
    """It is hung up on; librdkafka says no more than that no broker is there."""
    seen: list[KafkaError] = []
    settings = {"bootstrap.servers": address(encrypted, "good"), "log_level": 0, "error_cb": seen.append}
    producer = Producer(settings)
    until(lambda: producer.poll(0.05) or seen, "an error")
    assert {one.code() for one in seen} == {KafkaError._ALL_BROKERS_DOWN}
    with RawClient(address(encrypted, "good")) as client, hung_up():
        client.ask("ApiVersions", 3, client_software_name="a", client_software_version="1")


def test_a_client_with_tls_on_a_plain_port(encrypted: Target, cluster: Target) -> None:
    error = complaint(encrypted, "good", bootstrap_servers=cluster.bootstrap, security_protocol="SSL")
    assert error is not None
    assert "SSL connection closed by peer" in error.str()
