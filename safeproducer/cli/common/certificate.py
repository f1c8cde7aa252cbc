"""Finds out why a broker's certificate is refused: librdkafka only says that it is."""

import re
import socket
import ssl
from collections.abc import Mapping

from safeproducer.cli.common.config_file import Setting

_ADDRESS = re.compile(r"^(?:\w+://)?\[?([^\]/\s]+?)\]?:(\d+)/")
_TIMEOUT = 3.0


def why_refused(reason: str, settings: Mapping[str, Setting]) -> str | None:
    """Return OpenSSL's words for the fault in the certificate, None if they cannot be had.

    ``reason`` is librdkafka's, which begins with the broker's address. Makes one TLS handshake with that broker,
    verified by the same authority, and sends nothing over it.
    """
    address = _ADDRESS.match(reason)
    if address is None:
        return None
    authority = settings.get("ssl.ca.location")
    try:
        context = ssl.create_default_context(cafile=authority if isinstance(authority, str) else None)
        with (
            socket.create_connection((address[1], int(address[2])), _TIMEOUT) as connection,
            context.wrap_socket(connection, server_hostname=address[1]),
        ):
            return None
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except (OSError, ValueError):
        return None
