"""Permits that this process counts alone: with no ledger, while there is none to be had, and inside a round of the
ledger.

No lock: a signal handler or a destructor may come in the middle of a step and take one of its own, and so may threads.
State is one tuple, which a step replaces only if nobody else did meanwhile. Therefore a handler that raises finds a
step done or not done.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from safeproducer.policy import permits
from safeproducer.policy.permits import Kind
from safeproducer.producer_ids import permit_log, transactional_ids
from safeproducer.producer_ids.permit_record import UNSENT, IdRecord


class Use(NamedTuple):
    """How far the hour is used, as far as this process knows, and how many seconds of that no ledger knows.

    `records`: of permits that no ledger knows.
    """

    until: float = 0.0
    owed: float = 0.0
    records: tuple[IdRecord, ...] = ()


class Owed(NamedTuple):
    """What a round has to add: `seconds` of the hour, out of `all` that was granted, and records with their numbers."""

    seconds: float
    all: float
    records: Sequence[IdRecord]


_NOTHING = Owed(0.0, 0.0, ())


class Alone:
    """Any thread."""

    def __init__(self) -> None:
        self.use = Use()
        self._known: OrderedDict[int, None] = OrderedDict()

    def _change(self, to: Callable[[Use], Use | None]) -> Use | None:
        """Replace the state, unless `to` answers None, by what it answers. `to` may be called again."""
        while True:
            before = self.use
            after = to(before)
            # No call and no jump back between these two: no signal handler, and no other thread.
            if self.use is before:
                if after is not None:
                    self.use = after
                return after

    def owed(self, now: float, count: int) -> Owed:
        """What a ledger that counted `count` permits does not know of. What came back by the clock is not owed."""
        use = self.use
        if not (use.owed or use.records):
            return _NOTHING
        numbered = [record._replace(number=count + place) for place, record in enumerate(use.records, 1)]
        return Owed(min(use.owed, max(use.until - now, 0.0)), use.owed, numbered)

    def take(
        self,
        kind: Kind,
        rate: float,
        enforce: bool,
        now: float,
        reserved: float,
        record: Callable[[float, float], IdRecord],
    ) -> bool:
        """Count one more permit, if it is granted.

        `reserved`: seconds that a round of this thread may be about to use. `record(before, after)`: of the permit that
        made the one time of the other.
        """

        def granted(use: Use) -> Use | None:
            used = max(use.until, now)
            after = permits.granted(used + reserved, kind, rate, now)
            if after is None and enforce:
                return None
            if after is None:
                after = permits.counted(used + reserved, rate, now)
            until = after - reserved
            return Use(until, use.owed + until - used, (*use.records, record(used, until))[-permit_log.SLOTS :])

        return self._change(granted) is not None

    def read(self, until: float) -> None:
        """A ledger says so, with what is owed to it: it holds even if it cannot be written."""
        self._change(lambda use: use._replace(until=until) if until > use.until else None)

    def settled(self, until: float, owed: Owed) -> None:
        """A ledger counted that: the hour is used up to `until`, and by what was granted here since. Once or again."""
        use = self.use
        if not (use.owed or use.records or owed.records):
            nothing = Use(until)
            # As in _change().
            if self.use is use:
                self.use = nothing
                return
        counted = {record.key for record in owed.records}

        def rest(use: Use) -> Use | None:
            left = tuple(record for record in use.records if record.key not in counted)
            if counted and len(left) == len(use.records):
                return None
            more = max(use.owed - owed.all, 0.0)
            return Use(until + more, more, left)

        self._change(rest)

    def find(self, key: tuple[int, int]) -> IdRecord | None:
        """The record of a permit that no ledger knows."""
        return _found(self.use, key)

    def amend(self, key: tuple[int, int], producer_id: int | None, ended: str | None) -> bool:
        """False when the record is not here."""
        return self._change(lambda use: _amended(use, key, producer_id, ended)) is not None

    def give_back(self, key: tuple[int, int], seconds: float, now: float) -> bool:
        """Of a permit that used so many seconds of the hour; once or again. False when it is not here."""

        def refunded(use: Use) -> Use | None:
            found, amended = _found(use, key), _amended(use, key, None, UNSENT)
            if found is None or found.ended == UNSENT or amended is None:
                return amended
            until = permits.given_back(use.until, seconds, now - found.at.boot)
            return amended._replace(until=until, owed=max(use.owed - (use.until - until), 0.0))

        return self._change(refunded) is not None

    def knows(self, known: int) -> bool:
        """Whether this hash of a transactional ID was learned."""
        return known in self._known

    def forget(self, known: int) -> None:
        """What was learned with a permit that is given back."""
        self._known.pop(known, None)

    def learn(self, known: int) -> None:
        """The oldest is forgotten when there are too many."""
        self._known[known] = None
        if len(self._known) > transactional_ids.SETS * transactional_ids.WAYS:
            self._known.popitem(last=False)


def _found(use: Use, key: tuple[int, int]) -> IdRecord | None:
    return next((record for record in use.records if record.key == key), None)


def _amended(use: Use, key: tuple[int, int], producer_id: int | None, ended: str | None) -> Use | None:
    """None when the record is not here."""
    found = _found(use, key)
    if found is None:
        return None
    new = found.amended(producer_id, ended)
    return use._replace(records=tuple(new if record is found else record for record in use.records))
