"""Which lane a key belongs to while records of it are under way, so that they keep their order.

Two lanes have no order between them. A key with unresolved records stays on its lane, and so do the records of it that
come later; any other key may take any lane. A key with a record of unknown outcome stays until its lane has had an
acknowledgement for the partition: that lane's next batch carries a later epoch or sequence, which fences a late copy;
on another lane the copy would appear behind its successors.
"""

from __future__ import annotations

from collections.abc import Iterable

Key = bytes


class Affinity:
    """The keys of one partition; not thread-safe: its owner locks. A step takes the same time, whatever is bound."""

    def __init__(self) -> None:
        self._bound: dict[Key, tuple[int, int]] = {}
        self._unknown_outcomes: dict[int, list[Key]] = {}

    def bind(self, key: Key, lane: int) -> int:
        """Count a record more of this key; the lane it must take, which is `lane` if the key may take any."""
        bound = self._bound.get(key)
        if bound is None:
            self._bound[key] = (lane, 1)
            return lane
        owner, count = bound
        self._bound[key] = (owner, count + 1)
        return owner

    def release(self, key: Key) -> None:
        """Count a record less: it has ended, and how is known."""
        self.release_all((key,))

    def release_all(self, keys: Iterable[Key]) -> None:
        owners = self._bound
        for key in keys:
            lane, count = owners[key]
            if count > 1:
                owners[key] = (lane, count - 1)
            else:
                del owners[key]

    def note_unknown(self, keys: Iterable[Key], lane: int) -> None:
        """Records that were on this lane have ended with unknown outcome: their keys stay bound."""
        self._unknown_outcomes.setdefault(lane, []).extend(keys)

    def has_unknown(self, lane: int) -> bool:
        """Whether keys are bound to this lane by records of unknown outcome."""
        return lane in self._unknown_outcomes

    @property
    def unknown_outcome(self) -> bool:
        """Whether keys are bound to any lane by records of unknown outcome."""
        return bool(self._unknown_outcomes)

    def acknowledged(self, lane: int) -> None:
        """A lane had a later batch acknowledged: what its earlier ones left behind is fenced."""
        self.release_all(self._unknown_outcomes.pop(lane, ()))

    def forget(self, lane: int) -> None:
        """A lane is no more; its keys are free, whatever became of their records."""
        self._unknown_outcomes.pop(lane, None)
        for key in [key for key, (owner, _) in self._bound.items() if owner == lane]:
            del self._bound[key]
