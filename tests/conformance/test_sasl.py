"""Log-ins by SASL: what may be asked when, and how a refusal is told."""

import base64
import hashlib
import hmac
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.target import PLAIN_PASSWORD, PLAIN_USER, SCRAM_PASSWORD, SCRAM_USER, Target
from tests.testing.raw import RawClient, hung_up

UNSUPPORTED_MECHANISM, ILLEGAL_STATE, FAILED = 33, 34, 58
MECHANISMS = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"}
PLAIN = f"\0{PLAIN_USER}\0{PLAIN_PASSWORD}".encode()
REQUESTS: dict[str, tuple[int, dict[str, Any]]] = {
    "ApiVersions": (0, {}),
    "Metadata": (12, {"topics": []}),
    "Produce": (9, {"acks": 1, "timeout_ms": 1, "topic_data": []}),
    "SaslAuthenticate": (2, {"auth_bytes": PLAIN}),
    "SaslHandshake": (1, {"mechanism": "PLAIN"}),
}


@pytest.fixture
def stranger(secure: Target) -> Iterator[RawClient]:
    """A connection that nobody has logged in on."""
    with secure.connect() as made:
        yield made


def ask(client: RawClient, api: str) -> dict[str, Any]:
    version, body = REQUESTS[api]
    return client.ask(api, version, **body)


def choose(client: RawClient, mechanism: str, version: int = 1) -> int:
    answer = client.ask("SaslHandshake", version, mechanism=mechanism)
    assert set(answer["mechanisms"]) in (MECHANISMS, set())
    error = answer["error_code"]
    assert isinstance(error, int)
    return error


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_log_in_by_plain(stranger: RawClient, version: int) -> None:
    """ApiVersions before it, everything after it; a second log-in is out of place and the connection stays."""
    assert ask(stranger, "ApiVersions")["error_code"] == 0
    assert choose(stranger, "PLAIN") == 0
    answer = stranger.ask("SaslAuthenticate", version, auth_bytes=PLAIN)
    assert (answer["error_code"], answer["error_message"] or "", answer["auth_bytes"]) == (0, "", b"")
    assert answer.get("session_lifetime_ms", 0) == 0
    assert ask(stranger, "Metadata")["topics"] == []


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("right", [True, False])
def test_a_log_in_by_scram(stranger: RawClient, mechanism: str, right: bool) -> None:
    """Two messages each way; the broker proves that it knows the password too. A wrong one is told at the second."""
    kind = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    first = f"n={SCRAM_USER},r=fyko+d2lbbFgONRv9qkxdawL"
    assert choose(stranger, mechanism) == 0
    challenge = stranger.ask("SaslAuthenticate", 2, auth_bytes=f"n,,{first}".encode())["auth_bytes"].decode()
    fields = dict(part.split("=", 1) for part in challenge.split(","))
    assert fields["r"].startswith("fyko+d2lbbFgONRv9qkxdawL")
    assert int(fields["i"]) == 4096
    password = SCRAM_PASSWORD if right else "wrong"
    salted = hashlib.pbkdf2_hmac(kind, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    key = hmac.digest(salted, b"Client Key", kind)
    bare = f"c=biws,r={fields['r']}"
    said = f"{first},{challenge},{bare}".encode()
    signature = hmac.digest(hashlib.new(kind, key).digest(), said, kind)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    answer = stranger.ask("SaslAuthenticate", 2, auth_bytes=f"{bare},p={proof}".encode())
    if right:
        verifier = hmac.digest(hmac.digest(salted, b"Server Key", kind), said, kind)
        assert (answer["error_code"], answer["auth_bytes"]) == (0, b"v=" + base64.b64encode(verifier))
        assert ask(stranger, "Metadata")["topics"] == []
    else:
        assert (answer["error_code"], answer["auth_bytes"]) == (FAILED, b"")
        stranger.ends()


@pytest.mark.parametrize("token", [b"\0nobody\0x", f"\0{PLAIN_USER}\0wrong".encode(), b"", b"no zeros"], ids=repr)
def test_a_wrong_log_in(stranger: RawClient, token: bytes) -> None:
    """Error 58, words for a person, then the connection ends."""
    assert choose(stranger, "PLAIN") == 0
    answer = stranger.ask("SaslAuthenticate", 2, auth_bytes=token)
    assert (answer["error_code"], answer["auth_bytes"]) == (FAILED, b"")
    assert answer["error_message"]
    stranger.ends()


def test_a_log_in_without_headers(secure: Target) -> None:
    """Before KIP-152 the messages travel bare, and a failure is answered by hanging up."""
    with secure.connect() as client:
        assert choose(client, "PLAIN", version=0) == 0
        client.send(PLAIN)
        assert client.receive() == b""
        assert ask(client, "Metadata")["topics"] == []
    with secure.connect() as client:
        assert choose(client, "PLAIN", version=0) == 0
        client.send(b"\0nobody\0x")
        client.ends()


@pytest.mark.parametrize(
    ("before", "api"),
    [([], "Metadata"), ([], "SaslAuthenticate"), (["ApiVersions"], "ApiVersions"), (["ApiVersions"], "Produce")],
)
def test_a_request_before_a_handshake_ends_the_connection(stranger: RawClient, before: list[str], api: str) -> None:
    for earlier in before:
        assert ask(stranger, earlier)["error_code"] == 0
    with hung_up():
        ask(stranger, api)


@pytest.mark.parametrize("api", ["ApiVersions", "Metadata", "SaslHandshake", "ListOffsets"])
def test_a_request_amid_a_log_in_is_answered_and_ends_it(stranger: RawClient, api: str) -> None:
    """Error 34 in the API's own answer, then the connection ends."""
    assert choose(stranger, "PLAIN") == 0
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    answer = stranger.ask("ListOffsets", 7, topics=topics) if api == "ListOffsets" else amid(stranger, api)
    errors = [answer["error_code"]] if "error_code" in answer else []
    errors += [topic["error_code"] for topic in answer.get("topics", []) if "error_code" in topic]
    errors += [part["error_code"] for topic in answer.get("topics", []) for part in topic.get("partitions", [])]
    assert errors == [ILLEGAL_STATE]
    stranger.ends()


def amid(client: RawClient, api: str) -> dict[str, Any]:
    """One question that has a place for an error."""
    return client.ask("Metadata", 12, topics=[{"name": "t"}]) if api == "Metadata" else ask(client, api)


def test_a_mechanism_nobody_offers(stranger: RawClient) -> None:
    """Error 33 with the list of those there are; then the connection ends."""
    answer = stranger.ask("SaslHandshake", 1, mechanism="GSSAPI")
    assert (answer["error_code"], set(answer["mechanisms"])) == (UNSUPPORTED_MECHANISM, MECHANISMS)
    stranger.ends()


def test_a_second_log_in_is_out_of_place(stranger: RawClient) -> None:
    """Both requests of a log-in are out of place then."""
    assert choose(stranger, "PLAIN") == 0
    assert ask(stranger, "SaslAuthenticate")["error_code"] == 0
    assert choose(stranger, "PLAIN") == ILLEGAL_STATE
    assert ask(stranger, "SaslAuthenticate")["error_code"] == ILLEGAL_STATE
    assert ask(stranger, "Metadata")["topics"] == []


def test_no_stranger_may_send_much(stranger: RawClient) -> None:
    """Half a megabyte before the log-in is too much (sasl.server.max.receive.size)."""
    stranger.send_raw((524_289).to_bytes(4, "big"))
    stranger.ends()


def test_a_log_in_on_a_plain_listener_is_out_of_place(client: RawClient) -> None:
    """On a plain listener both requests are answered with error 34, and the connection stays."""
    assert choose(client, "PLAIN") == ILLEGAL_STATE
    assert ask(client, "SaslAuthenticate")["error_code"] == ILLEGAL_STATE
    assert ask(client, "Metadata")["topics"] == []
