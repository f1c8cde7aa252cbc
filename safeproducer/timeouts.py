"""Timeouts of calls, as confluent_kafka takes them."""

from __future__ import annotations

import math

NO_TIMEOUT = -1.0


def seconds(timeout: float) -> float:
    """A timeout that confluent_kafka takes for a number, text not; raises its TypeError."""
    try:
        return math.ldexp(timeout, 0)
    except TypeError as error:
        raise TypeError(f"timeout {error}: give seconds, such as 1.5") from None
