"""Sequence gaps of one lane: which partition may send while it has some, see docs/internals/sequence-gaps.md.

A purge of records that wait for another try leaves a gap in their partition's sequence numbers. A leader that never got
them rejects the next batch, librdkafka starts a new epoch for the whole lane, and every other batch under way whose
answer is lost meanwhile would be written twice. Therefore the first batch behind a gap is alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from safeproducer.policy.types import NEVER, TopicPartition

KEPT_OUT = 0.05  # seconds, several looks, for which a lane is closed to others by a look of who waits for it


class SequenceGaps:
    """The gaps of one lane; its owner alone changes it. A batch lane asks `takes()`, the direct lane `lets_in()`.

    `exclusive`: the partition that has the lane to itself. `purged_at`: when the lane was purged last.
    """

    def __init__(self) -> None:
        self._tps: set[TopicPartition] = set()
        self._epoch: int | None = None
        self.exclusive: TopicPartition | None = None
        self.purged_at = self._awaited_until = -NEVER

    def __bool__(self) -> bool:
        return bool(self._tps)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._tps

    def purged(self, tps: Iterable[TopicPartition], at: float, epoch: int | None = None) -> None:
        """Records of these partitions were purged from the lane, which was in this epoch after that."""
        self._tps.update(tps)
        self.purged_at, self._epoch = at, epoch

    def acknowledged(self, tp: TopicPartition) -> None:
        self._tps.discard(tp)
        self.answered(tp)

    def in_epoch(self, epoch: int | None) -> None:
        """The lane's epoch: a new one has new sequence numbers, without gaps."""
        if self._tps and epoch is not None and self._epoch is not None and epoch > self._epoch:
            self._tps.clear()

    def takes(self, tp: TopicPartition, empty: bool, now: float) -> bool:
        """Whether a batch of this partition may go. While one waits to be alone, or is alone, nothing else may."""
        if not self._tps:
            return True
        return empty if tp in self._tps else now >= self._awaited_until and self.exclusive is None

    def keep_others_out(self, until: float) -> None:
        """Take nothing of partitions without a gap for so long: one that has a gap waits for the lane to be empty."""
        self._awaited_until = until

    def sent(self, tp: TopicPartition) -> None:
        if tp in self._tps:
            self.exclusive = tp

    def answered(self, tp: TopicPartition) -> None:
        """A batch of this partition is under way no more, however it ended."""
        if tp == self.exclusive:
            self.end_exclusive()

    def lets_in(self, tp: TopicPartition, empty: bool, now: float) -> bool:
        """Whether this partition may use the lane: with a gap from when that is `empty` on, and alone then."""
        if empty:
            self.exclusive = tp if tp in self._tps else None
        elif tp in self._tps:
            self.keep_others_out(now + KEPT_OUT)
        return not self.closed_to(tp, now)

    def end_exclusive(self) -> None:
        self.exclusive = None

    def closed_to(self, tp: TopicPartition, now: float) -> bool:
        """Whether another partition has the lane to itself, or one that has a gap waits for that."""
        return not self.takes(tp, tp == self.exclusive, now)
