"""One batch of a partition until its answer: at the beginning, after a rest, and until batch lanes are ready.

A leader that does not know the producer, or has forgotten it in a rest (KIP-854), takes any batch as its beginning. If
it rejects the first one for now, and takes the next, the first one is missing. So the first batch of a partition is
alone until its answer. The danger is of one partition, and so is the wait: no answer says anything about another one.

Records that name no partition, before the topic is known, may be of any one. A partition waits until none of them can
be under way to it, whatever becomes of the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from safeproducer.policy.types import UNPLACED, TopicPartition

LONGEST_PACE = 10.0  # seconds after which a lane that is still not ready is not waited for any more
LONGEST_ALONE = 120.0  # seconds for which a partition waits for its first batch: a busy cluster may take tens
LONGEST_UNPLACED = 5.0  # the same of a batch whose partitions are not known
LATE_THREADS = 0.05  # a thread that may send has given its record away by then, also on a busy machine
WAITS: Final = 0
ON_PROBATION: Final = 1
FREE: Final = 2

Answers = tuple[int, ...]  # records of a partition that were delivered so far, and that failed
Asked = Callable[[TopicPartition], Answers]


class Seen(NamedTuple):
    """How things are at a look.

    - `unreached`: no broker has answered, so that there is no producer ID.
    - `measuring`: the round trip is being measured. `wants_lane`: it is long, and no batch lane is ready.
    """

    unreached: bool = False
    measuring: bool = False
    wants_lane: bool = False


class _Batch(NamedTuple):
    """How much a batch may take, `until` when. `before`: answers at its begin; `came`: librdkafka has it no more."""

    records: int
    bytes: int
    until: float
    before: Answers
    came: bool = False


class Probation:
    """While `open`, each partition has one batch under way until its answer. Any thread takes, one looks.

    What comes within a `linger` of the first record of a partition is of that batch, up to its size. As long as the
    producer has no ID, nothing leaves librdkafka, and all that comes `gathers` in it.

    With `repeats` the next batch of a partition is alone, too: while round trips are measured, or all that comes would
    go directly just before they prove long; and while a batch lane is being made for them (`paced`), as more would keep
    the partition from leaving for it. Else a partition that has an acknowledgement is free.
    """

    def __init__(self, records: int, size: int, linger: float, wanted: bool, rest: bool = False) -> None:
        self.open = wanted
        self.paced = False
        self._rest = rest
        self._most, self._linger = (records, size), linger
        self._gathers = self._repeats = wanted and not rest
        self._paced_since: float | None = None
        self._begun: dict[TopicPartition, _Batch] = {}
        self._unanswered: deque[TopicPartition] = deque()
        self._has_nothing_of: Callable[[TopicPartition, float], bool] = lambda *_: False

    @property
    def starts(self) -> bool:
        """Whether it is open for want of answers, and not for a lane."""
        return self.open and not self.paced

    @property
    def waits(self) -> bool:
        """Whether nothing has come since the rest."""
        return self.open and self._rest and not self._begun

    def takes(self, tp: TopicPartition, size: int, answers: Asked, now: float) -> int:
        """Whether a record more of the partition may go: it WAITS, goes ON_PROBATION, or is FREE."""
        if not self.open:
            return FREE
        batch, placed = self._begun.get(tp), tp[1] >= 0
        if batch is not None and not self._is_over(tp, answers, now):
            if batch.records <= 0 or batch.bytes < size or not (now < batch.until or self._gathers):
                return WAITS
            self._begun[tp] = batch._replace(records=batch.records - 1, bytes=batch.bytes - size)
            return ON_PROBATION
        if batch is None and placed and not self._is_over((tp[0], UNPLACED), answers, now, tp):
            return WAITS
        before = answers(tp)
        if batch is not None and placed and (batch.came or before[0] > batch.before[0]) and not self._repeats:
            return FREE
        records, left = self._most  # the first goes whatever its size: nothing else would end the wait
        self._begun[tp] = _Batch(records - 1, left - size, now + self._linger, before)
        self._unanswered.append(tp)
        return ON_PROBATION

    def _is_over(self, tp: TopicPartition, answers: Asked, now: float, of: TopicPartition | None = None) -> bool:
        """Whether nothing waits for the batch of a partition any more; for records that named none, `of` does not if
        all of them are answered, or statistics show librdkafka, which spreads them, without any of `of`."""
        if (batch := self._begun.get(tp)) is None or tp[1] >= 0:
            return batch is None or batch.came or answers(tp) != batch.before or now >= batch.until + LONGEST_ALONE
        since = batch.until + LATE_THREADS
        if now < batch.until or self._gathers:  # what names a partition meanwhile is of the same batch
            return of is not None
        if batch.came or (of and self._has_nothing_of(of, since) and self._has_nothing_of(tp, since)):
            return True
        over = sum(answers(tp)) >= sum(batch.before) + self._most[0] - batch.records
        if over := over or now >= batch.until + LONGEST_UNPLACED:
            self._begun[tp] = batch._replace(came=True)
        return over

    def give_back(self, tp: TopicPartition, size: int) -> None:
        """A record was not sent after all, so no answer to it will end the wait."""
        if (batch := self._begun.get(tp)) is None:
            return
        if batch.records >= self._most[0] - 1:
            self._begun.pop(tp, None)
        else:
            self._begun[tp] = batch._replace(records=batch.records + 1, bytes=batch.bytes + size)

    def closes(self, tp: TopicPartition, answers: Asked, now: float) -> bool:
        """Whether records of this partition wait for its answer."""
        batch = self._begun.get(tp)
        if not self.open or batch is None or self._is_over(tp, answers, now):
            return False
        return batch.records <= 0 or batch.bytes <= 0 or not (now < batch.until or self._gathers)

    def acknowledged(self, has_nothing_of: Callable[[TopicPartition, float], bool]) -> None:
        """Statistics are there, which may show that all of a partition came, though its reports are kept back."""
        self._has_nothing_of = has_nothing_of
        for tp, batch in self._begun.copy().items():
            if tp[1] >= 0 and not batch.came and has_nothing_of(tp, batch.until + LATE_THREADS):
                self._begun[tp] = batch._replace(came=True)

    def look(self, answers: Asked, seen: Seen, in_lane: int, now: float) -> bool:
        """Whether what may go has changed; the lane has so many records and events."""
        before, (unreached, measuring, wants_lane) = (self.open, self.paced, self._repeats), seen
        self._gathers = self._gathers and unreached
        self._paced_since = (now if self._paced_since is None else self._paced_since) if wants_lane else None
        waits_for_lane = self._paced_since is not None and now <= self._paced_since + LONGEST_PACE
        # The first one alone is looked at: all must be over, in whichever order.
        while self._unanswered and self._is_answered(self._unanswered[0], answers, in_lane, now):
            self._unanswered.popleft()
        starts = self.starts and (bool(self._unanswered) or measuring or not self._begun)
        self.paced = waits_for_lane and not starts
        self._repeats = self._gathers or measuring or waits_for_lane
        self.open = starts or self.paced
        if not self.open:
            self._begun = {}
            self._unanswered.clear()
        return before != (self.open, self.paced, self._repeats)

    def _is_answered(self, tp: TopicPartition, answers: Asked, in_lane: int, now: float) -> bool:
        batch = self._begun.get(tp)
        if batch is not None and not in_lane and now >= batch.until + LATE_THREADS:
            self._begun[tp] = batch._replace(came=True)  # the lane is empty: what was refused is answered by nothing
        return self._is_over(tp, answers, now)
