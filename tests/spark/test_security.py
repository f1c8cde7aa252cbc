"""TLS and SASL in Java's names: what they become, and that librdkafka reads the keys."""

from __future__ import annotations

import pickle
import socket
import sys
from dataclasses import replace
from pathlib import Path
from traceback import TracebackException
from typing import Any

import pytest
import trustme
from confluent_kafka import KafkaException, Producer
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)
from cryptography.x509 import load_pem_x509_certificate

from safeproducer import ConfigurationError
from safeproducer.spark.errors import KafkaWriteError
from safeproducer.spark.jaas import MODULES, OAUTHBEARER
from safeproducer.spark.options import Options
from safeproducer.spark.task import Task, write_task
from tests.spark.arrow import rows

LOGIN = f'{MODULES["SCRAM-SHA-512"]} required username="alice" password="marker";'
SCRAM = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}
TLS = {"security.protocol": "SSL"}
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
BEARER = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
ENDPOINT = {"sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token"}
HANDLER = {"sasl.login.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler"}
CLIENT = (
    f'{OAUTH} required clientId="me" clientSecret="marker" scope="kafka" extension_logicalCluster="lkc" '
    'extension_pool="p";'
)


class Given:
    """What the function at the place of tokens returns, or raises."""

    answer: Any = None
    calls = 0


def token() -> Any:
    """Named by `call:` below."""
    Given.calls += 1
    if isinstance(Given.answer, Exception):
        raise Given.answer
    return Given.answer


def parsed(settings: dict[str, str]) -> Options:
    return Options.parse({f"kafka.{name}": text for name, text in {"bootstrap.servers": "x:1", **settings}.items()})


def native(options: Options) -> None:
    """librdkafka loads keys and certificates when a producer is made."""
    Producer({**options.config, **options.resolve_secrets()}, log_level=0)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def pem(authority: trustme.CA) -> dict[str, str]:
    """A client's key, the same with a password, its certificates, and who signed them."""
    issued = authority.issue_cert("client.test")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"marker"))
    return {
        "key": issued.private_key_pem.bytes().decode(),
        "locked": locked.decode(),
        "chain": "".join(blob.bytes().decode() for blob in issued.cert_chain_pems),
        "ca": authority.cert_pem.bytes().decode(),
    }


# --- SASL ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", sorted(MODULES.keys() - {OAUTHBEARER}))
def test_a_login_becomes_user_and_password(mechanism: str) -> None:
    """The password is no setting, but a place, which hides it."""
    login = LOGIN.replace(MODULES["SCRAM-SHA-512"], MODULES[mechanism])
    options = parsed({**SCRAM, "sasl.mechanism": mechanism.lower(), "sasl.jaas.config": login})
    assert options.config["sasl.mechanism"] == mechanism
    assert options.config["sasl.username"] == "alice"
    assert options.resolve_secrets() == {"sasl.password": "marker"}
    assert "marker" not in repr(options)
    native(options)


def test_a_login_at_a_place_is_read_on_the_executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole text, or the password in it; anew each time."""
    monkeypatch.setenv("KAFKA_JAAS", LOGIN)
    whole = parsed({**SCRAM, "sasl.jaas.config": "env:KAFKA_JAAS"})
    assert whole.secrets == {"sasl.jaas.config": "env:KAFKA_JAAS"}
    assert whole.resolve_secrets() == {"sasl.username": "alice", "sasl.password": "marker"}
    native(whole)
    part = parsed({**SCRAM, "sasl.jaas.config": LOGIN.replace("marker", f"file:{tmp_path}/password")})
    (tmp_path / "password").write_text("first\n", encoding="utf-8")
    assert part.resolve_secrets() == {"sasl.password": "first"}
    (tmp_path / "password").write_text("rotated\n", encoding="utf-8")
    assert part.resolve_secrets() == {"sasl.password": "rotated"}
    monkeypatch.setenv("KAFKA_JAAS", "marker")
    with pytest.raises(ConfigurationError, match=r"'kafka\.sasl\.jaas\.config' = \*\*\*: it is no entry"):
        whole.resolve_secrets()


@pytest.mark.parametrize("place", [False, True], ids=["as it is", "at a place"])
def test_a_client_of_a_token_endpoint(place: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka asks for the tokens; the client's secret is a place as any other is."""
    monkeypatch.setenv("KAFKA_JAAS", CLIENT)
    handler = {
        "sasl.login.callback.handler.class": f"{OAUTH.rpartition('.')[0]}.secured.OAuthBearerLoginCallbackHandler"
    }
    settings = {**BEARER, **ENDPOINT, **handler, "sasl.oauthbearer.sub.claim.name": "azp"}
    options = parsed({**settings, "sasl.jaas.config": "env:KAFKA_JAAS" if place else CLIENT})
    secrets = options.resolve_secrets()
    found = {name: text for name, text in {**options.config, **secrets}.items() if "oauthbearer" in name}
    assert found == {
        "sasl.oauthbearer.method": "oidc",
        **ENDPOINT,
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "marker",
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc,pool=p",
        "sasl.oauthbearer.sub.claim.name": "azp",
    }
    assert "marker" not in repr(options)
    native(options)


@pytest.mark.parametrize(
    ("answer", "taken"),
    [
        (("marker", 1_700_000_000), ("marker", 1.7e9)),
        (("marker", 1_700_000_000_123), ("marker", 1_700_000_000.123)),
        (("marker", 1.7e9, "me", {"a": "b"}), ("marker", 1.7e9, "me", {"a": "b"})),
    ],
)
def test_a_function_gives_tokens_when_librdkafka_wants_one(answer: Any, taken: Any) -> None:
    """In the process of the producer, and not when secrets are read for a task; in seconds, or milliseconds as AWS."""
    Given.answer, Given.calls = answer, 0
    options = parsed({**BEARER, "sasl.jaas.config": f"call:{__name__}:token"})
    secrets = options.resolve_secrets()
    assert Given.calls == 0
    assert secrets["oauth_cb"]("") == taken
    assert secrets == options.resolve_secrets(), "a producer goes on with it"
    assert "marker" not in f"{options!r}{secrets!r}{pickle.loads(pickle.dumps(options))!r}"  # noqa: S301


@pytest.mark.parametrize(
    "answer", [ValueError("marker"), "marker", ("marker",), ("marker", "x"), (1, 2), ["marker"] * 5]
)
def test_a_function_that_gives_no_token_ends_the_task_at_once(answer: Any) -> None:
    """librdkafka would wait for ten seconds, and not say why; nothing of what it gave is told, nor in locals."""
    Given.answer = answer
    options = parsed({**BEARER, "sasl.jaas.config": f"call:{__name__}:token"})
    with pytest.raises(KafkaWriteError, match=rf"no token from call:{__name__}:token on .*: the call r") as raised:
        write_task([rows(0, 1)], replace(options, topic="orders"), Task(0, 0))
    assert raised.value.failure.codes == {"ConfigurationError": 1}
    assert raised.tb.tb_next is not None  # behind this frame
    shown = "".join(
        TracebackException(type(raised.value), raised.value, raised.tb.tb_next, capture_locals=True).format()
    )
    assert "marker" not in shown


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sasl.mechanism": "GSSAPI"}, "'kafka.sasl.mechanism' = 'GSSAPI': that mechanism is not supported. Give one"),
        (
            {"sasl.mechanism": "OAUTHBEARER"},
            "OAUTHBEARER needs a token endpoint. Set it, or give kafka.sasl.jaas.config=call:",
        ),
        (
            {"sasl.mechanism": "OAUTHBEARER", **ENDPOINT, "sasl.jaas.config": LOGIN},
            "= ***: its login module is not that",
        ),
        (
            {"sasl.mechanism": "OAUTHBEARER", **ENDPOINT, "sasl.jaas.config": f"{OAUTH} required;"},
            "it has no clientId and",
        ),
        (
            {"sasl.mechanism": "OAUTHBEARER", **HANDLER},
            "a class in Java cannot run in Python. Leave it out, and give kafka.",
        ),
        (
            {"sasl.mechanism": "PLAIN", **HANDLER},
            "as delegation tokens and cloud logins need it. Give sasl.mechanism=OAUTHB",
        ),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "that mechanism is not supported"),
        ({}, "'kafka.sasl.mechanism' = 'GSSAPI': Java's default is not supported. Give one of PLAIN, SCRAM-SHA-256"),
        ({"sasl.mechanism": "PLAIN"}, "= ***: sasl.mechanism=PLAIN needs a user and a password. Give"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": LOGIN}, "= ***: its login module is not that of sasl.mech"),
    ],
)
def test_a_login_that_is_none_is_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parsed({"security.protocol": "SASL_SSL", **settings})
    assert said in str(caught.value)


def test_a_setting_that_the_protocol_does_not_use_is_told() -> None:
    options = parsed({"sasl.jaas.config": LOGIN, "ssl.keystore.type": "JKS", "ssl.key.password": "marker"})
    assert options.secrets == {}
    assert options.config == parsed({}).config
    assert options.notes == (
        "not used, because kafka.security.protocol is PLAINTEXT: kafka.ssl.key.password, kafka.ssl.keystore.type",
        "not used, because kafka.security.protocol is PLAINTEXT: kafka.sasl.jaas.config",
    )


# --- TLS -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("between", ["\n", " ", "\n    ", "\r\n", "\t"])
def test_texts_in_pem_are_loaded(between: str, pem: dict[str, str]) -> None:
    """Authorities, certificates and a key with a password. Java takes them on one line, too, as a file of properties
    brings them. Text before an entry stays."""
    texts = {name: text.strip().replace("\n", between) for name, text in pem.items()}
    for key, password in (("key", {}), ("locked", {"ssl.key.password": "marker"})):
        options = parsed(
            {
                **TLS,
                "ssl.truststore.type": "pem",
                "ssl.truststore.certificates": f"{texts['ca']}{between}{texts['ca']}\nabout the next one\n{pem['ca']}",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": texts["chain"],
                "ssl.keystore.key": texts[key],
                **password,
            }
        )
        assert options.notes == ()
        assert sorted(options.secrets) == sorted(["ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem", *password])
        assert "BEGIN" not in repr(options)
        assert options.resolve_secrets()["ssl.ca.pem"].count(f"\n{pem['ca']}") == 3
        native(options)
    with pytest.raises(KafkaException, match=r"ssl\.key\.pem"):
        Producer({**options.config, **options.resolve_secrets(), "ssl.key.password": "wrong"}, log_level=0)


def test_files_in_pem_are_loaded(pem: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key store is one file with the key and its certificates, in either order; the password at a place."""
    monkeypatch.setenv("KEY_PASSWORD", "marker")
    (tmp_path / "ca.pem").write_text(pem["ca"], encoding="utf-8")
    for name, parts in (("key-first", ("locked", "chain")), ("key-last", ("chain", "locked"))):
        store = tmp_path / f"{name}.pem"
        store.write_text("".join(pem[part] for part in parts), encoding="utf-8")
        options = parsed(
            {
                **TLS,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(tmp_path / "ca.pem"),
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(store),
                "ssl.key.password": "env:KEY_PASSWORD",
            }
        )
        assert options.config["ssl.ca.location"] == str(tmp_path / "ca.pem")
        assert options.config["ssl.key.location"] == options.config["ssl.certificate.location"] == str(store)
        assert options.secrets == {"ssl.key.password": "env:KEY_PASSWORD"}
        native(options)


@pytest.fixture
def trust_store(pem: dict[str, str], tmp_path: Path) -> Path:
    """A trust store in PKCS#12, with the password marker."""
    held = [PKCS12Certificate(load_pem_x509_certificate(pem["ca"].encode()), b"ca")]
    store = tmp_path / "trust.p12"
    store.write_bytes(serialize_java_truststore(held, BestAvailableEncryption(b"marker")))
    return store


def test_a_trust_store_in_pkcs12_is_read_on_the_executor(pem: dict[str, str], trust_store: Path) -> None:
    """librdkafka takes no such file for authorities, and gets their certificates."""
    options = parsed({**TLS, **TRUST, "ssl.truststore.location": str(trust_store)})
    assert "marker" not in repr(options)
    assert options.resolve_secrets() == {"ssl.ca.pem": f"\n{pem['ca']}".strip() + "\n"}
    native(options)


@pytest.mark.parametrize(
    ("location", "password", "said"),
    [
        ("absent", "marker", "the file cannot be read (No such file"),
        ("trust.p12", "wrong", "it is no PKCS#12 store, or has another password"),
        ("empty.p12", "marker", "it holds no certificate"),
    ],
)
def test_a_trust_store_that_cannot_be_read_is_named(
    trust_store: Path, location: str, password: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the host, as it may be there on others; without the package it says what to install."""
    key = ec.generate_private_key(ec.SECP256R1())
    made = serialize_key_and_certificates(None, key, None, None, BestAvailableEncryption(b"marker"))
    trust_store.with_name("empty.p12").write_bytes(made)
    place = str(trust_store.with_name(location))
    options = parsed({**TLS, **TRUST, "ssl.truststore.location": place, "ssl.truststore.password": password})
    with pytest.raises(ConfigurationError) as raised:
        options.resolve_secrets()
    assert f"{socket.gethostname()}: {said}" in str(raised.value)
    assert password not in str(raised.value).replace("another password", "")
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization.pkcs12", None)
    with pytest.raises(ConfigurationError, match=r"cryptography is not installed.*safeproducer\[pkcs12\]"):
        options.resolve_secrets()


def test_a_key_store_in_pkcs12_is_loaded(pem: dict[str, str], tmp_path: Path) -> None:
    """librdkafka reads those, and no others in Java's formats."""
    key = load_pem_private_key(pem["key"].encode(), None)
    certificate = load_pem_x509_certificate(pem["chain"].encode())
    store = tmp_path / "client.p12"
    encryption = BestAvailableEncryption(b"marker")
    store.write_bytes(serialize_key_and_certificates(b"client", key, certificate, None, encryption))  # type: ignore[arg-type]
    given = {**TLS, "ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(store)}
    options = parsed({**given, "ssl.keystore.password": "marker", "ssl.key.password": "marker"})
    assert options.notes[-1].startswith("kafka.ssl.key.password is not used: ")
    assert options.config["ssl.keystore.location"] == str(store)
    native(options)
    with pytest.raises(KafkaException, match=r"ssl\.keystore\.location"):
        native(parsed({**given, "ssl.keystore.password": "wrong"}))


def test_authorities_of_the_system_are_told() -> None:
    (told,) = parsed(TLS).notes
    assert told.startswith("kafka.ssl.truststore.location is not set: ")


KEYS = {"ssl.keystore.certificate.chain": "marker", "ssl.keystore.key": "marker", "ssl.keystore.type": "PEM"}
TRUST = {"ssl.truststore.type": "PKCS12", "ssl.truststore.password": "marker"}
PEM_FILE = {"ssl.keystore.location": "x.pem", "ssl.keystore.type": "PEM"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ssl.truststore.location": "a.jks"}, "'kafka.ssl.truststore.type' = 'JKS': a store of type JKS, Java's def"),
        (
            {"ssl.truststore.location": "a", "ssl.truststore.type": "PKCS12"},
            "'kafka.ssl.truststore.password' = ***: it is not set, and a PKCS#12 store has a password",
        ),
        (
            {"ssl.truststore.location": "a", "ssl.truststore.type": "PEM", "ssl.truststore.password": "marker"},
            "'kafka.ssl.truststore.password' = ***: a trust store in PEM has no",
        ),
        (
            {"ssl.truststore.location": "a", "ssl.truststore.certificates": "marker"},
            "'kafka.ssl.truststore.location' = 'a': kafka.ssl.truststore.certificates is set as well",
        ),
        ({"ssl.keystore.location": "a.jks", "ssl.keystore.password": "marker"}, "'kafka.ssl.keystore.type' = 'JKS'"),
        ({**PEM_FILE, "ssl.keystore.password": "marker"}, "password' = ***: a key store in PEM has no password"),
        ({**PEM_FILE, "ssl.keystore.key": "marker"}, "'x.pem': kafka.ssl.keystore.key is set as well. Leave one"),
        ({**KEYS, "ssl.keystore.key": ""}, "'kafka.ssl.keystore.key' = ***: it is not set, and certificates need"),
        ({**KEYS, "ssl.keystore.certificate.chain": ""}, "chain' = ***: it is not set, and a key needs its certif"),
        ({**KEYS, "ssl.keystore.type": "PKCS12"}, "'kafka.ssl.keystore.location' = '': it is not set, and a PKCS#12"),
        (
            {"ssl.keystore.location": "a", "ssl.keystore.type": "PKCS12"},
            "'kafka.ssl.keystore.password' = ***: it is not set, and a PKCS#12 store has a password",
        ),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "OpenSSL calls cipher suites by other names than Java"),
    ],
)
def test_stores_that_cannot_be_read_are_refused(settings: dict[str, str], said: str) -> None:
    """By name and way out, and without any key or password."""
    with pytest.raises(ConfigurationError) as caught:
        parsed({**TLS, **settings})
    assert said in str(caught.value)
    assert "marker" not in str(caught.value)
