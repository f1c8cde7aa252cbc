"""Exceptions of callbacks go through the C client as stand-ins, and one that it left behind is swallowed.

A native call that may come from inside another one runs on a thread of its own.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

from safeproducer.kafka.native import KafkaError


class StandIn(Exception):  # noqa: N818 - the application never sees it
    """The client never lets go of what goes through it (2.16.1): the frames of the application's would keep all that
    they refer to, the producer among it."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error: Exception | None = error
        self._traceback = error.__traceback__

    def taken(self) -> Exception:
        """The exception that it stands for, with its traceback; from then on it refers to nothing."""
        error = self._error or self
        error.__traceback__ = self._traceback
        self._error = self._traceback = self.__traceback__ = self.__context__ = None
        return error


def discard_pending(raised: tuple[Any, Any, Any]) -> None:
    """Swallow a fatal error that the C client left pending; re-raise anything else.

    When librdkafka reports a fatal error while flush() serves delivery reports, the C client sets a Python exception
    and goes on calling callbacks; the first C call inside one then fails for no fault of its own, and a callback that
    does not catch that loses its record's report. The exception can even be a KafkaError, which is no BaseException.
    The producer learns of the fatal error from the flush itself.
    """
    kind, error, _ = raised
    if not (issubclass(kind, (SystemError, KafkaError))):
        raise error


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


def aside(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return or raise what `call` does, on a thread of its own.

    The C client remembers by thread that it is inside a call. A second one of the same producer, made in a callback,
    makes it forget that when it ends, and the next callback of the first one aborts the process.
    """
    returned: list[Any] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            returned.append(call(*args, **kwargs))
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="safeproducer-aside", daemon=True)
    if not sys.is_finalizing():  # before Python 3.12 the start would never end
        with suppress(RuntimeError):
            thread.start()
    if thread.ident is None:
        return call(*args, **kwargs)
    thread.join()
    if raised:
        raise raised.pop()
    return returned.pop()
