"""How old the oldest unacknowledged record of each partition is, told from counts that come now and then.

librdkafka numbers the records of a partition as they are given to it, and acknowledges them in that order. The record
after the last acknowledged one was given to it when the count of given records passed that number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from safeproducer.policy.expiry import LEAST_LIMIT, purge_at
from safeproducer.policy.types import NEVER, UNPLACED, TopicPartition


@dataclass(slots=True)
class _Backlog:
    """`history`: (when given, records given by then, accepted since when), oldest first, while some is unacknowledged.

    `released`: (when, since when the oldest one had waited), of records that were given after they had waited.
    `unanswered_since`: a request with records of it has been under way at each look since then. `sent`: attempts by the
    last progress; `refused`: one that began since then was answered, and no record was acknowledged.
    `begun_at`: nothing was given before that.
    """

    unanswered_since: float = NEVER
    sent: int = 0
    refused: bool = False
    forgiven: int = 0
    counted: int = 0
    counted_before: int = 0
    certain: int = 0
    given: int = 0
    acknowledged: int = 0
    at: float = 0.0
    begun_at: float = 0.0
    advanced_at: float = 0.0
    history: list[tuple[float, int, float]] = field(default_factory=list)
    released: list[tuple[float, float]] = field(default_factory=list)

    def note_requests(self, in_flight: int, sent: int, at: float, advances: bool) -> None:
        """Whether the partition `advances`: a record of it was acknowledged, or none was there."""
        if advances:
            self.advanced_at, self.sent = at, sent
        self.refused = sent - self.sent > in_flight
        if advances or not in_flight or self.unanswered_since == NEVER:
            self.unanswered_since = at if in_flight else NEVER


def _due(topic: str, row: _Backlog, limit: float, stamped: Callable[[str, float], float]) -> float:
    if not row.history:
        return NEVER
    given, _, since = row.history[0]
    sent = max(given, row.advanced_at)  # no earlier: what is before it in the lane goes first
    looked = row.at >= sent + LEAST_LIMIT / 2  # or nobody may have looked at its acknowledgements
    return min(purge_at(given, since, limit), purge_at(sent, sent, limit, stamped(topic, given)) if looked else NEVER)


class Backlogs:
    """Backlogs of one lane's partitions. One thread observes; questions may come from any."""

    def __init__(self) -> None:
        self._by_tp: dict[TopicPartition, _Backlog] = {}
        self._open: dict[TopicPartition, _Backlog] = {}  # those that had a backlog at their last look, or have one
        self._earliest: float | None = None
        self._outdated = False
        self._idle_at = self._looked_at = 0.0

    def _of(self, tp: TopicPartition) -> _Backlog:
        """The row of a partition. A new one had nothing at the last look, but for what had no partition yet."""
        if (found := self._by_tp.get(tp)) is not None:
            return found
        unplaced = self._by_tp.get((tp[0], UNPLACED))
        begun_at = unplaced.history[0][0] if unplaced is not None and unplaced.history else self._looked_at
        return self._by_tp.setdefault(tp, _Backlog(begun_at=begun_at))

    def looked(self, at: float) -> None:
        """All partitions that the lane has were observed, as they were then."""
        self._looked_at = at

    def idle(self, at: float) -> None:
        """All that was given up to then has ended. Counts were not looked at."""
        self._idle_at = at

    def all_ended(self, at: float) -> None:
        """Everything given up to then was acknowledged. Counts may tell of that later only."""
        self._idle_at, self._outdated = at, True
        for backlog in self._by_tp.values():
            backlog.history.clear()
            backlog.released.clear()

    def observe_same(self, tp: TopicPartition, at: float) -> bool:
        """A partition's counts are those of the last look. False: it has to be observed all the same, as more than its
        time may have changed. Most partitions of thousands are idle."""
        row = self._by_tp.get(tp)
        if row is None or row.history or row.released or row.given > row.acknowledged or row.unanswered_since != NEVER:
            return False
        row.at = at
        return True

    def observe(
        self,
        tp: TopicPartition,
        counted: int,
        acknowledged: int,
        at: float,
        uncounted: int = 0,
        least: int = 0,
        under_way: tuple[int, int] = (0, 0),
    ) -> None:
        """Counts as they were at the time `at`, in seconds.

        Beside those that are `counted`, up to `uncounted` were given, and certainly `least`. A smaller count
        than before is one that began anew; the numbers of records go on. `under_way`: how many records were in
        requests, and how many had been put into one, again for each attempt.
        """
        backlog = self._of(tp)
        if counted < backlog.counted:
            backlog.counted_before += backlog.counted
        backlog.counted = counted
        backlog.certain = backlog.counted_before + counted + least
        given = backlog.counted_before + counted + uncounted
        acknowledged = max(acknowledged, backlog.forgiven)
        history = backlog.history
        while history and history[-1][1] > given:  # some of what was offered was not taken
            when, _, since = history.pop()
            if not history or history[-1][1] < given:
                history.append((when, given, since))
        idle, waited = not history, at
        while backlog.released and backlog.released[0][0] <= at:
            waited = min(waited, backlog.released.pop(0)[1])
        if given > acknowledged and (not history or history[-1][1] < given):
            # What is new was given between the last look and this one; the earlier time is the safe one for its age.
            when = max(backlog.at, backlog.begun_at, self._idle_at) or at
            history.append((when, given, min(when, waited)))
        backlog.note_requests(*under_way, at, acknowledged > backlog.acknowledged or idle)
        backlog.given, backlog.acknowledged, backlog.at = given, acknowledged, at
        self._acknowledged(tp, backlog)

    def _acknowledged(self, tp: TopicPartition, backlog: _Backlog) -> None:
        while backlog.history and backlog.history[0][1] <= backlog.acknowledged:
            backlog.history.pop(0)
        if backlog.history:
            self._open[tp] = backlog
        else:
            self._open.pop(tp, None)
        self._outdated = True

    def released(self, tp: TopicPartition, now: float, since: float) -> None:
        """Records are given to the lane from now on that have waited elsewhere, the oldest `since` then. Any thread."""
        self._of(tp).released.append((now, since))

    def earliest(self) -> float | None:
        """No later than when the oldest unacknowledged record was accepted; None when there is none."""
        if self._outdated:
            self._outdated = False  # before the look: what changes meanwhile is looked at again
            oldest = [row.history[0][2] for row in list(self._open.values()) if row.history]
            self._earliest = min(oldest, default=None)
        return self._earliest

    def oldest(self) -> dict[TopicPartition, float]:
        """Partition -> when its oldest unacknowledged record was accepted."""
        return {tp: row.history[0][2] for tp, row in self._open.copy().items() if row.history}

    def open(self) -> Counter[TopicPartition]:
        """Partition -> how many of its records have no acknowledgement, at most; by the last look."""
        return Counter({tp: row.given - row.acknowledged for tp, row in self._open.copy().items() if row.history})

    def purge_at(self, limit: float, stamped: Callable[[str, float], float]) -> float:
        """When some record without an acknowledgement must not be sent again; see policy/expiry.py.

        `stamped(topic, given)`: the time that applications gave to records of the topic that were given then.
        """
        return min([_due(tp[0], row, limit, stamped) for tp, row in self._open.copy().items()], default=NEVER)

    def silent(
        self, now: float, patience: float, answered: Callable[[TopicPartition], float]
    ) -> frozenset[TopicPartition]:
        """Partitions whose leader owes an acknowledgement for `patience` seconds; it `answered()` any request then.

        What waits in librdkafka behind requests of other partitions is owed nothing, as long as those are answered: its
        own request has not been made. One that was answered without an acknowledgement was refused for now.
        """
        return frozenset(
            tp
            for tp, row in self._open.copy().items()
            if row.history
            and now - row.advanced_at >= patience
            and (row.refused or now - row.unanswered_since >= patience or now - answered(tp) >= patience)
        )

    def old(self, now: float, age: float) -> frozenset[TopicPartition]:
        """Partitions with a record that was given `age` seconds ago."""
        return frozenset(tp for tp, row in self._open.copy().items() if row.history and now - row.history[0][0] >= age)

    def waiting(self) -> frozenset[TopicPartition]:
        return frozenset(tp for tp, row in self._open.copy().items() if row.history)

    def unacknowledged(self) -> int:
        """How many records the partitions with a backlog have at most."""
        return self.open().total()

    def has_nothing_of(self, tp: TopicPartition, since: float) -> bool:
        """Whether it was seen without a backlog at a look after `since`."""
        backlog = self._by_tp.get(tp)
        return backlog is not None and backlog.at > since and backlog.given <= backlog.acknowledged

    def forgive(self, topics: Collection[str] | None = None) -> None:
        """Everything given by the last look has ended, acknowledged or not: the lane has nothing, or none of these."""
        for tp, backlog in self._open.items():
            if topics is None or tp[0] in topics:
                backlog.forgiven = backlog.certain
                while backlog.history and backlog.history[0][1] <= backlog.certain:
                    backlog.history.pop(0)
        self._outdated = True
