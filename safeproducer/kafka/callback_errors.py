"""Exceptions of callbacks go through the C client as stand-ins, and one that it left behind is swallowed.

A native call that may come from inside another one runs on a thread of its own.

The module keeps what ends a producer, or keeps it from logging in, for the records that fail by it.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

from safeproducer.kafka.advice import advice
from safeproducer.kafka.native import KafkaError
from safeproducer.runtime.log import logger

PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


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
        self.token: Exception | None = None
        """The exception of oauth_cb, until librdkafka tells that there was one: its frames may know the producer."""
        self.no_token = ""

    def note(self, error: BaseException) -> BaseException:
        if isinstance(error, Exception):
            return StandIn(error)
        self._raised.append((error, error.__traceback__))
        return error

    def ask_token(self, oauth_cb: Callable[[str], Any], config: str) -> Any:
        """Return what the application's oauth_cb does. librdkafka tells no more of it than that it raised."""
        try:
            return oauth_cb(config)
        except Exception as raised:
            frames, before = raised.__traceback__, self.no_token
            self.token = raised.with_traceback(frames and frames.tb_next)  # this one knows secrets
            self.no_token = f"your oauth_cb raised {type(raised).__name__}: {raised}"
            if self.no_token != before:
                logger.error("there is no token to log in with: oauth_cb raised", exc_info=raised)
        raise RuntimeError  # the client looks at nothing of it

    def reason(self, error: KafkaError) -> str:
        """librdkafka's text, or what oauth_cb raised."""
        if "OAuth callback raised" not in error.str() or not self.no_token:
            return str(error.str())
        self.token = None
        return self.no_token

    def claimed(self, error: Any) -> tuple[Any, bool]:
        """(what was raised, whether by a callback), which gets its traceback back."""
        if isinstance(error, StandIn):
            return error.taken(), True
        for noted, traceback in self._raised.copy():
            if noted is error:
                self._raised.clear()
                noted.__traceback__ = traceback
                return noted, True
        return error, False


class Refusals:
    """Brokers refused this to the producer as a whole. Any thread.

    `login`: why they refuse this user, until statistics show a broker connected. `fatal`: the error that ended the
    producer; None also while no more is known than that there is one. `never_sent()`: whether no record can have been
    in a request.
    """

    def __init__(self) -> None:
        self.login = ""
        self.fatal: KafkaError | None = None
        self.never_sent: Callable[[], object] = bool

    def fatal_error(self, error: KafkaError, alone: Callable[[], bool]) -> None:
        """A native producer met it. `alone()`: whether no other one may have a producer ID."""
        self.fatal = error
        # An idempotent one asks for an ID until it has one, and never again (rd_kafka_idemp_start() in librdkafka).
        self.never_sent = alone if "Failed to acquire idempotence PID" in error.str() else bool

    def why(self, code: int, fatal: KafkaError | None) -> str:
        """Why a record failed with this code, whose native producer met a fatal error; "" where that is not known."""
        if code == KafkaError._MSG_TIMED_OUT:
            return self.login
        ended = fatal is not None and (code in PURGED or code == KafkaError._FATAL)
        return advice(fatal.name(), fatal.str())[:-1] if fatal is not None and ended else ""


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
