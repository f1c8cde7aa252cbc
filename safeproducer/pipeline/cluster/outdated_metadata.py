"""Which native producers may not have heard that another broker leads a partition, or how many partitions there are.

librdkafka learns of a new leader when the old one rejects a batch, or when its connection breaks. If the old one hangs,
that takes a time-out (`socket.timeout.ms`, a minute), and each native producer would run into one of its own, one after
the other. When one of them has waited long for an answer, the others are to ask before they send.

One that does not know of an added partition fails the records for it. When one of them has learned of another number of
partitions, the others are to ask, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from safeproducer.policy.types import DIRECT_LANE, TopicPartition

_PATIENCE = 120.0
"""Seconds after which one that still got no answer may send all the same: twice the default of socket.timeout.ms, after
which it gives up on the broker that it asks."""
DIFFER = 1.0
"""Seconds for which records that name no partition wait for lanes to learn how many there are."""
_NO_COUNTS: dict[int, int] = {}


class OutdatedMetadata:
    """Any thread may use it: each change is one step under the interpreter lock."""

    def __init__(self) -> None:
        self.lanes: Callable[[], Iterable[int]] = tuple
        self._ask: Callable[[str, Iterable[int]], object] = lambda topic, lanes: None
        self._asked_at: dict[TopicPartition, float] = {}
        self._unaware: dict[TopicPartition, set[int]] = {}
        self._counts: dict[str, dict[int, int]] = {}
        """Topic -> lane -> how many partitions it takes it to have, of those that are not right."""
        self._differ_until: dict[str, float] = {}

    def connect(self, lanes: Callable[[], Iterable[int]], ask: Callable[[str, Iterable[int]], object]) -> None:
        """`lanes()`: those that may ask; `ask` has some of them ask who leads the partitions of a topic."""
        self.lanes, self._ask = lanes, ask

    def answered_late(self, tp: TopicPartition, lane: int, sent_at: float, now: float) -> None:
        """The leader of this partition left `lane` without an answer since `sent_at`, and now there is one.

        A batch sent before the others were asked tells nothing new: each lane may have waited for the same leader.
        """
        if sent_at < self._asked_at.get(tp, sent_at):
            self._knows(tp, lane)
        elif others := set(self.lanes()) - {lane}:
            self._asked_at[tp] = now
            self._unaware[tp] = others
            self._ask(tp[0], tuple(others))

    def heard(self, topic: str, lane: int, asked_at: float) -> None:
        """This lane was told who leads the topic's partitions."""
        for tp in tuple(self._unaware):
            if tp[0] == topic and self._asked_at[tp] <= asked_at:
                self._knows(tp, lane)

    def counted(self, topic: str, lane: int | None, told: int, before: int, count: int, now: float) -> None:
        """This lane takes a topic to have `told` partitions; it was known to have `before`, and has `count`.

        `lane`: None for the first batch lane.
        """
        if told == count == (before or count) and topic not in self._counts:
            return
        lanes = tuple(self.lanes())
        if lane is None:
            lane = next((number for number in lanes if number != DIRECT_LANE), 0)
        wrong = {other: known for other, known in self._counts.get(topic, _NO_COUNTS).items() if other in lanes}
        if before and count != before:
            self._differ_until[topic] = now + DIFFER
            wrong = {other: wrong.get(other, before) for other in lanes if other != lane}
        asked = set(wrong) if count == before else set()
        if told != count:
            wrong[lane] = told
        else:
            wrong.pop(lane, None)
        if not wrong:
            self.forget(topic)
            return
        self._differ_until.setdefault(topic, now + DIFFER)
        self._counts[topic] = wrong
        if fresh := set(wrong) - asked:
            self._ask(topic, tuple(fresh))

    def forget(self, topic: str) -> None:
        """All lanes agree, or there is no such topic any more."""
        self._counts.pop(topic, None)
        self._differ_until.pop(topic, None)

    def miscounts(self, topic: str, lane: int) -> bool:
        """Whether this lane is known to take the topic for one with another number of partitions."""
        return lane in self._counts.get(topic, _NO_COUNTS)

    def differ(self, topic: str, now: float) -> bool:
        """Whether some lane does, and may still hear: until then a record that names no partition has none."""
        return topic in self._counts and now < self._differ_until.get(topic, now)

    def _knows(self, tp: TopicPartition, lane: int) -> None:
        lanes = self._unaware.get(tp)
        if lanes is not None:
            lanes.discard(lane)
            if not lanes:
                self._unaware.pop(tp, None)

    def concerns(self, lane: int, tp: TopicPartition, now: float) -> bool:
        """Whether this lane may still take the old leader for the partition's, or know of no such partition."""
        if tp[1] >= self._counts.get(tp[0], _NO_COUNTS).get(lane, tp[1] + 1):
            return True
        lanes = self._unaware.get(tp)
        if lanes is None:
            return False
        if now > self._asked_at[tp] + _PATIENCE:
            self._unaware.pop(tp, None)
            return False
        return lane in lanes

    def concerns_any(self, lane: int, now: float) -> bool:
        """Whether this lane may be wrong about any partition."""
        if any(lane in lanes for lanes in tuple(self._counts.values())):
            return True
        return any(self.concerns(lane, tp, now) for tp in tuple(self._unaware))
