"""The start of the system that is running: what a time by the boot clock belongs to."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from hashlib import blake2b
from pathlib import Path

from safeproducer.producer_ids.record import Times
from safeproducer.runtime import clock

_LINUX = Path("/proc/sys/kernel/random/boot_id")


def now() -> Times:
    """By both clocks."""
    return Times(clock.boot(), clock.time())


@cache
def boot_id() -> int:
    """Another number after each start of the system; 0 when the system does not tell."""
    try:
        name = _LINUX.read_bytes() if sys.platform == "linux" else _mac_os_x()
    except (OSError, ValueError, AttributeError):
        return 0
    return int.from_bytes(blake2b(name.strip(), digest_size=8).digest(), "little") if name.strip() else 0


def _mac_os_x() -> bytes:
    size = ctypes.c_size_t(64)
    text = ctypes.create_string_buffer(size.value)
    ctypes.CDLL(None).sysctlbyname(b"kern.bootsessionuuid", text, ctypes.byref(size), None, 0)
    return text.value
