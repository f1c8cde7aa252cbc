"""The part of a producer's configuration that any other client of the same cluster needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PREFIXES = ("sasl.", "ssl.", "security.", "broker.address.", "client.dns.", "socket.connection.")
_NAMES = frozenset({"bootstrap.servers", "metadata.broker.list", "enable.ssl.certificate.verification"})


def connection_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return where the brokers are and how to be let in; nothing that only a producer understands."""
    return {name: value for name, value in config.items() if name in _NAMES or name.startswith(_PREFIXES)}
