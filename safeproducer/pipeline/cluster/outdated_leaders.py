"""Which native producers may not have heard that another broker leads a partition.

librdkafka learns of a new leader when the old one rejects a batch, or when its connection breaks. If the old one hangs,
that takes a time-out (`socket.timeout.ms`, a minute), and each native producer would run into one of its own, one
after the other. So when one of them has waited long for an answer, the others are to ask before they send.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from safeproducer.policy.topic_partition import TopicPartition

DIRECT = -1
"""The number of the direct lane, beside those of the batch lanes."""
_PATIENCE = 120.0
"""Seconds after which one that still got no answer may send all the same: twice the default of socket.timeout.ms, after
which it gives up on the broker that it asks."""


class OutdatedLeaders:
    """Any thread may use it: each change is one step under the interpreter lock."""

    def __init__(self) -> None:
        self._lanes: Callable[[], Iterable[int]] = tuple
        self._ask: Callable[[str, Iterable[int]], object] = lambda topic, lanes: None
        self._asked_at: dict[TopicPartition, float] = {}
        self._unaware: dict[TopicPartition, set[int]] = {}

    def connect(self, lanes: Callable[[], Iterable[int]], ask: Callable[[str, Iterable[int]], object]) -> None:
        """`lanes()`: those that may ask; `ask` has some of them ask who leads the partitions of a topic."""
        self._lanes, self._ask = lanes, ask

    def answered_late(self, tp: TopicPartition, lane: int, sent_at: float, now: float) -> None:
        """The leader of this partition left `lane` without an answer since `sent_at`, and now there is one.

        What was sent before the others were asked tells nothing new: each lane may have waited for the same leader.
        """
        if sent_at < self._asked_at.get(tp, sent_at):
            self._knows(tp, lane)
        elif others := set(self._lanes()) - {lane}:
            self._asked_at[tp] = now
            self._unaware[tp] = others
            self._ask(tp[0], tuple(others))

    def heard(self, topic: str, lane: int, asked_at: float) -> None:
        """This lane was told who leads the topic's partitions."""
        for tp in tuple(self._unaware):
            if tp[0] == topic and self._asked_at[tp] <= asked_at:
                self._knows(tp, lane)

    def _knows(self, tp: TopicPartition, lane: int) -> None:
        lanes = self._unaware.get(tp)
        if lanes is not None:
            lanes.discard(lane)
            if not lanes:
                self._unaware.pop(tp, None)

    def concerns(self, lane: int, tp: TopicPartition, now: float) -> bool:
        """Whether this lane may still take the old leader for the partition's."""
        lanes = self._unaware.get(tp)
        if lanes is None:
            return False
        if now > self._asked_at[tp] + _PATIENCE:
            self._unaware.pop(tp, None)
            return False
        return lane in lanes

    def concern(self, lane: int, now: float) -> bool:
        """Whether this lane may still take the old leader of any partition for the new one."""
        return any(self.concerns(lane, tp, now) for tp in tuple(self._unaware))
