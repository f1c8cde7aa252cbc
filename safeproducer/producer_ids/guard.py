"""Whom a producer asks before it takes a producer ID (KIP-936).

A guard decides in a round of the ledger. Inside a round on the same thread, where a signal handler or a destructor may
ask, and where no ledger can be used, this process decides alone and owes the ledger what it granted. The next round
adds it.
"""

from __future__ import annotations

import _thread
import itertools
import logging
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from safeproducer import clock, forks
from safeproducer.policy import permits
from safeproducer.policy.permits import Kind
from safeproducer.producer_ids import boot, known_ids, patterns, process, ring
from safeproducer.producer_ids.alone import Alone, Owed, Use
from safeproducer.producer_ids.header import LATEST
from safeproducer.producer_ids.ledger import Ledger
from safeproducer.producer_ids.ledger_copy import LedgerError, LockedError
from safeproducer.producer_ids.ledger_round import LedgerRound
from safeproducer.producer_ids.patterns import Pattern
from safeproducer.producer_ids.permit import Answer, Permit, Request
from safeproducer.producer_ids.place import AUTO, OFF, Place
from safeproducer.producer_ids.places import SUPPORTED
from safeproducer.producer_ids.record import ENDS, UNSENT, IdRecord, Times
from safeproducer.records import CallSite

__all__ = ["AUTO", "OFF", "Answer", "Guard", "Kind", "Pattern", "Permit", "Place", "Request", "guard_of"]

logger = logging.getLogger("safeproducer")

_Result = TypeVar("_Result")
_LATER = 1000
"""What waits for a ledger at most: remarks for people, and permits to give back."""
_serials = itertools.count(1)
_NO_BOOT = 1
"""In place of a boot ID, for times that no ledger gets."""


class Guard:
    """The permits of one cluster and principal. Any thread, signal handlers and destructors; never raises.

    No call waits longer than 50 ms for other processes. No lock is held while it logs.
    """

    def __init__(self, identity: tuple[str, str] = ("", ""), place: Place = OFF) -> None:
        self._identity = identity
        self._ledger = Ledger(identity, place) if place != OFF and SUPPORTED else None
        self._rounds: dict[int, weakref.ref[LedgerRound]] = {}
        self.renew()

    def renew(self) -> None:
        """In a child: a round of its parent is not its own, and it has granted nothing yet."""
        for round_ in [reference() for reference in self._rounds.values()]:
            if round_ is not None:
                round_.close()
        self._rounds.clear()
        self._alone = Alone()
        self._told: set[CallSite] = set()
        self._later: list[Callable[[LedgerRound], None]] = []
        self._problem: str | None = None

    def ask(self, request: Request) -> Answer:
        """Decide at once about one native producer. Ask again after `retry_after` if it is refused."""
        forks.notice()
        known = known_ids.hashed(request.transactional_id, self._identity) if request.transactional_id else 0
        answer = self._in_round(lambda round_: self._shared(round_, request, known), permits.cost(request.rate))
        if answer is None:
            answer = self._decided_alone(request, known)
        elif self._later or self._alone.records:  # what came inside the round
            self._in_round(self._settle)
        self._tell_problem()
        return self._explained(request, answer) if answer.over_limit else answer

    def room(self, request: Request, most: int) -> int:
        """How many permits like `request` would be granted in a row now, up to `most`. Takes and reserves none."""
        now = self._now()
        used = None if self._ledger is None else self._ledger.peek(now)
        until = self._alone.use.until if used is None else max(used, now.boot) + self._alone.owed(now.boot, 0).seconds
        return permits.room(until, request.kind, request.rate, now.boot, most)

    def give_back(self, permit: Permit) -> None:
        """Nothing was sent with `permit`, which is used up by this: call it once."""
        forks.notice()
        if permit.after == permit.before:
            return
        if permit.known:
            self._alone.forget(permit.known)
            self._in_round_or_later(lambda round_: round_.forget(permit.known))
        if self._alone.amend(_key(permit), None, UNSENT):
            self._alone.change(lambda use: _refund(use, permit, self._now().boot))
        elif permit.number is not None:
            self._in_round_or_later(lambda round_: _returned(round_, permit))

    def note(self, permit: Permit, producer_id: int | None = None, ended: str | None = None) -> None:
        """Remember for people which producer ID came of `permit`, and how its native producer ended.

        `ended`: "closed", "collected" (garbage collection), "exit" (of the interpreter) or "failed" (fatal error).
        Anything else is not noted.
        """
        forks.notice()
        if ended == "exit" and getattr(sys, "last_value", None) is not None:
            ended = "crashed"  # nobody caught the exception that ends the interpreter
        ended, key, number = ended if ended in ENDS else None, _key(permit), permit.number
        if not self._alone.amend(key, producer_id, ended):
            self._in_round_or_later(lambda round_: round_.amend(number, key, producer_id, ended))

    def _in_round(self, act: Callable[[LedgerRound], _Result], reserved: float = 0.0) -> _Result | None:
        """None without a ledger, where it cannot be used, and inside a round of this thread."""
        if self._ledger is None or self._inside() is not None:
            return None
        thread = threading.get_ident()
        try:
            with process.work():  # a fork waits for it
                round_ = self._ledger.round()
                round_.reserved = reserved
                self._rounds[thread] = weakref.ref(round_)
                with round_:
                    while self._later:
                        self._later.pop(0)(round_)
                    return act(round_)
        except (LedgerError, OSError, ValueError) as error:
            if isinstance(error, LockedError):
                self._alone.read(self._ledger.peek(boot.now()) or 0.0)
            self._problem = str(error) if self._problem is None else self._problem
            return None
        finally:
            self._rounds.pop(thread, None)

    def _in_round_or_later(self, act: Callable[[LedgerRound], None]) -> None:
        def acted(round_: LedgerRound) -> bool:
            act(round_)
            return True

        if self._ledger is not None and not self._in_round(acted) and len(self._later) < _LATER:
            self._later.append(act)

    def _inside(self) -> LedgerRound | None:
        """The round of this thread that a signal handler or a destructor has interrupted."""
        reference = self._rounds.get(threading.get_ident())
        round_ = None if reference is None else reference()
        return None if round_ is None or round_.closed else round_

    def _shared(self, round_: LedgerRound, request: Request, known: int) -> Answer:
        """Decide by the ledger."""
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
        if rate >= ring.SLOTS:
            return until - round_.now.boot > permits.HOUR
        beyond = round_.count - int(rate)
        found = round_.record(beyond) if beyond > 0 else None
        return found is not None and found.age(round_.now, round_.boot_id) < permits.HOUR

    def _decided_alone(self, request: Request, known: int) -> Answer:
        """Decide by what this process knows."""
        now, round_ = self._now(), self._inside()
        reserved = 0.0 if round_ is None else round_.reserved
        if known and self._alone.knows(known):
            return Answer(self._permit(request, now.boot, now.boot))
        before, after = self._alone.take(request.kind, request.rate, request.enforce, now.boot, reserved)
        if after is None:
            wait = permits.wait(before + reserved, request.kind, request.rate, now.boot)
            return Answer(None, wait, over_limit=True)
        permit = self._permit(request, before, after, known)
        self._alone.records.append(self._record(permit, now))
        if known:
            self._alone.learn(known)
            if self._ledger is not None and len(self._later) < _LATER:
                self._later.append(lambda round_: round_.learn(known))
        return Answer(permit, 0.0, len(self._alone.records) > request.rate or permit.after - now.boot > permits.HOUR)

    def _settle(self, round_: LedgerRound) -> None:
        """Add what this process granted alone."""
        now = round_.now.boot
        owed = self._alone.owed(now, round_.count)
        self._write(round_, min(max(round_.until, now) + owed.seconds, now + LATEST), owed)

    def _write(self, round_: LedgerRound, before: float, owed: Owed, permit: Permit | None = None) -> None:
        until = before if permit is None else permit.after
        records = owed.records if permit is None else [*owed.records, self._record(permit, round_.now)]
        try:
            if records:
                round_.write(until, records)
        except BaseException:
            self._alone.read(before)  # it holds even if nothing can be written
            raise
        self._alone.settled(until, owed)

    def _explained(self, request: Request, answer: Answer) -> Answer:
        """With the figures: how many within the hour, by which line, in which pattern."""
        now, site = self._now(), ring.shown(request.site)
        recent = [
            record
            for record in [*(self._ledger.records() if self._ledger else ()), *self._alone.records]
            if record.age(now, self._boot_id) < permits.HOUR and record.ended != UNSENT
        ]
        in_hour = len(recent)
        if answer.permit is None or request.rate >= ring.SLOTS:
            in_hour = max(in_hour, permits.in_hour(self._alone.use.until, request.rate, now.boot))
        if answer.permit is not None and in_hour <= request.rate:
            return Answer(answer.permit)
        told_before = request.site in self._told
        if request.kind is Kind.FIRST or in_hour > request.rate:
            self._told.add(request.site)  # a lane that is refused what is left for producers tells nobody
        by_site = sum(record.site == site for record in recent)
        pattern = patterns.find(recent, site, process.is_alive)
        return answer._replace(in_hour=in_hour, by_site=by_site, pattern=pattern, told_before=told_before)

    def _permit(
        self, request: Request, before: float, after: float, known: int = 0, count: tuple[int, int] | None = None
    ) -> Permit:
        number, generation = count or (None, None)
        return Permit(next(_serials), request.kind, request.site, before, after, number, generation, known)

    def _record(self, permit: Permit, now: Times) -> IdRecord:
        until = Times(permit.after, now.wall + permit.after - now.boot)
        site = ring.shown(permit.site)
        number = permit.number or 0
        return IdRecord(number, permit.serial, process.this(), permit.kind, site, now, until, self._boot_id)

    @property
    def _boot_id(self) -> int:
        return boot.boot_id() if self._ledger is not None else _NO_BOOT

    def _now(self) -> Times:
        return boot.now() if self._ledger is not None else Times(clock.monotonic(), clock.time())

    def _tell_problem(self) -> None:
        """On a thread of its own: who asks may hold locks, which a log handler may wait for."""
        if self._problem and self._inside() is None:
            problem, self._problem = self._problem, ""
            with suppress(RuntimeError):  # the interpreter ends
                _thread.start_new_thread(_warn, (problem,))


def _warn(problem: str) -> None:
    with process.work():  # a fork waits for it
        logger.warning(
            "producer IDs (KIP-936) are counted by this process alone, until a ledger of this host can be used: %s",
            problem,
        )


def _key(permit: Permit) -> tuple[int, int]:
    return process.this().token, permit.serial


def _refund(use: Use, permit: Permit, now: float) -> Use:
    until = permits.given_back(use.until, permit.before, permit.after, now)
    return Use(until, max(use.owed - (use.until - until), 0.0))


def _returned(round_: LedgerRound, permit: Permit) -> None:
    if permit.generation == round_.generation:  # another count never had it
        round_.write(permits.given_back(round_.until, permit.before, permit.after, round_.now.boot), [])
        round_.amend(permit.number, _key(permit), None, UNSENT)


_guards: dict[tuple[tuple[str, str], Place], Guard] = {}


def guard_of(identity: tuple[str, str], place: Place) -> Guard:
    """The guard for `identity` (cluster, principal) at `place`: the same object each time, in one process."""
    found = _guards.get((identity, place))
    return _guards.setdefault((identity, place), Guard(identity, place)) if found is None else found


def _in_child() -> None:
    for guard in list(_guards.values()):
        guard.renew()


forks.in_child(_in_child)
