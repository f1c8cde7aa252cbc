"""The native producer of a batch lane, and what comes of calling it."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from safeproducer.kafka.native import KNOWS_CLUSTER_ID, KafkaError, KafkaException, NativeProducer
from safeproducer.policy.types import NEVER
from safeproducer.runtime import clock, forks
from safeproducer.runtime.threads import allocate_lock

_QUESTIONS = 3
_QUESTION_EVERY = 0.1  # seconds: the first may go to a connection that is about to end
_QUESTIONS_FOR = 10.0
MEASURES = 2
"""So many are made at least. The shortest counts: a busy machine makes any of them late."""
_MEASURE_FOR, _MEASURE_AT_MOST = 0.15, 0.6  # seconds
_AGREE = 1.25  # times the shortest
NEAR = 0.01
PURGE_EVERY = 0.1
FLUSH_OF_MANY = 0.02
_HEARD_WITHIN = 0.5
FLUSH = 0.001
"""Seconds of flush() that send what is queued. flush(0) does not: its flag is gone before the broker's thread looks."""


class LaneClient:
    """The sender's thread calls; any thread may ask brokers for metadata.

    `failed`: the error after which it takes nothing more. A fatal one only where it is `replaceable`: other lanes take
    over.
    """

    def __init__(self, native: NativeProducer, replaceable: bool = False) -> None:
        self.native: Any = native
        self.failed: KafkaError | None = None
        self._replaceable = replaceable
        self._raised: deque[KafkaException] = deque()
        self._asking = allocate_lock()
        self._closed = False
        self._questions = _QUESTIONS
        self._question_at = 0.0
        self._made_at = clock.monotonic()
        self._purge_at = 0.0
        self._unheard_until = 0.0

    def trigger_flush(self, many: bool = False) -> None:
        """Send what is queued. The flush only queues reports, so no callback of the user runs here.

        A connection takes five of `many` batches at once, and the next ones only while the flush lasts.
        """
        self._keeping_error(self.native.flush, FLUSH_OF_MANY if many else FLUSH)

    def wait(self, timeout: float) -> None:
        """Queue the reports that arrive; wait up to `timeout` seconds for the first."""
        self._keeping_error(self.native.poll, timeout)

    def serve(self) -> int:
        """Queue the reports that arrived; how many. Raises a fatal error that a flush trigger or a wait has met."""
        if self._raised:
            raise self._raised.popleft()
        if self.failed is not None and not self._closed and (now := clock.monotonic()) >= self._purge_at:
            # What a lost connection brought back would wait for a retry that is made no more.
            self._purge_at = now + PURGE_EVERY
            self.native.purge(in_queue=True, in_flight=False, blocking=False)
        return self._call(self.native.poll, 0)

    def _keeping_error(self, call: Callable[[float], int], timeout: float) -> None:
        try:
            self._call(call, timeout)
        except KafkaException as error:
            self._raised.append(error)

    def _call(self, call: Callable[[float], int], timeout: float) -> int:
        if self._closed:
            return 0
        try:
            return call(timeout)
        except:  # noqa: E722 - a fatal error that arrives inside flush() is raised as a KafkaError, no BaseException
            raised: Any = sys.exc_info()[1]
            if isinstance(raised, KafkaError):
                raised = KafkaException(raised)
            elif not isinstance(raised, KafkaException):
                raise
        if not self.fails_by(cause_of(raised)):
            raise raised
        del raised  # it refers to this frame, and that to the native producer, which ends with its last reference
        return 0

    def fails_by(self, cause: KafkaError) -> bool:
        """Whether this error ends the lane, which takes nothing more then.

        Queued records end with an error each. Records in requests wait for their answer: purged, they would free their
        keys, and might still be written, behind the next records of these.
        """
        if not self._replaceable or not (cause.fatal() or cause.code() == KafkaError._FATAL):
            return False
        if self.failed is None or (self._purge_at == NEVER and cause.fatal()):
            self.failed, self._purge_at = cause, 0.0
            self._unheard_until = 0.0 if cause.fatal() else clock.monotonic() + _HEARD_WITHIN
            self.native.purge(in_queue=True, in_flight=False)
        elif cause.fatal():  # produce() told only that there was one
            self.failed = cause
        return True

    @property
    def over(self) -> bool:
        """Whether it failed, and the error itself was served: produce() tells only that there is one."""
        failed = self.failed
        return failed is not None and (failed.code() != KafkaError._FATAL or clock.monotonic() >= self._unheard_until)

    def retire(self, error: KafkaError) -> None:
        """The client takes nothing more, and what it has ends as it would."""
        if self.failed is None:
            self.failed, self._purge_at = error, NEVER

    def list_topics(self, topic: str | None, timeout: float) -> Any:
        """As the native producer's, which thereby hears who leads the partitions of this topic, or of all."""
        with self._asking:
            if self._closed:
                raise KafkaException(KafkaError(KafkaError._DESTROY))
            return self.native.list_topics(topic, timeout)

    def asks_for_id(self, topic: str, now: float) -> bool:
        """Have librdkafka ask for its producer ID as soon as it has a connection, without waiting for one; whether to
        come again soon. See pipeline/cluster/metadata.py."""
        if not self._questions or now > self._made_at + _QUESTIONS_FOR:
            return False
        if now >= self._question_at and self._asking.acquire(blocking=False):
            try:
                if not self._closed and is_asked(self.native, topic, 0.0):
                    self._questions -= 1
                    self._question_at = now + _QUESTION_EVERY
            finally:
                self._asking.release()
        return True

    def close(self) -> None:
        """Close the native producer; nothing may be under way on it. It must not run while another thread is inside."""
        with self._asking:
            self._closed = True
            self.native.close()


def load_answers() -> None:
    """Import what list_topics() answers with, which it does itself where it is asked first; not at the very end."""
    with suppress(ImportError), forks.loading.lock:
        import confluent_kafka.admin  # noqa: F401, PLC0415


def is_asked(native: Any, topic: str, patience: float, reached: Callable[[], object] = bool) -> bool:
    """Whether there is nothing more to ask, after up to two waits of `patience` seconds.

    `reached()` is called between them, when a broker has answered for the first time: no producer ID is there before.
    """
    began = clock.monotonic()
    try:
        if KNOWS_CLUSTER_ID:
            native.cluster_id(patience)  # asks nothing: known once the first metadata is, by which bootstrap servers go
    except KafkaException:
        return clock.monotonic() - began < patience / 2  # the brokers have none to tell
    reached()
    try:
        native.list_topics(topic, patience)
    except ImportError:  # a destructor, at the end of the interpreter: there was an answer, and no class to show it
        return True
    except KafkaException as error:
        return bool(error.args[0].code() != KafkaError._TRANSPORT)  # no connection; else it is on its way
    return True


def measured(native: Any, topic: str, patience: float, goes_on: Callable[[], bool]) -> float | None:
    """For how long answers for metadata take, or longer: the shortest of some; None without one, and when told to end.

    `patience`: seconds of one wait. Raises KafkaException when the connection ends: it was that of a bootstrap server.
    """
    # Who is found far gets a batch lane, which is a producer ID of its own; and each of a few answers may be late where
    # the broker or this process is busy. Answers that come a long way take about the same time: others are asked for
    # once more, for a while.
    taken: list[float] = []
    began_at = clock.real()
    while goes_on():
        began = clock.real()
        try:
            native.list_topics(topic, patience)
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError._TRANSPORT:
                raise
            if code != KafkaError._TIMED_OUT:
                return None
        now = clock.real()
        taken = sorted((*taken, now - began))
        if taken[0] < NEAR:
            return taken[0]
        if len(taken) >= MEASURES:
            agree = taken[1] <= _AGREE * taken[0]
            if now >= began_at + (_MEASURE_FOR if agree else _MEASURE_AT_MOST):
                return taken[0]
    return None


def cause_of(error: Exception) -> KafkaError:
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return error.args[0]
    if isinstance(error, BufferError):
        return KafkaError(KafkaError._QUEUE_FULL)
    return KafkaError(KafkaError._FAIL, str(error))
