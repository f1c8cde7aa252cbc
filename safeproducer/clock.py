"""The clock of everything that decides by time, in one place: a test puts another one here.

Threads that wait for each other use `time` itself. Functions are looked up at each call: `clock.monotonic()`.
"""

import time as _time
from time import monotonic, sleep, time

__all__ = ["boot", "monotonic", "sleep", "time"]

_BOOT = getattr(_time, "CLOCK_BOOTTIME", _time.CLOCK_MONOTONIC)


def boot() -> float:
    """Seconds since the system started, of sleep, too: the same for all its processes."""
    return _time.clock_gettime(_BOOT)
