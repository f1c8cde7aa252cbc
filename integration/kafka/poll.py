"""Waiting for a condition with a deadline, instead of sleeping for luck."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(probe: Callable[[], T], what: str, timeout: float = 30.0, interval: float = 0.02) -> T:
    """The first true result of `probe`; TimeoutError that names `what` and the last result after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (result := probe()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout:g} s: {what} (last seen: {result!r})")
        time.sleep(interval)
    return result
