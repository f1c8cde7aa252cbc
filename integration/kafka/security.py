"""TLS material and settings of the SASL_SSL listeners of a secure cluster.

SECURE has a good certificate, and MUTUAL wants one of clients, too. EXPIRED, EARLY and MISNAMED present one that is
over, one that is not valid yet and one for another host, for the tests of what a person meets then. All know
SCRAM-SHA-512, SCRAM-SHA-256 and PLAIN users, and OAUTHBEARER tokens that nobody has signed.
"""

import datetime
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

SECURE = "SECURE"
EXPIRED = "EXPIRED"
MISNAMED = "MISNAMED"
EARLY = "EARLY"
MUTUAL = "MUTUAL"
LISTENERS = (SECURE, EXPIRED, MISNAMED, EARLY, MUTUAL)
MODULE = "org.apache.kafka.common.security"

PLAIN_USER = "plain-user"
PLAIN_PASSWORD = "plain-password"


@dataclass(frozen=True)
class Certificates:
    """Files of one cluster's TLS: the keystore of each listener, and CAs for clients."""

    ca: Path
    """Signed every listener's certificate."""
    other_ca: Path
    """Signed nothing here: a client that trusts only it must refuse the broker."""
    keystores: dict[str, Path]
    client: Path
    """A client's certificate and key, by the CA."""


def make_certificates(folder: Path) -> Certificates:
    """Write fresh keys and certificates into the folder."""
    folder.mkdir(mode=0o700, exist_ok=True)
    authority, stranger = trustme.CA(), trustme.CA()
    ca, other_ca = folder / "ca.pem", folder / "other-ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    stranger.cert_pem.write_to_path(str(other_ca))
    day = datetime.timedelta(days=1)
    now = datetime.datetime.now(datetime.UTC)
    issued = {
        SECURE: authority.issue_cert("127.0.0.1", "localhost"),
        EXPIRED: authority.issue_cert("127.0.0.1", "localhost", not_before=now - 2 * day, not_after=now - day),
        MISNAMED: authority.issue_cert("broker.elsewhere.test"),
        EARLY: authority.issue_cert("127.0.0.1", "localhost", not_before=now + day, not_after=now + 2 * day),
        MUTUAL: authority.issue_cert("127.0.0.1", "localhost"),
        "CLIENT": authority.issue_cert("client.test", common_name="client"),
    }
    keystores = {name: folder / f"{name.lower()}.pem" for name in issued}
    for name, certificate in issued.items():
        keystores[name].touch(mode=0o600)
        keystores[name].write_bytes(_keystore(certificate))
    return Certificates(ca, other_ca, keystores, keystores.pop("CLIENT"))


def secure_properties(certificates: Certificates) -> dict[str, str]:
    """Broker settings: TLS and SASL of each listener, and an authorizer that trusts only the loopback plaintext."""
    settings = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN,OAUTHBEARER",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "false",
        f"listener.name.{MUTUAL.lower()}.ssl.client.auth": "required",
    }
    for listener, keystore in certificates.keystores.items():
        prefix = f"listener.name.{listener.lower()}"
        settings |= {
            f"{prefix}.ssl.keystore.type": "PEM",
            f"{prefix}.ssl.keystore.location": str(keystore),
            f"{prefix}.scram-sha-512.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
            f"{prefix}.scram-sha-256.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
            f"{prefix}.oauthbearer.sasl.jaas.config": f"{MODULE}.oauthbearer.OAuthBearerLoginModule required;",
            f"{prefix}.plain.sasl.jaas.config": (
                f'{MODULE}.plain.PlainLoginModule required user_{PLAIN_USER}="{PLAIN_PASSWORD}";'
            ),
        }
    return settings


def _keystore(certificate: trustme.LeafCert) -> bytes:
    """Key and chain in one PEM; Kafka reads only PKCS #8 keys."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), password=None)
    chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + chain
