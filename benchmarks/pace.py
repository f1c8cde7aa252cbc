"""How fast this machine runs Python now: shares of a core depend on that, ratios within a round do not."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Producer

REFERENCE_NS = 566.0
"""The time of confluent_kafka's produce() with on_delivery= where the bars on shares of a core were set."""
_CALLS = 10_000
_TRIES = 8


def stock_call_ns() -> float:
    """Nanoseconds of one call of confluent_kafka's produce() into a buffer that nothing leaves: the best of some
    tries."""
    config = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "linger.ms": 100_000}
    value = bytes(100)
    best = float("inf")
    for _ in range(_TRIES):
        producer: Any = Producer(config)
        produce = producer.produce
        started = time.perf_counter()
        for _ in range(_CALLS):
            produce("t", value, partition=0, on_delivery=_ignored)
        best = min(best, (time.perf_counter() - started) / _CALLS * 1e9)
        producer.purge()
        producer.flush(1)
    return best


def described(call_ns: float) -> str:
    """Say how `call_ns` changes shares of a core."""
    return (
        f"a call of stock's produce() took {call_ns:,.0f} ns, {call_ns / REFERENCE_NS:.2f} times as long as where the "
        f"bars on shares of a core were set ({REFERENCE_NS:.0f} ns)"
    )


def _ignored(_: Any, __: Any) -> None:
    pass
