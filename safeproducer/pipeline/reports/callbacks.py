"""Exceptions out of application callbacks, which the C client carries to the caller without their traceback."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Any

from safeproducer.kafka.stand_in import StandIn


class CallbackErrors:
    """Remembers what callbacks raised until the native call they ran in has raised it. Shared by all threads.

    It tells an exception of a callback, which flush() holds back until it is done (as confluent_kafka does), from one
    that a signal handler raised, which must come through at once.
    """

    def __init__(self) -> None:
        # Bounded, because the C client drops all but the last of them.
        self._raised: deque[tuple[BaseException, TracebackType | None]] = deque(maxlen=16)

    def note(self, error: BaseException) -> BaseException:
        """The exception that the callback is to raise instead."""
        if isinstance(error, Exception):
            return StandIn(error)
        self._raised.append((error, error.__traceback__))
        return error

    def claimed(self, error: Any) -> tuple[Any, bool]:
        """(what was raised, whether by a callback), which gets its traceback back."""
        if isinstance(error, StandIn):
            return error.taken(), True
        for noted, traceback in tuple(self._raised):
            if noted is error:
                self._raised.clear()
                noted.__traceback__ = traceback
                return noted, True
        return error, False
