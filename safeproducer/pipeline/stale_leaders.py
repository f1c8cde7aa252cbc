"""Which native producers may not have heard that another broker leads a partition.

librdkafka learns of a new leader when the old one refuses a batch, or when its connection breaks. If the old one hangs,
that takes a time-out (`socket.timeout.ms`, a minute), and each native producer would run into one of its own, one
after the other. So when one of them has waited long for an answer, the others are to ask before they send.
"""

from __future__ import annotations

from collections.abc import Callable

Place = tuple[str, int]
STRAIGHT = -1
"""The number of the straight lane, beside those of the fed lanes."""
_PATIENCE = 120.0
"""Seconds after which one that still got no answer may send all the same: twice the default of socket.timeout.ms, after
which it gives up on the broker that it asks."""


class StaleLeaders:
    """Any thread may use it: each change is one step under the interpreter lock."""

    def __init__(self) -> None:
        self.ask_others: Callable[[str, int], set[int]] = _nobody
        """(topic, lane) -> the other lanes, which are asked to hear who leads the topic's partitions."""
        self._unaware: dict[Place, tuple[float, set[int]]] = {}

    def answered_late(self, place: Place, lane: int, now: float) -> None:
        """The leader of this partition had not answered for long, and `lane` has got an answer."""
        if others := self.ask_others(place[0], lane):
            self._unaware[place] = (now, others)

    def heard(self, topic: str, lane: int, asked_at: float) -> None:
        """This lane was told who leads the topic's partitions."""
        for place, (since, lanes) in tuple(self._unaware.items()):
            if place[0] == topic and since <= asked_at:
                lanes.discard(lane)
                if not lanes:
                    self._unaware.pop(place, None)

    def concerns(self, lane: int, place: Place, now: float) -> bool:
        """Whether this lane may still take the old leader for the partition's."""
        since, lanes = self._unaware.get(place, (0.0, ()))
        if lanes and now > since + _PATIENCE:
            self._unaware.pop(place, None)
            return False
        return lane in lanes

    def concern(self, lane: int, now: float) -> bool:
        """Whether this lane may still take the old leader of any partition for the new one."""
        return any(self.concerns(lane, place, now) for place in tuple(self._unaware))


def _nobody(topic: str, lane: int) -> set[int]:
    return set()
