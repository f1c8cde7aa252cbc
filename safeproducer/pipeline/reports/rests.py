"""How long partitions were not written to: a leader may have forgotten the producer ID in the meantime (KIP-854)."""

from __future__ import annotations

import re

from safeproducer import clock
from safeproducer.kafka.native import KafkaError
from safeproducer.kafka.statistics import Statistics
from safeproducer.policy.never import NEVER
from safeproducer.policy.topic_partition import TopicPartition

_RECENT = 60.0
"""Seconds for which a rest that is over may be the cause of an error."""
_PARTITION = re.compile(r" for (\S+) \[(\d+)\]")
_PRODUCER = re.compile(r"PID\{Id:(\d+)")

Key = tuple[int | None, TopicPartition]
"""A producer ID and a partition: each lane has its own."""


class Rests:
    """`heard()` on the sender's thread; `advised()` on any. Times are those of clock.monotonic()."""

    def __init__(self) -> None:
        self._horizon = NEVER
        self._sent: dict[Key, tuple[int, float]] = {}
        """How many records were sent, and when that was seen to have grown last."""
        self._ended: dict[Key, tuple[float, float]] = {}
        """How long the longest of the recent rests was, and when it was seen to have ended."""

    def remembered_for(self, seconds: float) -> None:
        """A leader remembers a producer ID for so long."""
        self._horizon = seconds

    def heard(self, found: Statistics) -> None:
        """Statistics of a lane."""
        for tp, entry in found.partitions.items():
            key = found.producer_id, tp
            sent, at = self._sent.get(key, (0, found.at))
            if entry.sent != sent:
                rest, ended_at = self._ended.get(key, (0.0, 0.0))
                # A retry ends a short rest of its own between the long one and the error.
                if found.at - at >= rest or found.at - ended_at > _RECENT:
                    self._ended[key] = (found.at - at, found.at)
                self._sent[key] = (entry.sent, found.at)

    def advised(self, error: KafkaError) -> KafkaError:
        """A fatal error, which says so if it came after such a rest."""
        if (
            error.code() != KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
            or (rest := self._before(error.str())) < self._horizon
        ):
            return error
        return KafkaError(
            error.code(),
            f"{error.str()}. It came after {rest:.0f} s in which nothing was written there, and a leader remembers a "
            f"producer ID for {self._horizon:g} s: it had forgotten this one (KIP-854). Shorter rests or a larger "
            f"producer.id.expiration.ms avoid that",
            fatal=bool(error.fatal()),
        )

    def _before(self, text: str) -> float:
        """The longest rest of the partition and the producer ID that librdkafka names, or of all if it names none."""
        now, tp, producer = clock.monotonic(), _PARTITION.search(text), _PRODUCER.search(text)
        rests = [0.0]
        for key, (_, at) in self._sent.copy().items():
            other = tp is not None and key[1] != (tp[1], int(tp[2]))
            if not other and (producer is None or key[0] in (None, int(producer[1]))):
                rest, ended_at = self._ended.get(key, (0.0, 0.0))
                rests += [now - at, rest if now - ended_at <= _RECENT else 0.0]
        return max(rests)
