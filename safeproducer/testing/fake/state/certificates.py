"""The certificates of a cluster with TLS, and of its clients, by an authority made for it."""

import itertools
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safeproducer.testing.fake.state.sasl import Credentials

NAMES = ("127.0.0.1", "localhost")
_SHORT = {"commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU"}


def library() -> Any:
    """trustme. Raises ModuleNotFoundError, with the way out, where it is not installed."""
    try:
        import trustme  # noqa: PLC0415 - it takes 60 ms, and most clusters have no TLS
    except ModuleNotFoundError as error:
        text = f"FakeCluster(tls=...) needs the package {error.name}: pip install 'safeproducer[testing]'"
        raise ModuleNotFoundError(text, name=error.name) from None
    return trustme


class Authority:
    """Signs the certificate of all brokers, and those of clients; ``mutual``: clients have to show one.

    Its files are gone when it is closed.
    """

    def __init__(self, *, mutual: bool) -> None:
        self._ca = library().CA()
        self._mutual = mutual
        self._folder = TemporaryDirectory(prefix="fake-cluster-")
        self._numbers = itertools.count(1)
        self.ca_file = self._path("ca.pem")
        self._ca.cert_pem.write_to_path(self.ca_file)
        self.context = self.present(NAMES)

    def _path(self, name: str) -> str:
        return str(Path(self._folder.name, name))

    def present(
        self, names: tuple[str, ...], not_before: datetime | None = None, not_after: datetime | None = None
    ) -> ssl.SSLContext:
        """Let new connections see a certificate for these names; returns the context that shows it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert(*names, not_before=not_before, not_after=not_after).configure_cert(context)
        if self._mutual:
            context.verify_mode = ssl.CERT_REQUIRED
            self._ca.configure_trust(context)
        self.context = context
        return context

    def client_files(self, name: str) -> tuple[str, str]:
        """The files of a new client's certificate and of its key."""
        number = next(self._numbers)
        certificate, key = self._path(f"client-{number}.pem"), self._path(f"client-{number}.key")
        made = self._ca.issue_cert("client.test", common_name=name)
        Path(certificate).write_bytes(b"".join(part.bytes() for part in made.cert_chain_pems))
        Path(key).touch(mode=0o600)
        Path(key).write_bytes(made.private_key_pem.bytes())
        return certificate, key

    def close(self) -> None:
        self._folder.cleanup()


@dataclass(slots=True)
class Access:
    """Who gets in: without credentials everybody, and without an authority there is no TLS."""

    credentials: Credentials | None = None
    authority: Authority | None = None


def distinguished_name(certificate: Mapping[str, Any] | None) -> str:
    """The subject of a client's certificate, as Kafka names its user; empty without one."""
    parts = [pair for one in (certificate or {}).get("subject", ()) for pair in one]
    return ",".join(f"{_SHORT.get(kind, kind)}={value}" for kind, value in reversed(parts))
