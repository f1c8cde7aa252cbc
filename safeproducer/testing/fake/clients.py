"""What clients need or do: certificates of TLS."""

from datetime import datetime

from safeproducer.testing.fake.control import Runtime
from safeproducer.testing.fake.state.certificates import NAMES, Authority


class TlsControl(Runtime):
    """The certificates of a cluster with ``tls``. Each method raises ValueError without."""

    @property
    def ca_file(self) -> str:
        """The certificate of the authority that signed all others, for ``ssl.ca.location``. Made at each start."""
        return self._authority.ca_file

    def client_files(self, name: str) -> tuple[str, str]:
        """Make a client's certificate whose common name is ``name``; returns its file, and that of its key.

        They are for ``ssl.certificate.location`` and ``ssl.key.location``, and gone with the cluster. With
        ``tls="mutual"`` and no log-in the user in quotas and journal is the certificate's subject, ``CN=name,OU=...``.
        """
        return self._call(lambda: self._authority.client_files(name))

    def set_certificate(
        self, *names: str, not_before: datetime | None = None, not_after: datetime | None = None
    ) -> None:
        """Let all brokers show new connections another certificate, as one that has expired.

        It is for these ``names`` and addresses, without any for 127.0.0.1 and localhost, and holds from ``not_before``
        to ``not_after``; None is from the year 2000, and to 2038.
        """
        authority = self._authority
        self._call(lambda: authority.present(names or NAMES, not_before, not_after))

    @property
    def _authority(self) -> Authority:
        if self._state.access.authority is None:
            raise ValueError("tls: this FakeCluster has no certificates; give tls=True")
        return self._state.access.authority
