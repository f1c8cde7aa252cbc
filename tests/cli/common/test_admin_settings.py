"""librdkafka's connection settings for a connection of our own."""

import ssl
from pathlib import Path

import pytest
import trustme

from safeproducer.cli.common.admin_settings import AdminSettings, admin_settings
from safeproducer.cli.common.settings import Setting
from safeproducer.cli.common.stop import Failure

MARKER = "MARKER-s3cret"
TLS: dict[str, Setting] = {"bootstrap.servers": "b:1", "security.protocol": "ssl"}


def test_plain_connections() -> None:
    """No TLS, no log-in."""
    assert admin_settings({"bootstrap.servers": "a:1", "linger.ms": 5}) == AdminSettings("safeproducer")
    assert admin_settings({"client.id": "me"}).client_id == "me"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "scram-sha-512"])
def test_users_and_passwords(mechanism: str) -> None:
    """By either name of the setting."""
    for name in ("sasl.mechanism", "sasl.mechanisms"):
        settings: dict[str, Setting] = {
            "bootstrap.servers": "b:1",
            "security.protocol": "sasl_plaintext",
            name: mechanism,
            "sasl.username": "u",
            "sasl.password": MARKER,
        }
        found = admin_settings(settings)
        assert found == AdminSettings("safeproducer", None, mechanism.upper(), "u", MARKER)
        assert MARKER not in repr(found)


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "GSSAPI", None])
def test_other_mechanisms_get_a_sentence(mechanism: str | None) -> None:
    """It names the mechanism, what can be used, and no password. librdkafka's default is GSSAPI."""
    settings: dict[str, Setting] = {"security.protocol": "SASL_SSL", "sasl.password": MARKER}
    with pytest.raises(Failure) as caught:
        admin_settings(settings | ({"sasl.mechanism": mechanism} if mechanism else {}))
    assert mechanism or "GSSAPI" in str(caught.value)
    assert "SCRAM-SHA-256" in str(caught.value)
    assert MARKER not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["ssl.keystore.location", "ssl.certificate.pem", "ssl.key.pem"])
def test_a_key_that_cannot_be_given_gets_a_sentence(name: str) -> None:
    """It names the setting."""
    with pytest.raises(Failure, match=name.replace(".", r"\.")):
        admin_settings({**TLS, name: MARKER})


@pytest.mark.parametrize(
    ("settings", "mode", "checks_name"),
    [
        ({}, ssl.CERT_REQUIRED, True),
        ({"ssl.endpoint.identification.algorithm": "none"}, ssl.CERT_REQUIRED, False),
        ({"enable.ssl.certificate.verification": "false"}, ssl.CERT_NONE, False),
        ({"enable.ssl.certificate.verification": False}, ssl.CERT_NONE, False),
    ],
)
def test_certificates_are_verified_as_librdkafka_does(
    settings: dict[str, Setting], mode: ssl.VerifyMode, checks_name: bool
) -> None:
    """Never less than it."""
    context = admin_settings({**TLS, **settings}).context
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (mode, checks_name)


def test_authorities_and_certificates_of_files(tmp_path: Path) -> None:
    """As a file, and as text; a client's certificate with its key."""
    authority = trustme.CA()
    ca, chain, key = tmp_path / "ca.pem", tmp_path / "chain.pem", tmp_path / "key.pem"
    authority.cert_pem.write_to_path(str(ca))
    issued = authority.issue_cert("client.test")
    issued.cert_chain_pems[0].write_to_path(str(chain))
    issued.private_key_pem.write_to_path(str(key))
    own: dict[str, Setting] = {"ssl.certificate.location": str(chain), "ssl.key.location": str(key)}
    for trusted in ({"ssl.ca.location": str(ca)}, {"ssl.ca.pem": ca.read_text()}):
        context = admin_settings({**TLS, **trusted, **own}).context
        assert context is not None
        assert len(context.get_ca_certs()) == 1
    with pytest.raises(Failure, match="TLS settings cannot be used"):
        admin_settings({**TLS, **own, "ssl.key.location": str(ca)})
