"""Serves a producer of either class until something has happened, or for a while."""

import time
from collections.abc import Callable
from typing import Any


def serve(producer: Any, happened: Callable[[], object], seconds: float = 30.0) -> None:
    """Poll until it has happened."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it has not happened"
        producer.poll(0.05)


def rest(producer: Any, seconds: float) -> None:
    """Poll for so long."""
    end = time.monotonic() + seconds
    serve(producer, lambda: time.monotonic() >= end, seconds + 5)
