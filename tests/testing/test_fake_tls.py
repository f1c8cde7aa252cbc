"""TLS and OAUTHBEARER: real clients get in, and what is wrong with an order is told at the call."""

import json
import ssl
import stat
import sys
import time
from base64 import urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from safeproducer import SafeProducer
from safeproducer.testing import FakeCluster, FakeClusterProcess
from tests.clusters import cluster_of, fake_cluster
from tests.contract.support import poll_until, send_one
from tests.testing.raw import RawClient, hung_up

SECRET = "seldom-seen"


def validate(token: str) -> str | None:
    """Good tokens name their user; `broken` is a mistake of the test."""
    if token.startswith("broken"):
        raise LookupError("no such key")
    return token.removeprefix("of.") if token.startswith("of.") else {"number": 7}.get(token)  # type: ignore[return-value]


def jwt(seconds: float) -> str:
    claims = urlsafe_b64encode(json.dumps({"exp": time.time() + seconds}).encode()).decode().rstrip("=")
    return f"of.{claims}.{SECRET}"


running = fake_cluster({}, scope="module", tls=True, tokens=validate, reauthentication=60)


def bearer(cluster: FakeCluster, token: str, expires: float = 3600) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": cluster.ca_file,
        "sasl.mechanisms": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, time.time() + expires),
        "log_level": 0,
    }


def test_confluent_kafka_logs_in_with_a_token(cluster: FakeCluster) -> None:
    """Over TLS; the journal knows whose token it was."""
    cluster.create_topic("t")
    with SafeProducer(bearer(cluster, "of.bob")) as producer:
        send_one(producer, "t", b"a" * 500_000)
    assert [len(record.value or b"") for record in cluster.log("t")] == [500_000]
    assert {entry.user for entry in cluster.journal("Produce")} == {"bob"}


def test_confluent_kafka_logs_in_again(cluster: FakeCluster) -> None:
    """Before the log-in ends, on the same connection: no record is delivered late, and nothing is cut."""
    with cluster_of({"t": 1}, tls=True, tokens=validate, reauthentication=2) as hasty:
        with SafeProducer(bearer(hasty, "of.bob", 5)) as producer:
            send_one(producer, "t", b"a")
            hasty.wait(lambda c: len(c.journal("SaslHandshake")) > 3, 20)
            send_one(producer, "t", b"b")
        assert {entry.outcome for entry in hasty.journal()} == {"answered"}
        connections = [entry.connection for entry in hasty.journal("SaslHandshake")]
        assert len({*connections}) < len(connections)


@pytest.mark.parametrize(
    ("token", "note"),
    [
        ("bad", "the token is not good"),
        ("broken", "tokens raised LookupError('no such key')"),
        ("number", "tokens returned 7, which is neither a principal nor None"),
        (jwt(-1), "the token has expired"),
    ],
    ids=["bad", "broken", "number", "expired"],
)
def test_why_a_token_is_refused_is_in_the_journal(cluster: FakeCluster, token: str, note: str) -> None:
    """The client hears only that it is; the token itself is nowhere."""
    errors: list[KafkaError] = []
    producer = Producer({**bearer(cluster, token), "error_cb": errors.append})
    poll_until(producer, lambda: any(error.code() == KafkaError._AUTHENTICATION for error in errors))
    assert "invalid_token" in errors[0].str()
    assert {entry.note for entry in cluster.journal("SaslAuthenticate")} == {note}
    assert SECRET not in repr([cluster.journal(), [error.str() for error in errors]])


def logged_in(cluster: FakeCluster, token: str) -> RawClient:
    client = RawClient(cluster.bootstrap, tls=ssl.create_default_context(cafile=cluster.ca_file))
    client.ask("SaslHandshake", 1, mechanism="OAUTHBEARER")
    data = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    assert client.ask("SaslAuthenticate", 2, auth_bytes=data)["error_code"] == 0
    return client


@pytest.mark.parametrize(("token", "seconds"), [("", 31), ("of.bob", 61)])
def test_time_can_be_moved_to_the_end_of_a_log_in(cluster: FakeCluster, token: str, seconds: float) -> None:
    """That of the token, or that of the cluster, whichever is first; the journal says why the client is cut off."""
    with logged_in(cluster, token or jwt(30)) as client:
        cluster.advance(seconds - 16)
        assert client.ask("Metadata", 12, topics=[])["brokers"]
        cluster.advance(16)
        with hung_up():
            client.ask("Metadata", 12, topics=[])
    assert cluster.journal("Metadata")[-1].note == "the log-in has ended, and was not renewed in time"


def test_certificates_on_order() -> None:
    """New connections see the new one, and the old connections go on; a client's is a user."""
    day = timedelta(days=1)
    with FakeCluster(1, tls="mutual") as cluster:
        certificate, key = cluster.client_files("Ann / Bob")
        context = ssl.create_default_context(cafile=cluster.ca_file)
        context.load_cert_chain(certificate, key)
        with RawClient(cluster.bootstrap, tls=context) as client:
            cluster.set_certificate("localhost", not_after=datetime.now(UTC) + day)
            assert client.ask("Metadata", 12, topics=[])["brokers"]
            with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
                RawClient(cluster.bootstrap, tls=context)
        (entry,) = cluster.journal("Metadata")
        assert entry.user.startswith("CN=Ann / Bob,OU=")
        assert stat.S_IMODE(Path(key).stat().st_mode) == 0o600
    assert not Path(cluster.ca_file).exists()


def test_a_paused_broker_shakes_no_hands() -> None:
    """A process that hangs does not; it goes on where it was."""
    with FakeCluster(1, tls=True) as cluster:
        context = ssl.create_default_context(cafile=cluster.ca_file)
        cluster.pause(1)
        with pytest.raises(TimeoutError):
            RawClient(cluster.bootstrap, tls=context)
        cluster.cut()
        cluster.resume(1)
        with RawClient(cluster.bootstrap, tls=context) as client:
            assert client.ask("Metadata", 12, topics=[])["brokers"]


def test_bytes_that_are_no_tls_end_their_connection_alone(cluster: FakeCluster) -> None:
    for data in (b"\0\0\0\1x", b"\x16\x03\x01\x00\x05hello", b"GET / HTTP/1.0\r\n\r\n", b"\xff" * 5000):
        with RawClient(cluster.bootstrap) as client, hung_up():
            client.send_raw(data)
            while True:
                client._exactly(1)
    with RawClient(cluster.bootstrap) as client:
        client.send_raw(b"\x16\x03\x01")  # and hangs up amid the handshake
    cluster.wait(lambda c: not c._brokers[1]._connections)
    assert cluster._state.failures == []


def test_a_process_of_its_own_has_certificates() -> None:
    with FakeClusterProcess(1, tls=True) as cluster:
        context = ssl.create_default_context(cafile=cluster.ca_file)
        with RawClient(cluster.bootstrap, tls=context) as client:
            assert client.ask("Metadata", 12, topics=[])["brokers"]


def test_no_certificates_without_tls() -> None:
    with FakeCluster(1) as cluster:
        for ask in (lambda: cluster.ca_file, lambda: cluster.client_files("a"), cluster.set_certificate):
            with pytest.raises(ValueError, match="give tls=True"):
                ask()


def test_trustme_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trustme", None)
    with pytest.raises(ModuleNotFoundError, match=r"trustme: pip install 'safeproducer\[testing\]'"):
        FakeCluster(1, tls=True)
