"""A pytest plug-in, `-p tests.other_system`: safeproducer is imported as on a system without fork, users and flags.

What Windows does not have is taken away while the package is imported, and stays away from what it uses. Its locks of
files are those of this system.
"""

import asyncio
import fcntl
import mmap
import multiprocessing
import os
import subprocess
import sys
import time
from types import ModuleType

import confluent_kafka.admin

STANDARD = (asyncio, multiprocessing, subprocess, confluent_kafka)
"""Imported before: these choose by the name of the system."""
MISSING = {
    os: "register_at_fork fork getuid geteuid getgid pread pwrite O_NOFOLLOW O_NONBLOCK O_CLOEXEC getpgid killpg",
    mmap: "MAP_PRIVATE MAP_ANONYMOUS",
    time: "clock_gettime CLOCK_MONOTONIC CLOCK_BOOTTIME CLOCK_REALTIME",
}

for module, names in MISSING.items():
    for name in names.split():
        vars(module).pop(name, None)
_flock, msvcrt = fcntl.flock, ModuleType("msvcrt")
vars(msvcrt).update(LK_NBLCK=fcntl.LOCK_EX | fcntl.LOCK_NB, locking=lambda file, mode, _: _flock(file, mode))
sys.modules["msvcrt"] = msvcrt
sys.modules["fcntl"] = sys.modules["pwd"] = None  # type: ignore[assignment]
real, sys.platform = sys.platform, "win32"
import safeproducer.pipeline.assembly  # noqa: E402
import safeproducer.testing  # noqa: E402, F401

sys.platform = real
