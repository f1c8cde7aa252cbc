"""Free TCP ports on the loopback address."""

import fcntl
import functools
import random
import socket
from pathlib import Path
from typing import IO

from integration.kafka.folders import scratch_root

LOOPBACK = "127.0.0.1"
LOWEST = 10_000
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


_given: set[int] = set()
"""What this process got; the lock below keeps other processes away, not this one."""


def free_ports(count: int) -> list[int]:
    """`count` different ports that nobody listens on now, and that no other call gets while this process lives.

    On some of them nobody listens for a while: a tap's port, a node that is down. They lie below the range from which
    the system serves outgoing connections. Somebody else may take one before it is used: whoever binds must be ready
    to retry.
    """
    highest = int(EPHEMERAL.read_text().split()[0]) if EPHEMERAL.exists() else 32_768
    candidates = range(LOWEST, highest) if highest - LOWEST > 1_000 else range(LOWEST, 65_536)
    found: list[int] = []
    for port in random.SystemRandom().sample(candidates, len(candidates)):
        if len(found) == count:
            break
        if _claim(port):
            found.append(port)
    return found


def is_listening(port: int) -> bool:
    """Whether somebody accepts connections on the port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _claim(port: int) -> bool:
    if port in _given or not _is_free(port):
        return False
    try:
        fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _given.add(port)
    return True


@functools.cache
def _claims() -> IO[str]:
    """A file whose byte N is locked by the process that uses port N; kept open, for closing it gives all of them up."""
    return (scratch_root() / "ports").open("a")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
