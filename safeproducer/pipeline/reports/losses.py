"""Records that failed at their deadlines: why, and whether others get through. health() must not forget it at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from safeproducer.policy.types import NEVER, TopicPartition
from safeproducer.runtime import clock

_SOON = 0.1
"""Seconds within which counts are not read again."""


class Lost(NamedTuple):
    """Records of a partition failed at their deadline: `since` then, and `at` last, with this `cause` or "".

    `delivered`: how many of the partition and of the producer had been delivered then.
    """

    since: float
    at: float
    delivered: tuple[int, int]
    cause: str


class Losses:
    """Which partitions' records fail at their deadlines while none gets through. Any thread."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout or NEVER
        self._by_tp: dict[TopicPartition, Lost] = {}
        self._missing: Callable[[str], str] = lambda topic: ""
        self._leader: Callable[[str, int], str] = lambda topic, partition: ""
        self._delivered: Callable[[TopicPartition], tuple[int, int]] = lambda tp: (0, 0)

    def told_by(
        self,
        missing: Callable[[str], str],
        leader: Callable[[str, int], str],
        delivered: Callable[[TopicPartition], tuple[int, int]],
    ) -> None:
        """Who says that brokers know of no such topic, and who leads a partition: clauses, "" where there is none; and
        how many records of a partition, or of a topic with -1, were delivered, and of all."""
        self._missing, self._leader, self._delivered = missing, leader, delivered

    def cause(self, topic: str, partition: int | None, late: bool) -> str:
        """Why a record failed, as far as that is known; `late`: at its deadline."""
        if not late:
            return self._missing(topic)
        now, tp = clock.monotonic(), (topic, -1 if partition is None else partition)
        found, before = self._missing(topic) or self._leader(*tp), self._by_tp.get(tp)
        if before is None or now > before.at + _SOON:  # as many as there are may fail, and counts are slow
            delivered = self._delivered(tp)
            since = now if before is None or before.delivered[0] != delivered[0] else before.since
            self._by_tp[tp] = Lost(since, now, delivered, found)
        return found

    def known(self, now: float) -> dict[TopicPartition, tuple[float, str]]:
        """Partitions whose records failed at their deadlines, with none delivered since -> (how long ago the first of
        them was accepted, about, a clause).

        While other partitions' are delivered, only for message.timeout.ms after the last one that failed.
        """
        found = {}
        for (topic, number), one in self._by_tp.copy().items():
            of_it, of_all = self._delivered((topic, number))
            if of_it == one.delivered[0] and (of_all == one.delivered[1] or now < one.at + self._timeout):
                name, cause = f"{topic} [{number}]" if number >= 0 else topic, f": {one.cause}" if one.cause else ""
                told = f"records of {name} failed at their deadline, the last {max(0.0, now - one.at):.0f} s ago"
                found[topic, number] = (
                    now - one.since + self._timeout,
                    f"{told}, and none has been delivered since{cause}",
                )
        return found
