"""The clock of everything that decides by time, in one place: a test puts another one here.

Threads that wait for each other use `real()`, which no test replaces. Functions are looked up at each call:
`clock.monotonic()`.

They are those of a copy of the module `time`. A tool that stops clocks for an application's tests, as freezegun does,
replaces the module's own wherever it finds them, while brokers and librdkafka go on: a wait for them would never end.
"""

import time as _standard
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec
from time import sleep, thread_time
from typing import Any

__all__ = ["boot", "copied", "monotonic", "real", "sleep", "thread_time", "time"]
_BOOT = getattr(_standard, "CLOCK_BOOTTIME", getattr(_standard, "CLOCK_MONOTONIC", None))


def copied(module: str) -> Any:
    """Another copy of this module, which is in C: as it is, whatever was put in place of its functions."""
    spec = find_spec(module)
    assert spec is not None  # noqa: S101 - it is built in
    assert spec.loader is not None  # noqa: S101
    copy = module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy


_time = copied("time")
monotonic: Callable[[], float] = _time.monotonic
real: Callable[[], float] = _time.monotonic
time: Callable[[], float] = _time.time


def boot() -> float:
    """Seconds since the system started, of sleep, too: the same for all its processes."""
    return real() if _BOOT is None else _standard.clock_gettime(_BOOT)  # None on Windows
