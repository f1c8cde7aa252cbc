"""Asks the cluster who leads the partitions of topics: one thread a producer, while there is something to ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from safeproducer import clock
from safeproducer.kafka.native import KafkaError
from safeproducer.pipeline.process.flag import Flag
from safeproducer.pipeline.process.helper import Helper, Trouble

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0
_ASK_FOR = 0.3
"""Seconds of one question: how long closing the producer may have to wait for it."""


class Metadata:
    """`want(topic)` and `tell(topic, lanes)` from any thread.

    - `lanes()`: by number, the first of all first, what has `list_topics(topic, timeout)` of its native producer, which
      hears the answer, too.
    - `heard(topic, lane, asked at, partition -> leader)` is called with what the cluster said, lane None for the first
      one; no partitions when it does not know the topic: librdkafka decides what that means. The lane is asked again
      unless that returns True.
    """

    def __init__(
        self,
        lanes: Callable[[], Mapping[int, Any]],
        heard: Callable[[str, int | None, float, dict[int, int]], bool],
        wake: Callable[[float], None],
        trouble: Trouble = lambda kind, what: None,
    ) -> None:
        self._lanes = lanes
        self._heard = heard
        self._wake = wake
        self._wanted: dict[tuple[str, int | None], float] = {}
        """Since when."""
        self._helper = Helper("safeproducer-metadata", self._ask, trouble)
        self._stopped = Flag()

    def want(self, topic: str) -> None:
        """Records wait for this topic to be known, by the first lane; an answer that is under way tells them, too."""
        self._wanted.setdefault((topic, None), clock.real())
        self._start()

    def tell(self, topic: str, lanes: Iterable[int]) -> None:
        """Let these lanes ask who leads the partitions of this topic."""
        now = clock.real()
        for lane in lanes:
            self._wanted[topic, lane] = now
        self._start()

    def _start(self) -> None:
        if not self._stopped.is_set():
            self._helper.start()

    def stop(self) -> None:
        self._stopped.set()

    def join(self, timeout: float) -> bool:
        """Wait until its thread has left librdkafka; whether it has."""
        self._helper.join(timeout)
        return not self._helper.alive

    def _ask(self) -> None:
        pause = _FIRST_PAUSE
        while self._wanted:
            answered = False
            for (topic, number), since in tuple(self._wanted.items()):
                if self._stopped.is_set():
                    return
                lanes = self._lanes()
                lane = next(iter(lanes.values()), None) if number is None else lanes.get(number)
                if lane is None:
                    self._wanted.pop((topic, number), None)
                    continue
                asked_at = clock.real()
                found = _answer(lane, topic)
                del lanes, lane  # a producer nobody refers to is to be freed at once
                if found is not None:
                    if self._heard(topic, number, asked_at, found) or number is None:
                        answered = True
                        if self._wanted.get((topic, number)) == since:  # else it is to ask again
                            self._wanted.pop((topic, number), None)
                    self._wake(0.0)
            pause = _FIRST_PAUSE if answered else min(2 * pause, _LONGEST_PAUSE)
            if not answered:  # a lane asks a broker that it is connected to, and that may be the one that hangs
                self._stopped.wait(pause)


def _answer(lane: Any, topic: str) -> dict[int, int] | None:
    try:
        entry = lane.list_topics(topic, _ASK_FOR).topics.get(topic)
    except Exception:  # it has no answer, or is closed by now; what is wrong with it is told where records need it
        return None
    if entry is None or (entry.error is not None and entry.error.code() == KafkaError.LEADER_NOT_AVAILABLE):
        return None
    return {number: partition.leader for number, partition in entry.partitions.items()}
