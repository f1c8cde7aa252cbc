"""Which native producers may not have heard that another broker leads a partition.

librdkafka learns of a new leader when the old one refuses a batch, or when its connection breaks. If the old one hangs,
that takes a time-out (`socket.timeout.ms`, a minute), and each native producer would run into one of its own, one
after the other. So when one of them has waited long for an answer, the others are to ask before they send.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from safeproducer.policy.topic_partition import TopicPartition

STRAIGHT = -1
"""The number of the straight lane, beside those of the fed lanes."""
_PATIENCE = 120.0
"""Seconds after which one that still got no answer may send all the same: twice the default of socket.timeout.ms, after
which it gives up on the broker that it asks."""


class StaleLeaders:
    """Any thread may use it: each change is one step under the interpreter lock."""

    def __init__(self) -> None:
        self.lanes: Callable[[], Iterable[int]] = tuple
        self.ask: Callable[[str, Iterable[int]], None] = _nobody
        """Lets these lanes ask who leads the partitions of a topic."""
        self._asked_at: dict[TopicPartition, float] = {}
        self._unaware: dict[TopicPartition, set[int]] = {}

    def answered_late(self, place: TopicPartition, lane: int, sent_at: float, now: float) -> None:
        """The leader of this partition left `lane` without an answer since `sent_at`, and now there is one.

        What was sent before the others were asked tells nothing new: each lane may have waited for the same leader.
        """
        if sent_at < self._asked_at.get(place, sent_at):
            self._knows(place, lane)
        elif others := set(self.lanes()) - {lane}:
            self._asked_at[place] = now
            self._unaware[place] = others
            self.ask(place[0], tuple(others))

    def heard(self, topic: str, lane: int, asked_at: float) -> None:
        """This lane was told who leads the topic's partitions."""
        for place in tuple(self._unaware):
            if place[0] == topic and self._asked_at[place] <= asked_at:
                self._knows(place, lane)

    def _knows(self, place: TopicPartition, lane: int) -> None:
        lanes = self._unaware.get(place)
        if lanes is not None:
            lanes.discard(lane)
            if not lanes:
                self._unaware.pop(place, None)

    def concerns(self, lane: int, place: TopicPartition, now: float) -> bool:
        """Whether this lane may still take the old leader for the partition's."""
        lanes = self._unaware.get(place)
        if lanes is None:
            return False
        if now > self._asked_at[place] + _PATIENCE:
            self._unaware.pop(place, None)
            return False
        return lane in lanes

    def concern(self, lane: int, now: float) -> bool:
        """Whether this lane may still take the old leader of any partition for the new one."""
        return any(self.concerns(lane, place, now) for place in tuple(self._unaware))


def _nobody(topic: str, lanes: Iterable[int]) -> None:
    pass
