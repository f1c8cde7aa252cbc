"""Free TCP ports on the loopback address."""

from __future__ import annotations

import random
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
LOWEST = 10_000
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """`count` different ports that nobody listens on now.

    They lie below the range from which the system serves outgoing connections, so that a restarted node finds its
    port still free. Another process may take one before it is used: whoever binds must be ready to retry.
    """
    highest = int(EPHEMERAL.read_text().split()[0]) if EPHEMERAL.exists() else 32_768
    candidates = range(LOWEST, highest) if highest - LOWEST > 1_000 else range(LOWEST, 65_536)
    found: list[int] = []
    for port in random.SystemRandom().sample(candidates, len(candidates)):
        if len(found) == count:
            break
        if _is_free(port):
            found.append(port)
    return found


def is_listening(port: int) -> bool:
    """Whether somebody accepts connections on the port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
