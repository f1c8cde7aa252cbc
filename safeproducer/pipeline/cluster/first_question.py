"""Has the first record of an idempotent producer acknowledged half a second sooner.

librdkafka asks for its producer ID with each answer to a question for metadata, and every 500 ms. The first such answer
comes over the connection to a bootstrap server, which is given up in the same moment, and no other one is up yet; no
further answer comes by itself. So one more question is asked as soon as there is a connection that stays.
"""

from __future__ import annotations

import atexit
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from safeproducer import clock
from safeproducer.kafka.lane_client import is_asked
from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.pipeline.process.helper import wait_while
from safeproducer.policy.never import NEVER

_SLICE = 0.1
"""Seconds of one wait inside librdkafka, of which two may follow each other: close() and the exit wait for them."""
_DELAY = 0.01
"""librdkafka connects to a broker it has heard of no sooner than 50 ms after it was made."""
_MEASURES = 2
_MEASURE_FOR = 0.15
"""Seconds; so many are made at least. The shortest counts: a busy machine makes any of them late."""
_NEAR = 0.01
_PATIENCE = 10.0
"""Brokers that were away for longer may take half a second more."""


class FirstQuestion:
    """`look()` from one thread, `stop()` and `join()` from any. Nobody waits for the answer, nor hears of a failure.

    `native()`: the native producer that is to get its ID, None when it needs it no more or is gone. `wanted`: whether
    there is one that waits for its ID. `heard(seconds)` is called at the end: an answer took that long, or longer; None
    when there was none.
    """

    def __init__(self, native: Callable[[], Any], heard: Callable[[float | None], None], wanted: bool) -> None:
        self._native = native
        self._heard = heard
        self._wanted = wanted
        self._stopped = False
        self._asking = False
        self._answered_at: float | None = None
        self._due: float | None = None
        self._thread: threading.Thread | None = None

    def look(self, topic: str | None, now: float) -> float:
        """Ask for metadata of `topic`, where records go, soon after the first of them; when to look again.

        Not at once: the thread that looks is started inside produce(), which another one would hold up.
        """
        if not self._wanted or topic is None or sys.is_finalizing():
            return NEVER
        if self._due is None:
            self._due = now + _DELAY
        if now < self._due:
            return self._due
        self._wanted = False
        thread = threading.Thread(target=self._ask, args=(topic,), name="safeproducer-first-question", daemon=True)
        _all.add(self)
        try:
            self._asking = True
            thread.start()
            self._thread = thread
        except RuntimeError:  # no room for a thread, or the interpreter is shutting down: librdkafka asks by itself
            self._asking = False
        return NEVER

    @property
    def open(self) -> bool:
        """Whether the distance is still to be heard of, which matters once something is acknowledged.

        What is acknowledged at once after the answer that had the producer ID asked for comes from near.
        """
        answered_at = self._answered_at
        return self._asking and not (answered_at is not None and clock.real() < answered_at + _NEAR)

    def stop(self) -> None:
        self._wanted, self._stopped = False, True

    def join(self, timeout: float) -> bool:
        """Wait until the thread has left librdkafka; whether it has."""
        wait_while(lambda: self._asking, self._thread, timeout)
        return not self._asking

    def _ask(self, topic: str) -> None:
        try:
            distance = self._distance(topic)
        finally:
            self._asking = False
        self._heard(distance)

    def _distance(self, topic: str) -> float | None:
        give_up_at = clock.real() + _PATIENCE
        while not self._stopped and clock.real() < give_up_at:
            native = self._native()
            if native is None:
                return None
            if is_asked(native, topic, _SLICE):
                return self._measured(native, topic)
            del native  # a producer nobody refers to is to be freed
        return None

    def _measured(self, native: Any, topic: str) -> float | None:
        shortest, measures = NEVER, 0
        self._answered_at = answered_at = clock.real()
        while measures < _MEASURES or clock.real() < answered_at + _MEASURE_FOR:
            measures += 1
            if self._stopped:
                return None
            began = clock.real()
            try:
                native.list_topics(topic, _SLICE)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._TIMED_OUT:
                    return None
            if (shortest := min(shortest, clock.real() - began)) < _NEAR:
                break
        return shortest


_all: weakref.WeakSet[FirstQuestion] = weakref.WeakSet()


def _at_exit() -> None:
    # A thread inside librdkafka would keep its producer from being destroyed before the C library's own end.
    questions = list(_all)
    for question in questions:
        question.stop()
    deadline = clock.real() + 3 * _SLICE
    for question in questions:
        question.join(max(0.0, deadline - clock.real()))


atexit.register(_at_exit)
