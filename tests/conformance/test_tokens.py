"""Log-ins by OAUTHBEARER (KIP-255), which end and are renewed (KIP-368)."""

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.target import LOGIN_SECONDS, PLAIN_PASSWORD, PLAIN_USER, Target
from tests.testing.raw import RawClient, hung_up

ILLEGAL_STATE, FAILED = 34, 58
REFUSAL = b'{"status":"invalid_token"}'
PLAIN = f"\0{PLAIN_USER}\0{PLAIN_PASSWORD}".encode()


@pytest.fixture
def newcomer(tokens: Target) -> Iterator[RawClient]:
    """A connection that nobody has logged in on."""
    with tokens.connect() as made:
        yield made


def token(user: str = "bob", *, seconds: float = 36_000, begun: float = -1) -> str:
    """One that nobody has signed."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": user, "iat": now + begun, "exp": now + seconds})
    return "".join(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") + "." for part in parts)


def message(value: str | None = None, *, user: str = "", more: str = "") -> bytes:
    return f"n,{f'a={user}' if user else ''},\x01auth=Bearer {value or token()}\x01{more}\x01".encode()


def handshake(client: RawClient, mechanism: str = "OAUTHBEARER", version: int = 1) -> int:
    return int(client.ask("SaslHandshake", version, mechanism=mechanism)["error_code"])


def authenticate(client: RawClient, data: bytes, version: int = 2) -> dict[str, Any]:
    return client.ask("SaslAuthenticate", version, auth_bytes=data)


def log_in(client: RawClient, data: bytes | None = None) -> int:
    """Returns for how many milliseconds it holds."""
    assert handshake(client) == 0
    answer = authenticate(client, data or message())
    assert (answer["error_code"], answer["auth_bytes"]) == (0, b"")
    return int(answer["session_lifetime_ms"])


def is_open(client: RawClient) -> bool:
    return len(client.ask("Metadata", 12, topics=[])["brokers"]) == 1


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    "first", [message(), message(user="bob"), message(more="a=b\x01"), message(more="a=b\x01c=d\x01")]
)
def test_a_token_lets_in(newcomer: RawClient, version: int, first: bytes) -> None:
    """Also with the user named, and with extensions."""
    assert handshake(newcomer) == 0
    answer = authenticate(newcomer, first, version)
    assert (answer["error_code"], answer["error_message"] or "", answer["auth_bytes"]) == (0, "", b"")
    assert answer.get("session_lifetime_ms", LOGIN_SECONDS * 1000) == LOGIN_SECONDS * 1000
    assert is_open(newcomer)


@pytest.mark.parametrize(
    "bad",
    ["nonsense", "a.b.c", token(seconds=-5, begun=-10), token(begun=7_200, seconds=9_000)],
    ids=["nonsense", "no JSON", "expired", "early"],
)
def test_a_bad_token_is_told_in_a_good_answer(newcomer: RawClient, bad: str) -> None:
    """RFC 7628: the failure itself is the answer to what the client says next."""
    assert handshake(newcomer) == 0
    answer = authenticate(newcomer, message(bad))
    assert (answer["error_code"], answer["auth_bytes"], answer["session_lifetime_ms"]) == (0, REFUSAL, 0)
    answer = authenticate(newcomer, b"\x01")
    assert (answer["error_code"], answer["error_message"]) == (FAILED, REFUSAL.decode())
    newcomer.ends()


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"garbage",
        b"\x01",
        b"n,,\x01\x01",
        message().replace(b"n,", b"y,", 1),
        message(user="eve"),
        message(more="auth=b\x01"),
        message(more="a1=b\x01"),
        message(more="a=\x7f\x01"),
    ],
    ids=["empty", "garbage", "only an end", "no pairs", "binding", "another", "two tokens", "bad key", "bad value"],
)
def test_a_message_without_a_token_fails(newcomer: RawClient, first: bytes) -> None:
    """At once, and so does one that names another user."""
    assert handshake(newcomer) == 0
    answer = authenticate(newcomer, first)
    assert (answer["error_code"], answer["auth_bytes"]) == (FAILED, b"")
    assert answer["error_message"]
    newcomer.ends()


def test_a_log_in_ends_with_its_token(newcomer: RawClient) -> None:
    """Then the broker hangs up on the next request."""
    lifetime = log_in(newcomer, message(token(seconds=1)))
    assert 0 < lifetime <= 1000
    assert is_open(newcomer)
    time.sleep(1.1)
    with hung_up():
        is_open(newcomer)


@pytest.mark.parametrize("late", [False, True])
def test_a_log_in_is_renewed(newcomer: RawClient, late: bool) -> None:
    """Before its end and after it; and not twice within a second."""
    log_in(newcomer, message(token(seconds=1)))
    time.sleep(1.1 if late else 0)
    assert log_in(newcomer) == LOGIN_SECONDS * 1000
    assert is_open(newcomer)
    assert handshake(newcomer) == ILLEGAL_STATE
    assert is_open(newcomer)


def test_the_user_stays(newcomer: RawClient) -> None:
    log_in(newcomer)
    assert handshake(newcomer) == 0
    assert authenticate(newcomer, message(token("eve")))["error_code"] == FAILED
    newcomer.ends()


def test_the_mechanism_stays(newcomer: RawClient) -> None:
    """The handshake is answered, and then the connection ends."""
    log_in(newcomer)
    assert handshake(newcomer, "PLAIN") == 0
    with hung_up():
        authenticate(newcomer, PLAIN)


def test_a_request_amid_a_renewal_ends_it(newcomer: RawClient) -> None:
    log_in(newcomer)
    assert handshake(newcomer) == 0
    (topic,) = newcomer.ask("Metadata", 12, topics=[{"name": "t"}])["topics"]
    assert topic["error_code"] == ILLEGAL_STATE
    newcomer.ends()
