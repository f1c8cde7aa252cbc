"""KIP-1269: a partition's leader remembers so many batches of one producer ID, as far as is known here.

A broker recognises a repeated batch only among the last ones it remembers, five unless it announces more. An
announcement is true of its leader in that leader epoch only: from the moment a change is known the number is five
again, until the new leader has answered. A window depends on no other partition and no other topic.

A broker that knows the KIP remembers as many batches of a producer in a partition as the topic's config says, or else
its own, instead of 5. It tells so in a tagged field of each partition of a Produce answer, from version 14 on; the
request of that version is that of version 13. The default, 5, is not sent: no field and 5 mean the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from safeproducer.policy.cluster_metadata import PartitionInfo

TOPIC_CONFIG: Final = "producer.state.batches.to.retain"
BROKER_CONFIG: Final = "log.producer.state.batches.to.retain"
LEAST = 5
"""Batches that every broker since Kafka 0.11 remembers; librdkafka relies on them. No config may be less."""
MOST = 1000  # the highest value of safeproducer.window
NOT_ASKED = "its leader has not been asked yet"


class Source(StrEnum):
    ASSUMED = "assumed"
    LEADER = "leader"
    TOPIC = "topic"
    SETTING = "setting"


@dataclass(frozen=True, slots=True)
class Announcement:
    """A leader's window for one topic. `value` None: nothing usable, for `reason`."""

    value: int | None
    source: Source
    reason: str


@dataclass(frozen=True, slots=True)
class Config:
    """An entry of an answer to DescribeConfigs. `own`: set for the topic itself, not inherited from a broker."""

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
        return Announcement(chosen, Source.TOPIC, f"the topic's {TOPIC_CONFIG} is {chosen}")
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


class Said(NamedTuple):
    """The answer of a broker about a topic. `asked`: the step at which it was asked, see policy/cluster_metadata.py."""

    window: Window
    asked: int


def said(announcement: Announcement, asked: int, at: float) -> Said:
    """The part of an announcement that is kept. `at`: when it was asked for, in seconds."""
    if announcement.value is None:
        return Said(_assumed(announcement.reason), asked)
    size = min(MOST, max(LEAST, announcement.value))
    return Said(Window(size, announcement.source, at, announcement.reason), asked)


def window(answer: Said | None, info: PartitionInfo, broke: int, max_age: float, now: float) -> Window:
    """How many batches of a partition may be unresolved at `now`, by the `answer` of its leader.

    The answer counts if it was asked for after the leader became that in its epoch, and after the last connection to it
    `broke`, a step: it may have been restarted, and remember less. `max_age`: seconds for which it is believed.
    """
    asked = 0 if answer is None else answer.asked
    if info.led_since > asked:
        return _assumed("its leader changed, and the new one has not answered yet")
    if answer is None:
        return _assumed(NOT_ASKED)
    if broke > asked:
        return _assumed(f"the connection to broker {info.leader}, its leader, broke")
    at = answer.window.at
    if at is not None and now - at > max_age:
        return _assumed(f"what its leader said is {now - at:.0f} s old")
    return answer.window


def _assumed(reason: str) -> Window:
    return Window(LEAST, Source.ASSUMED, None, reason)
