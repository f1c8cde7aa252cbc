"""Log-ins by SASL: PLAIN and SCRAM, right and wrong, by real clients and by raw requests."""

import base64
import hashlib
import hmac
import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from hypothesis import given
from hypothesis import strategies as st

from safeproducer import SafeProducer
from safeproducer.testing import FakeCluster
from safeproducer.testing.fake.state.sasl import MECHANISMS, Credentials, SaslError, ScramExchange, begin
from tests.clusters import fake_cluster
from tests.contract.support import poll_until
from tests.testing.raw import RawClient

AUTHENTICATION_FAILED = 58
SECRET = "s3cr=t, with ünïcode"
USERS = {"alice": SECRET, "b=o,b": "pencil"}
PLAIN = b"\0alice\0" + SECRET.encode()


running = fake_cluster({}, scope="module", users=USERS)


def choose(client: RawClient, mechanism: str, version: int = 1) -> int:
    answer = client.ask("SaslHandshake", version, mechanism=mechanism)
    assert answer["mechanisms"] == list(MECHANISMS) or not answer["mechanisms"]
    return int(answer["error_code"])


def authenticate(client: RawClient, token: bytes, version: int = 2) -> dict[str, Any]:
    return client.ask("SaslAuthenticate", version, auth_bytes=token)


def settings(cluster: FakeCluster, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", USERS)
def test_confluent_kafka_logs_in(cluster: FakeCluster, mechanism: str, user: str) -> None:
    """By both mechanisms, with names and passwords of any characters; the journal knows who it was."""
    cluster.create_topic("t")
    with SafeProducer(settings(cluster, mechanism, user, USERS[user])) as producer:
        producer.produce("t", b"a")
        assert producer.flush(10) == 0
        assert producer.snapshot().delivered == 1
    assert {entry.user for entry in cluster.journal("Produce")} == {user}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_told_and_ends_the_connection(cluster: FakeCluster, mechanism: str) -> None:
    """librdkafka reports the failed log-in; nothing but the log-in was asked; no text names the password."""
    errors: list[KafkaError] = []
    producer = Producer({**settings(cluster, mechanism, "alice", "wrong-one"), "error_cb": errors.append})
    poll_until(producer, lambda: any(error.code() == KafkaError._AUTHENTICATION for error in errors))
    (error, *_) = [error for error in errors if error.code() == KafkaError._AUTHENTICATION]
    assert "failed" in error.str().lower()
    assert {entry.api for entry in cluster.journal()} == {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
    shown = repr([cluster.journal(), errors])
    assert "wrong-one" not in shown
    assert SECRET not in shown


def test_a_failure_is_told_late_with_error_58(client: RawClient) -> None:
    """After 100 ms, so that guessing takes time; the text is one for a wrong name, password and identity."""
    choose(client, "PLAIN")
    began = time.monotonic()
    answer = authenticate(client, b"\0nobody\0" + SECRET.encode())
    assert (answer["error_code"], answer["auth_bytes"]) == (AUTHENTICATION_FAILED, b"")
    assert time.monotonic() - began >= 0.1
    client.ends()
    for token in (b"\0alice\0wrong", b"bob" + PLAIN):
        with pytest.raises(SaslError) as wrong:
            begin("PLAIN", Credentials(USERS)).step(token)
        assert str(wrong.value) == answer["error_message"]


def test_a_log_in_can_be_made_to_fail(cluster: FakeCluster, client: RawClient) -> None:
    """`fail_next` works on log-ins too, whatever the password."""
    cluster.fail_next("SaslAuthenticate", AUTHENTICATION_FAILED)
    choose(client, "PLAIN")
    assert authenticate(client, PLAIN)["error_code"] == AUTHENTICATION_FAILED
    client.ends()


def test_no_text_shows_a_secret() -> None:
    """Neither what holds the passwords nor what is made of them."""
    credentials = Credentials({"alice": "hush-hush"})
    keys = credentials.scram_keys("alice", "SCRAM-SHA-256")
    assert keys is not None
    shown = repr([credentials, keys]) + str(credentials)
    assert "hush" not in shown
    assert repr(keys.stored_key) not in shown


def scram(exchange: ScramExchange, *, user: str = "alice", password: str = SECRET, **changed: str) -> None:
    """A client's half, right but for what is changed: first, nonce, binding, proof."""
    first = changed.get("first", f"n,,n={user},r=abc")
    challenge = exchange.step(first.encode()).decode()
    fields = dict(part.split("=", 1) for part in challenge.split(","))
    bare = f"c={changed.get('binding', 'biws')},r={fields['r']}{changed.get('nonce', '')}"
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    key = hmac.digest(salted, b"Client Key", "sha256")
    said = f"{first.split(',', 2)[2]},{challenge},{bare}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), said, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    exchange.step(f"{bare},p={changed.get('proof', proof)}".encode())


def test_the_test_clients_half_of_scram_is_right() -> None:
    """Unchanged it logs in; with an authorization identity of its own as well."""
    for first in ("n,,n=alice,r=abc", "n,a=alice,n=alice,r=abc"):
        exchange = ScramExchange("SCRAM-SHA-256", Credentials(USERS))
        scram(exchange, first=first, binding=base64.b64encode(first.split("n=")[0].encode()).decode())
        assert exchange.user == "alice"


@pytest.mark.parametrize(
    "changed",
    [
        {"password": "wrong"},
        {"user": "nobody"},
        {"nonce": "x"},
        *({"binding": binding} for binding in ("eSws", "!")),
        *({"proof": proof} for proof in ("!", "AAAA")),
        *({"first": f"{flag}n=alice,r=abc"} for flag in ("y,,", "p=tls-unique,,", "n,a=bob,")),
        *({"first": first} for first in ("n,,n=al=ice,r=abc", "n,,n=alice", "")),
    ],
    ids=str,
)
def test_scram_refuses_what_is_not_right(changed: dict[str, str]) -> None:
    """A wrong proof, another nonce, channel binding, a foreign identity: all with the same words."""
    exchange = ScramExchange("SCRAM-SHA-256", Credentials(USERS))
    with pytest.raises(SaslError, match="log-in by SCRAM-SHA-256 failed"):
        scram(exchange, **changed)
    assert exchange.user is None


CREDENTIALS = Credentials({"alice": "x"})


@given(st.sampled_from(MECHANISMS), st.lists(st.binary(max_size=60), min_size=1, max_size=3))
def test_no_bytes_do_more_than_fail(mechanism: str, tokens: list[bytes]) -> None:
    """Whatever a stranger sends, a log-in goes on or fails with SaslError."""
    exchange = begin(mechanism, CREDENTIALS)
    for token in tokens:
        try:
            exchange.step(token)
        except SaslError:
            break
    assert exchange.user is None
