"""What this process counts alone: with no ledger, while there is none to be had, and inside a round of the ledger.

No lock: a signal handler or a destructor may come in the middle of a step and take one of its own, and so may threads.
State is one tuple, which a step replaces only if nobody else did meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import NamedTuple

from safeproducer.policy import permits
from safeproducer.policy.permits import Kind
from safeproducer.producer_ids import known_ids, ring
from safeproducer.producer_ids.record import IdRecord


class Use(NamedTuple):
    """How far the hour is used, as far as this process knows, and how many seconds of that no ledger knows."""

    until: float = 0.0
    owed: float = 0.0


class Owed(NamedTuple):
    """What a round has to add: `seconds` of the hour, out of `all` that was granted, and records with their numbers."""

    seconds: float
    all: float
    records: list[IdRecord]


class Alone:
    """Any thread."""

    def __init__(self) -> None:
        self.use = Use()
        self.records: deque[IdRecord] = deque(maxlen=ring.SLOTS)
        """Of permits that no ledger knows."""
        self._known: OrderedDict[int, None] = OrderedDict()

    def change(self, to: Callable[[Use], Use | None]) -> tuple[Use, Use | None]:
        """Replace the state, unless `to` answers None: (before, after)."""
        while True:
            before = self.use
            after = to(before)
            # No call and no jump back between these two: no signal handler, and no other thread.
            if self.use is before:
                if after is not None:
                    self.use = after
                return before, after

    def owed(self, now: float, count: int) -> Owed:
        """What a ledger that counted `count` permits does not know of. What came back by the clock is not owed."""
        use, records = self.use, list(self.records)
        numbered = [record._replace(number=count + place) for place, record in enumerate(records, 1)]
        return Owed(min(use.owed, max(use.until - now, 0.0)), use.owed, numbered)

    def take(self, kind: Kind, rate: float, enforce: bool, now: float, reserved: float) -> tuple[float, float | None]:
        """(up to when the hour was used, and up to when it is with a permit, None if it is refused).

        `reserved`: seconds that a round of this thread may be about to use.
        """

        def granted(use: Use) -> Use | None:
            before = max(use.until, now) + reserved
            after = permits.granted(before, kind, rate, now)
            if after is None and enforce:
                return None
            if after is None:
                after = permits.counted(before, rate, now)
            return Use(after - reserved, use.owed + after - before)

        used, use = self.change(granted)
        return max(used.until, now), None if use is None else use.until

    def read(self, until: float) -> None:
        """A ledger says so, with what is owed to it: it holds even if it cannot be written."""
        self.change(lambda use: Use(until, use.owed) if until > use.until else None)

    def settled(self, until: float, owed: Owed) -> None:
        """A ledger counted that: the hour is used up to `until`, and by what was granted here since."""

        def rest(use: Use) -> Use:
            more = max(use.owed - owed.all, 0.0)
            return Use(until + more, more)

        self.change(rest)
        for _ in owed.records:
            self.records.popleft()

    def amend(self, key: tuple[int, int], producer_id: int | None, ended: str | None) -> bool:
        """False when the record is not here."""
        for number, record in enumerate(list(self.records)):
            if record.key == key:
                self.records[number] = record.amended(producer_id, ended)
                return True
        return False

    def knows(self, known: int) -> bool:
        """Whether this hash of a transactional ID was learned."""
        return known in self._known

    def forget(self, known: int) -> None:
        """What was learned with a permit that is given back."""
        self._known.pop(known, None)

    def learn(self, known: int) -> None:
        """The oldest is forgotten when there are too many."""
        self._known[known] = None
        if len(self._known) > known_ids.SETS * known_ids.WAYS:
            self._known.popitem(last=False)
