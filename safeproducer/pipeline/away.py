"""Serving while the application is away: what the watchdog's thread serves is kept for the application's own."""

from __future__ import annotations

from collections import deque
from threading import get_ident
from typing import Any


class Away:
    """`thread` is the watchdog's while it serves the straight lane, else 0. `reports` wait for the next poll().

    An entry of `reports` is (callable, first argument, second argument).
    """

    __slots__ = ("reports", "thread")

    def __init__(self) -> None:
        self.thread = 0
        self.reports: deque[Any] = deque()

    @property
    def here(self) -> bool:
        """Whether the calling thread serves for an application that is away."""
        return self.thread != 0 and self.thread == get_ident()
