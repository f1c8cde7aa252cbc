"""KIP-1269: how many batches of one producer ID a partition's leader remembers, as far as is known here.

A broker recognises a repeated batch only among the last ones it remembers, five unless it announces more. An
announcement is true of its leader in that leader epoch only: from the moment a change is known the number is five
again, until the new leader has answered. A window depends on no other partition and no other topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from safeproducer.policy import kip_1269
from safeproducer.policy.topic_partition import TopicPartition

LEAST = kip_1269.MINIMUM
"""Batches that every broker since Kafka 0.11 remembers; librdkafka relies on them."""
MOST = 1000
"""The highest value of safeproducer.window."""


class Source(StrEnum):
    """Where a window comes from."""

    ASSUMED = "assumed"
    LEADER = "leader"
    TOPIC = "topic"
    SETTING = "setting"


@dataclass(frozen=True, slots=True)
class Announcement:
    """One leader's window for one topic. `value` None: nothing usable, for `reason`."""

    value: int | None
    source: Source
    reason: str


@dataclass(frozen=True, slots=True)
class Config:
    """One entry of an answer to DescribeConfigs. `own`: set for the topic itself, not inherited from a broker."""

    value: str | None
    sensitive: bool = False
    own: bool = False


def announcement(node: int, broker: Config | None, topic: Config | None) -> Announcement:
    """The announcement in the answer of `node`, the leader; `broker` and `topic` are the two entries of KIP-1269 in it.

    A broker lists names that it does not know, too, when somebody set them: those are sensitive and have no value. The
    leader's own entry decides whether it knows the KIP; then the topic's own value counts, or what it inherits.
    """
    known = _number(broker)
    if known is None:
        return Announcement(None, Source.ASSUMED, f"broker {node}, its leader, does not announce a window (KIP-1269)")
    chosen = _number(topic)
    if topic is not None and topic.own and chosen is not None:
        return Announcement(chosen, Source.TOPIC, f"the topic's {kip_1269.TOPIC_CONFIG} is {chosen}")
    value = known if chosen is None else chosen
    return Announcement(value, Source.LEADER, f"broker {node}, its leader, remembers {value} batches of a producer")


def _number(config: Config | None) -> int | None:
    if config is None or config.sensitive or config.value is None or not config.value.isdecimal():
        return None
    value = int(config.value)
    return value if value >= LEAST else None


@dataclass(frozen=True, slots=True)
class Window:
    """How many batches may be unresolved, and why so many.

    `at`: when the leader said so, in seconds, None when it did not. `reason` is a clause that follows "because".
    """

    size: int
    source: Source
    at: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a partition, and its epoch; None where it is not known."""

    node: int | None
    epoch: int | None


NOT_ASKED = "its leader has not been asked yet"


class Windows:
    """The windows of all partitions of one producer. It is not thread-safe: its owner locks. Times are seconds.

    `max_age`: how long an announcement is believed.
    """

    def __init__(self, max_age: float) -> None:
        self._max_age = max_age
        self._leaders: dict[TopicPartition, Leader] = {}
        self._down: set[int] = set()
        self._windows: dict[TopicPartition, Window] = {}

    def leader(self, tp: TopicPartition) -> Leader:
        """Its leader, as far as was told."""
        return self._leaders.get(tp, Leader(None, None))

    def window(self, tp: TopicPartition, now: float) -> Window:
        """The number of batches of this partition that may be unresolved at `now`."""
        known = self._windows.get(tp)
        if known is None:
            return Window(LEAST, Source.ASSUMED, None, NOT_ASKED)
        if known.at is not None and now - known.at > self._max_age:
            return Window(LEAST, Source.ASSUMED, None, f"what its leader said is {now - known.at:.0f} s old")
        return known

    def led_by(self, tp: TopicPartition, leader: Leader) -> bool:
        """Note who leads a partition; whether that took away what was known.

        An epoch that is not told changes nothing as long as the node is the same.
        """
        known = self._leaders.get(tp)
        if known is not None and known.node == leader.node and (leader.epoch is None or known.epoch == leader.epoch):
            return False
        if known is not None and known.node == leader.node and known.epoch is None:
            self._leaders[tp] = leader
            return False
        self._leaders[tp] = leader
        if known is None:
            return False
        return self.reset(tp, "its leader changed, and the new one has not answered yet")

    def broke(self, down: set[int]) -> set[int]:
        """Brokers that nobody is connected to, of which a lane tells; those that were connected before."""
        before, self._down = self._down, down
        return down - before

    def reset(self, tp: TopicPartition, reason: str) -> bool:
        """Believe nothing any more; whether that makes the window smaller."""
        known = self._windows.get(tp)
        self._windows[tp] = Window(LEAST, Source.ASSUMED, None, reason)
        return known is not None and known.size > LEAST

    def announced(self, tp: TopicPartition, asked: Leader, announcement: Announcement, at: float) -> None:
        """Note what `asked` said when it was asked at `at`, unless another broker leads the partition by now."""
        if self._leaders.get(tp) != asked:
            return
        if announcement.value is None:
            self._windows[tp] = Window(LEAST, Source.ASSUMED, None, announcement.reason)
        else:
            size = min(MOST, max(LEAST, announcement.value))
            self._windows[tp] = Window(size, announcement.source, at, announcement.reason)
