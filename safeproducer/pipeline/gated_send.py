"""produce() of a producer that has no permit yet: what stands in place of either path until it may write (KIP-936)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from safeproducer.producer_ids.gate import Gate


class GatedSend:
    """Takes the place of the native produce(), or of Intake.send, for the first record. Any thread.

    `enter()`: passes the gate; the way behind it. It refuses by raising, and nothing was accepted then.
    """

    def __init__(self, gate: Gate, enter: Callable[[], Callable[..., Any]]) -> None:
        self.gate = gate
        self._enter = enter

    def __call__(self, *record: Any) -> None:
        self._enter()(*record)
