"""Which native producers may not have heard that another broker leads a partition, or how many partitions there are.

librdkafka learns of a new leader when the old one rejects a batch, or when its connection breaks. If the old one hangs,
that takes a time-out (`socket.timeout.ms`, a minute), and each native producer would run into one of its own, one after
the other. When one of them has waited long for an answer, the others are to ask before they send.

One that does not know of an added partition fails the records for it. When one of them has learned of another number of
partitions, the others are to ask, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

from safeproducer.policy.types import DIRECT_LANE, NEVER, TopicPartition

_PATIENCE = 120.0
"""Seconds after which one that still got no answer may send all the same: twice the default of socket.timeout.ms, after
which it gives up on the broker that it asks."""
DIFFER = 1.0  # seconds for which records that name no partition wait for lanes to learn how many there are
_NOTHING: dict[Any, Any] = {}


class OutdatedMetadata:
    """Any thread may use it: each change is one step under the interpreter lock."""

    def __init__(self) -> None:
        self.lanes: Callable[[], Iterable[int]] = tuple
        self._ask: Callable[[str, Iterable[int]], object] = lambda topic, lanes: None
        self._asked_at: dict[str, dict[int, float]] = {}  # topic -> partition -> when lanes last had to ask who leads
        self._unaware: dict[int, dict[TopicPartition, float]] = {}
        """Lane -> partition whose leader it may not know -> since when."""
        self._counts: dict[int, dict[str, int]] = {}
        """Lane -> topic -> how many partitions it takes it to have, of those that are not right."""
        self._differ_until: dict[str, float] = {}
        """Topic that some lane is wrong about -> until when records that name no partition wait."""

    def connect(self, lanes: Callable[[], Iterable[int]], ask: Callable[[str, Iterable[int]], object]) -> None:
        """`lanes()`: those that may ask; `ask` has some of them ask who leads the partitions of a topic."""
        self.lanes, self._ask = lanes, ask

    def answered_late(self, tp: TopicPartition, lane: int, sent_at: float, now: float) -> None:
        """The leader of this partition left `lane` without an answer since `sent_at`, and now there is one.

        A batch sent before the others were asked tells nothing new: each lane may have waited for the same leader.
        """
        asked_at = self._asked_at.setdefault(tp[0], {})
        if sent_at < asked_at.get(tp[1], sent_at):
            self._unaware.get(lane, _NOTHING).pop(tp, None)
        elif others := set(self.lanes()) - {lane}:
            asked_at[tp[1]] = now
            for gone in self._unaware.keys() - others - {lane}:
                self._unaware.pop(gone, None)
            for other in others:
                self._unaware.setdefault(other, {})[tp] = now
            self._unaware.get(lane, _NOTHING).pop(tp, None)
            self._ask(tp[0], tuple(others))

    def heard(self, topic: str, lane: int, asked_at: float) -> None:
        """The lane was told who leads the topic's partitions."""
        if unaware := self._unaware.get(lane):
            for tp in [(topic, partition) for partition in list(self._asked_at.get(topic, ()))]:
                if unaware.get(tp, NEVER) <= asked_at:
                    unaware.pop(tp, None)

    def counted(self, topic: str, lane: int | None, told: int, before: int, count: int, now: float) -> None:
        """A lane takes a topic to have `told` partitions; it was known to have `before`, and has `count`.

        `lane`: None for the first batch lane.
        """
        # Lanes learn of new partitions one by one. A lane that does not know a partition fails its records: those that
        # differ are to ask anew. Until they agree, or DIFFER is over, records that name no partition wait.
        if told == count == (before or count) and topic not in self._differ_until:
            return
        lanes = tuple(self.lanes())
        if lane is None:
            lane = next((number for number in lanes if number != DIRECT_LANE), 0)
        known = ((other, self._counts.get(other, _NOTHING).get(topic)) for other in lanes)
        wrong = {other: wrongly for other, wrongly in known if wrongly is not None}
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
        self.forget(topic, wrong)
        for other, wrongly in wrong.items():
            self._counts.setdefault(other, {})[topic] = wrongly
        if fresh := set(wrong) - asked:
            self._ask(topic, tuple(fresh))

    def forget(self, topic: str, wrong: Collection[int] = ()) -> None:
        """All other lanes agree, or there is no such topic any more."""
        for lane, counts in self._counts.copy().items():
            if lane not in wrong:
                counts.pop(topic, None)
        if not wrong:
            self._differ_until.pop(topic, None)

    def miscounts(self, topic: str, lane: int) -> bool:
        """Whether this lane is known to take the topic for one with another number of partitions."""
        return topic in self._counts.get(lane, _NOTHING)

    def differ(self, topic: str, now: float) -> bool:
        """Whether some lane does, and may still hear: until then a record that names no partition has none."""
        return now < self._differ_until.get(topic, now)

    def concerns(self, lane: int, tp: TopicPartition, now: float) -> bool:
        """Whether this lane may still take the old leader for the partition's, or know of no such partition."""
        if tp[1] >= self._counts.get(lane, _NOTHING).get(tp[0], tp[1] + 1):
            return True
        unaware = self._unaware.get(lane, _NOTHING)
        if (since := unaware.get(tp)) is not None and now > since + _PATIENCE:
            unaware.pop(tp, None)
            return False
        return since is not None

    def concerns_any(self, lane: int, now: float) -> bool:
        """Whether this lane may be wrong about any partition."""
        if self._counts.get(lane):
            return True
        unaware = self._unaware.get(lane)
        while unaware:  # each look ends this, or takes one away
            with suppress(StopIteration, RuntimeError):  # another thread changes it meanwhile
                if self.concerns(lane, next(iter(unaware)), now):
                    return True
        return False
