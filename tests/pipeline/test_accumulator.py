"""Accumulators: any thread appends while the feed looks."""

from __future__ import annotations

import sys
import threading
from typing import Any

from safeproducer.pipeline.accumulator import Accumulator


def test_a_batch_is_measured_while_records_come_in() -> None:
    """Another thread that produces changes the queue at any moment, and must not end the feed's round."""
    accumulator = Accumulator("a", 0)
    record: Any = (b"v", None, None, 0, None, 20, 0.0)
    accumulator.records.extend([record] * 500)
    accumulator.bytes = 10**9
    over = threading.Event()

    def produce() -> None:
        while not over.is_set():
            accumulator.records.append(record)
            accumulator.records.pop()

    thread = threading.Thread(target=produce)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        for _ in range(2_000):
            assert accumulator.fills_count(500, 10_000)
    finally:
        sys.setswitchinterval(interval)
        over.set()
        thread.join()
