"""Records that failed at their deadlines, or were refused: why, and whether others get through."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from safeproducer.kafka.advice import told_apart
from safeproducer.policy.diagnosis import SLOW, Cause, What
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.types import NEVER, TopicPartition
from safeproducer.runtime import clock

_SOON = 0.1  # seconds within which counts are not read again
_STILL = 3.0  # seconds within which statistics show what a report tells, twice
REFUSED_TIMES = 10  # records of a partition that were refused, and none delivered: it is no single bad record


Why = Callable[[str, int, bool], str]
"""(topic, partition, whether records failed at their deadline) -> why, as a clause; "" while that is not known. Of
others, only that there is no such topic."""
Delivered = Callable[[TopicPartition], tuple[int, int]]
"""How many records of a partition, or of a topic with -1, were delivered, and of all."""


class Lost(NamedTuple):
    """A partition's records failed so many `times`, none of it delivered meanwhile: `since` then, and `at` last.

    `delivered`: how many of the partition and of the producer had been delivered then. `cause`: a clause, or "".
    `code` and `reason`: the error's name and text for those that were refused, "" for those that failed at their
    deadline. `flows`: others of the partition were delivered between this failure and the one before.
    """

    since: float
    at: float
    delivered: tuple[int, int]
    cause: str
    code: str = ""
    times: int = 1
    reason: str = ""
    flows: bool = False


class Losses:
    """Which partitions' records fail while none gets through. health() must not forget it at once. Any thread."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout or NEVER
        self._by_tp: dict[TopicPartition, Lost] = {}
        self._why: Why = lambda topic, partition, late: ""
        self._delivered: Delivered = lambda tp: (0, 0)

    def told_by(self, why: Why, delivered: Delivered) -> None:
        """Ask these why none of a partition is acknowledged, and how many records were delivered."""
        self._why, self._delivered = why, delivered

    def cause(self, topic: str, partition: int | None, late: bool, code: str = "", reason: str = "") -> str:
        """Why a record failed, as far as that is known; `late`: at its deadline; else it was refused with `code`.

        A refused one has "" unless its topic is not there: the code says why.
        """
        # All records that wait for a partition may fail at once, and to find the cause takes a look at much that is
        # known. For a moment the one that was found stands for the next records, too.
        now, tp = clock.monotonic(), (topic, -1 if partition is None else partition)
        code, before = "" if late else code, self._by_tp.get(tp)
        if not (late or code):
            return self._why(*tp, late)
        if before is not None and now <= before.at + _SOON and bool(before.code) == bool(code):  # all may fail
            self._by_tp[tp] = before._replace(times=before.times + 1)
            return before.cause
        found, delivered, since, count = self._why(*tp, late), self._delivered(tp), now, 1
        if before is not None and before.delivered[0] == delivered[0]:
            since, count = before.since, before.times + 1 if bool(before.code) == bool(code) else 1
        first = delivered if before is None or since == now else before.delivered
        flows = before is not None and (before.flows if since < now else now < before.at + _STILL)
        self._by_tp[tp] = Lost(since, now, delivered if late else first, found, code, count, reason, flows)
        return found

    def refused(self, tp: TopicPartition) -> bool:
        """Whether a record of it was refused for good a moment ago."""
        one = self._by_tp.get(tp)
        return one is not None and bool(one.code) and clock.monotonic() < one.at + _STILL

    def known(self, now: float) -> dict[TopicPartition, Cause]:
        """Partitions whose records failed, with none delivered since.

        While other partitions' are delivered, only for message.timeout.ms after the last one that failed.
        """
        found = {}
        for tp, one in self._by_tp.copy().items():
            of_it, of_all = self._delivered(tp)
            alone = of_all == one.delivered[1]
            stands = not one.flows or now >= one.since + SLOW  # what is old fails, while younger ones are delivered
            if of_it == one.delivered[0] and stands and (alone or now < one.at + self._timeout):
                found[tp] = _cause(tp, one, alone, now, self._timeout)
        return found


def _cause(tp: TopicPartition, one: Lost, alone: bool, now: float, timeout: float) -> Cause:
    """`alone`: whether no other partition's records were delivered either."""
    name, about = f"{tp[0]} [{tp[1]}]" if tp[1] >= 0 else tp[0], What("partition", tp)
    ago = f"the last {max(0.0, now - one.at):.0f} s ago, and none has been delivered since"
    if not one.code:
        told = f"records of {name} failed at their deadline, {ago}{': ' * bool(one.cause)}{one.cause}"
        return Cause("expired", told, HoldReason.EXPIRY.cure, now - one.since + timeout, what=about)
    meaning, cure = told_apart(one.code, one.reason)
    told = f"{one.times} record(s) of {name} were refused with {one.code}, {ago}: {meaning[0].lower()}{meaning[1:]}"
    harms = alone and one.times >= REFUSED_TIMES
    return Cause("refused", told, cure or None, now - one.since, what=about, harms=harms, evidence=one.code)
