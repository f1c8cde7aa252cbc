"""The clock of everything that decides by time, in one place: a test puts another one here.

Threads that wait for each other use `time` itself. Functions are looked up at each call: `clock.monotonic()`.
"""

from time import monotonic, sleep, time

__all__ = ["monotonic", "sleep", "time"]
