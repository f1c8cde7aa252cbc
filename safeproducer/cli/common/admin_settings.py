"""The connection settings of librdkafka for a connection of our own (PLAINTEXT, TLS, PLAIN and SCRAM), and its answers.

`producer_states` asks over `broker_connection`.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import NamedTuple

from safeproducer.cli.common.settings import Setting
from safeproducer.cli.common.stop import Failure
from safeproducer.kafka.properties import canonical
from safeproducer.policy.types import TopicPartition

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_NOT_READABLE = ("ssl.certificate.pem", "ssl.key.pem", "ssl.keystore.location", "ssl.engine.id", "ssl.engine.location")
_CODE = "not-translated"
WHAT = "What brokers keep about producer IDs"


class AdminSettings(NamedTuple):
    """Without TLS `context` is None, without SASL `mechanism`."""

    client_id: str
    context: ssl.SSLContext | None = None
    mechanism: str | None = None
    username: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"AdminSettings({self.client_id!r}, {self.mechanism})"


def admin_settings(settings: Mapping[str, Setting], what: str = WHAT) -> AdminSettings:
    """Return what connects to a broker in the same way.

    Raises Failure for a SASL mechanism or key store without a counterpart: it names the setting, and `what` is unread.
    """
    by_name = {canonical(name): value for name, value in settings.items()}
    protocol = str(by_name.get("security.protocol", "plaintext")).upper()
    found = AdminSettings(str(by_name.get("client.id", "safeproducer")))
    if "SASL" in protocol:
        user, password = (str(by_name.get(f"sasl.{name}", "")) for name in ("username", "password"))
        found = found._replace(mechanism=_mechanism(by_name, what), username=user, password=password)
    return found._replace(context=_context(by_name, what)) if "SSL" in protocol else found


def _mechanism(by_name: Mapping[str, Setting], what: str) -> str:
    mechanism = str(by_name.get("sasl.mechanisms", "GSSAPI")).upper()
    if mechanism not in MECHANISMS:
        sentence = f"{what} can be read with the SASL mechanisms {', '.join(MECHANISMS)}, not with {mechanism}"
        way_out = "run the command as a user of one of those (sasl.mechanism, sasl.username, sasl.password)"
        raise Failure(f"{sentence}: {way_out}, or over a listener without SASL.", code=_CODE)
    return mechanism


def _context(by_name: Mapping[str, Setting], what: str) -> ssl.SSLContext:
    for name in _NOT_READABLE:
        if by_name.get(name):
            way_out = "give the certificate as PEM files instead (ssl.certificate.location, ssl.key.location)"
            raise Failure(f"{what} cannot be read with {name}: {way_out}.", code=_CODE)
    # Not create_default_context(): from Python 3.13 it refuses authorities that librdkafka takes.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    verifies = str(by_name.get("enable.ssl.certificate.verification", "true")).lower() in ("true", "t", "1")
    context.check_hostname = verifies and str(by_name.get("ssl.endpoint.identification.algorithm", "https")) == "https"
    if not verifies:
        context.verify_mode = ssl.CERT_NONE
    try:
        _load(context, by_name)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise Failure(f"The TLS settings cannot be used ({reason}): correct ssl.*.", code=_CODE) from None
    return context


def _load(context: ssl.SSLContext, by_name: Mapping[str, Setting]) -> None:
    authority, text = by_name.get("ssl.ca.location"), by_name.get("ssl.ca.pem")
    if text:
        context.load_verify_locations(cadata=str(text))
    elif authority in (None, "", "probe"):
        context.load_default_certs()
    elif os.path.isdir(str(authority)):
        context.load_verify_locations(capath=str(authority))
    else:
        context.load_verify_locations(cafile=str(authority))
    if revoked := by_name.get("ssl.crl.location"):
        context.load_verify_locations(cafile=str(revoked))
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if certificate := by_name.get("ssl.certificate.location"):
        key, password = by_name.get("ssl.key.location"), by_name.get("ssl.key.password")
        # Without a password OpenSSL would ask for it at the terminal.
        context.load_cert_chain(str(certificate), str(key) if key else None, str(password or ""))


class RememberedId(NamedTuple):
    """The state that the leader of a partition keeps of one producer ID."""

    producer_id: int
    last_sequence: int
    """The number of its last record there; -1 when the leader knows only the marker of a transaction."""
    last_timestamp: float
    """The newest record timestamp of its last batch, in seconds since the Unix epoch."""
    transactional: bool = False
    in_transaction: bool = False
    """Its transaction is open, so the leader does not forget it."""


class OpenTransaction(NamedTuple):
    """A transaction that is neither committed nor aborted. `age`, `timeout`: seconds."""

    id: str
    age: float
    timeout: float
    partitions: tuple[TopicPartition, ...]


class AskError(Exception):
    """A question without an answer; `str()` is why, `code` librdkafka's name of the error where it has one."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
