"""Whom a producer asks before it takes a producer ID (KIP-936).

A guard decides in a round of the ledger. Inside a round on the same thread, where a signal handler or a destructor may
ask, and where no ledger can be used, this process decides alone and owes the ledger what it granted. The next round
adds it.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import TypeVar

from safeproducer.policy import permits
from safeproducer.policy.permits import Kind
from safeproducer.producer_ids import patterns, permit_log, permit_record, transactional_ids
from safeproducer.producer_ids.ledger import Ledger, Rounds
from safeproducer.producer_ids.ledger_header import LATEST
from safeproducer.producer_ids.ledger_places import AUTO, OFF, SUPPORTED, Place
from safeproducer.producer_ids.ledger_transaction import LedgerRound
from safeproducer.producer_ids.local_permits import Alone, Owed
from safeproducer.producer_ids.patterns import Pattern
from safeproducer.producer_ids.permit import Answer, Permit, Request
from safeproducer.producer_ids.permit_record import ENDS, UNSENT, IdRecord, Times
from safeproducer.records import CallSite
from safeproducer.runtime import clock, forks

__all__ = ["AUTO", "OFF", "Answer", "Guard", "Kind", "Pattern", "Permit", "Place", "Request", "guard_of"]

_Result = TypeVar("_Result")
_serials = itertools.count(1)
_NO_BOOT = 1
"""In place of a boot ID, for times that no ledger gets."""


class Guard:
    """The permits of one cluster and principal. Any thread, signal handlers and destructors; never raises.

    No round waits longer than 50 ms for other processes, or 80 ms by the clock on a busy machine; what came inside a
    round takes a second one. No lock is held while it logs.
    """

    def __init__(self, identity: tuple[str, str] = ("", ""), place: Place = OFF) -> None:
        self._identity = identity
        self._ledger = Ledger(identity, place) if place != OFF and SUPPORTED else None
        self._rounds = Rounds(self._ledger)
        self.renew()

    def renew(self) -> None:
        """In a child, which has granted nothing yet."""
        self._rounds.renew()
        self._alone = Alone()
        self._told: set[CallSite] = set()

    def ask(self, request: Request) -> Answer:
        """Decide at once about one native producer. Ask again after `retry_after` if it is refused."""
        forks.notice()
        known = transactional_ids.hashed(request.transactional_id, self._identity) if request.transactional_id else 0
        answer = self._rounds.run(
            lambda round_: self._shared(round_, request, known), self._alone, permits.HOUR / request.rate
        )
        if answer is None:
            answer = self._decided_alone(request, known)
        elif self._rounds.later or self._alone.use.records:  # what came inside the round
            self._rounds.run(self._settle, self._alone)
        self._rounds.tell_problem()
        return self._explained(request, answer) if answer.over_limit else answer

    def room(self, request: Request, most: int) -> int:
        """How many permits like `request` would be granted in a row now, up to `most`. Takes and reserves none."""
        now = self._now()
        used = None if self._ledger is None else self._ledger.peek(now)
        until = self._alone.use.until if used is None else max(used, now.boot) + self._alone.owed(now.boot, 0).seconds
        return permits.room(until, request.kind, request.rate, now.boot, most)

    def give_back(self, permit: Permit) -> None:
        """Nothing was sent with `permit`, if it was counted at all. Once or again: it goes back once."""
        forks.notice()
        if permit.after == permit.before:
            return
        if self._rounds.inside() is not None or not self._returned_alone(permit):
            self._in_round_or_later(lambda round_: self._returned(round_, permit))

    def _returned_alone(self, permit: Permit) -> bool:
        """False when this process does not count it alone."""
        key = _key(permit)
        found = self._alone.find(key)
        if found is not None and found.ended != UNSENT:
            if permit.known:
                self._alone.forget(permit.known)
                self._rounds.put_off(lambda round_: round_.forget(permit.known))
            self._alone.give_back(key, permit.after - permit.before, self._now().boot)
        return found is not None

    def _returned(self, round_: LedgerRound, permit: Permit) -> None:
        found = None if self._returned_alone(permit) else round_.find(permit.number, _key(permit))
        if found is not None and found.ended != UNSENT:
            if permit.known:
                self._alone.forget(permit.known)
                round_.forget(permit.known)
            age = found.age(round_.now, round_.boot_id)
            until = permits.given_back(round_.until, permit.after - permit.before, age)
            round_.write(until, [found.amended(None, UNSENT)])

    def note(self, permit: Permit, producer_id: int | None = None, ended: str | None = None) -> None:
        """Remember for people which producer ID came of `permit`, and how its native producer ended.

        `ended`: "closed", "collected" (garbage collection), "exit" (of the interpreter), "failed" (fatal error),
        "crashed" (by an exception) or "error" (given up after a record failed). Anything else is not noted.
        """
        forks.notice()
        if ended == "exit" and getattr(sys, "last_value", None) is not None:
            ended = "crashed"  # nobody caught the exception that ends the interpreter
        ended, key, number = ended if ended in ENDS else None, _key(permit), permit.number
        if not self._alone.amend(key, producer_id, ended):
            self._in_round_or_later(lambda round_: round_.amend(number, key, producer_id, ended))

    def _in_round_or_later(self, act: Callable[[LedgerRound], object]) -> None:
        self._rounds.put_off(act)
        self._rounds.run(lambda _: None, self._alone)

    def _shared(self, round_: LedgerRound, request: Request, known: int) -> Answer:
        if request.asked and (left := self._left(request.asked, round_)) is not None:
            if known:
                round_.learn(known)
            return Answer(left)
        now, rate = round_.now.boot, request.rate
        owed = self._alone.owed(now, round_.count)
        before = min(max(round_.until, now) + owed.seconds, now + LATEST)
        if known and (round_.knows(known) or self._alone.knows(known)):
            self._write(round_, before, owed)
            return Answer(self._permit(request, before, before))
        after = permits.granted(before, request.kind, rate, now)
        if after is None and request.enforce:
            self._write(round_, before, owed)
            return Answer(None, permits.wait(before, request.kind, rate, now), over_limit=True)
        if after is None:
            after = permits.counted(before, rate, now)
        number = round_.count + len(owed.records) + 1
        permit = self._permit(request, before, after, known, (number, round_.generation))
        self._write(round_, before, owed, permit)
        if known:
            round_.learn(known)
        return Answer(permit, over_limit=self._may_be_over(round_, rate, after))

    def _may_be_over(self, round_: LedgerRound, rate: float, until: float) -> bool:
        """Looks at one record: the one that is over the limit together with this one, if it is within the hour."""
        if rate >= permit_log.SLOTS:
            return until - round_.now.boot > permits.HOUR
        beyond = round_.count - int(rate)
        found = round_.record(beyond) if beyond > 0 else None
        return found is not None and found.age(round_.now, round_.boot_id) < permits.HOUR

    def _decided_alone(self, request: Request, known: int) -> Answer:
        """Decide by what this process knows."""
        now, round_ = self._now(), self._rounds.inside()
        reserved = 0.0 if round_ is None else round_.reserved
        if request.asked and (left := self._left(request.asked)) is not None:
            return Answer(left)
        if known and self._alone.knows(known):
            return Answer(self._permit(request, now.boot, now.boot))
        made: list[Permit] = []

        def record(before: float, after: float) -> IdRecord:
            made.append(self._permit(request, before, after, known))
            return self._record(made[-1], now)

        if not self._alone.take(request.kind, request.rate, request.enforce, now.boot, reserved, record):
            used = max(self._alone.use.until, now.boot) + reserved
            return Answer(None, permits.wait(used, request.kind, request.rate, now.boot), over_limit=True)
        if known:
            self._alone.learn(known)
            self._rounds.put_off(lambda round_: round_.learn(known))
        over = len(self._alone.use.records) > request.rate or made[-1].after - now.boot > permits.HOUR
        return Answer(made[-1], 0.0, over)

    def _left(self, asked: list[Permit], round_: LedgerRound | None = None) -> Permit | None:
        """One of them that was counted, and did not go back."""
        for permit in asked:
            found = self._alone.find(_key(permit))
            if found is None and round_ is not None:
                found = round_.find(permit.number, _key(permit))
            if found is not None and found.ended != UNSENT:
                return permit
        return None

    def _settle(self, round_: LedgerRound) -> None:
        """Add what this process granted alone."""
        now = round_.now.boot
        owed = self._alone.owed(now, round_.count)
        self._write(round_, min(max(round_.until, now) + owed.seconds, now + LATEST), owed)

    def _write(self, round_: LedgerRound, before: float, owed: Owed, permit: Permit | None = None) -> None:
        until = before if permit is None else permit.after
        records = owed.records if permit is None else [*owed.records, self._record(permit, round_.now)]
        count = round_.count + len(records)
        try:
            if records:
                round_.write(until, records)
            self._alone.settled(until, owed)
        except BaseException:
            if round_.count == count:
                self._alone.settled(until, owed)
            else:
                self._alone.read(before)  # it holds even if nothing can be written
            raise

    def _explained(self, request: Request, answer: Answer) -> Answer:
        """With the figures: how many within the hour, by which line, in which pattern."""
        now, site, alone = self._now(), permit_log.shown(request.site), self._alone.use.records
        young = [
            record
            for record in [*(self._ledger.records() if self._ledger else ()), *map(permit_log.read_back, alone)]
            if record.age(now, self._boot_id) < permits.HOUR
        ]
        in_hour = permit_log.in_hour(young, self._alone.use.until - now.boot, request.rate)
        if answer.permit is not None and in_hour <= request.rate:
            return Answer(answer.permit)
        told_before = request.site in self._told
        if request.kind is Kind.FIRST or in_hour > request.rate:
            self._told.add(request.site)  # a lane that is refused what is left for producers tells nobody
        recent = [record for record in young if record.ended != UNSENT]
        by_site = sum(record.site == site for record in recent)
        pattern = patterns.find(recent, site)
        return answer._replace(in_hour=in_hour, by_site=by_site, pattern=pattern, told_before=told_before)

    def _permit(
        self, request: Request, before: float, after: float, known: int = 0, count: tuple[int, int] | None = None
    ) -> Permit:
        """One that is about to be counted."""
        number, generation = count or (None, None)
        permit = Permit(next(_serials), request.kind, request.site, before, after, number, generation, known)
        if request.asked is not None:
            request.asked.append(permit)
        return permit

    def _record(self, permit: Permit, now: Times) -> IdRecord:
        until = Times(permit.after, now.wall + permit.after - now.boot)
        number, boot_id = permit.number or 0, self._boot_id
        return IdRecord(number, permit.serial, permit_record.this(), permit.kind, permit.site, now, until, boot_id)

    @property
    def _boot_id(self) -> int:
        return permit_record.boot_id() if self._ledger is not None else _NO_BOOT

    def _now(self) -> Times:
        return permit_record.now() if self._ledger is not None else Times(clock.monotonic(), clock.time())


def _key(permit: Permit) -> tuple[int, int]:
    return permit_record.this().token, permit.serial


_guards: dict[tuple[tuple[str, str], Place], Guard] = {}


def guard_of(identity: tuple[str, str], place: Place) -> Guard:
    """The guard for `identity` (cluster, principal) at `place`: the same object each time, in one process."""
    found = _guards.get((identity, place))
    return _guards.setdefault((identity, place), Guard(identity, place)) if found is None else found


def _in_child() -> None:
    for guard in list(_guards.values()):
        guard.renew()


forks.in_child(_in_child)
