"""Asks the cluster about topics that records wait for: one thread a producer, while there is something to ask."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from safeproducer.kafka.native import KafkaError, KafkaException

_ASK_FOR = 0.3
"""Seconds of one question: how long closing the producer may have to wait for it."""


class Metadata:
    """`want(topic)` from any thread; `learn(topic, partition -> leader)` is called with what the cluster said.

    A topic that the cluster does not know is learned with no partitions: librdkafka decides what that means.
    """

    def __init__(
        self, native: Any, learn: Callable[[str, dict[int, int]], None], wake: Callable[[float], None]
    ) -> None:
        self.native = native
        self._learn = learn
        self._wake = wake
        self._wanted: dict[str, None] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def want(self, topic: str) -> None:
        self._wanted[topic] = None
        if self._lock.acquire(blocking=False):  # else another thread, or the one this call interrupted, is at it
            try:
                if (self._thread is None or not self._thread.is_alive()) and not self._stopped:
                    self._thread = threading.Thread(target=self._ask, name="safeproducer-metadata", daemon=True)
                    self._thread.start()
            finally:
                self._lock.release()

    def stop(self) -> None:
        self._stopped = True

    def join(self, timeout: float) -> None:
        thread = self._thread
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join(timeout)

    def _ask(self) -> None:
        while self._wanted:
            for topic in tuple(self._wanted):
                if self._stopped:
                    return
                found = self._answer(topic)
                if found is not None:
                    self._wanted.pop(topic, None)
                    self._learn(topic, found)
                    self._wake(0.0)

    def _answer(self, topic: str) -> dict[int, int] | None:
        try:
            entry = self.native.list_topics(topic, _ASK_FOR).topics.get(topic)
        except KafkaException:
            return None
        if entry is None or (entry.error is not None and entry.error.code() == KafkaError.LEADER_NOT_AVAILABLE):
            return None
        return {number: partition.leader for number, partition in entry.partitions.items()}
