"""Whom a producer asks before it takes a producer ID (KIP-936).

A guard decides in a round of the ledger. Where there is no ledger, where it cannot be locked in time, and inside a
round of the same thread, it decides by what can be read, and counts in this process. Its next round adds that.
"""

from __future__ import annotations

import _thread
import itertools
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import closing, suppress
from hashlib import blake2b
from traceback import clear_frames
from typing import NamedTuple, TypeVar

from safeproducer.policy import permits
from safeproducer.policy.permits import Kind
from safeproducer.producer_ids import patterns, permit_log, permit_record
from safeproducer.producer_ids.ledger import LATEST, Ledger, LedgerError, LedgerRound
from safeproducer.producer_ids.ledger_places import AUTO, OFF, SUPPORTED, Place
from safeproducer.producer_ids.patterns import Pattern
from safeproducer.producer_ids.permit import Answer, Permit, Request
from safeproducer.producer_ids.permit_record import ENDS, UNSENT, Times
from safeproducer.records import CallSite
from safeproducer.runtime import clock, forks
from safeproducer.runtime.log import logger

__all__ = ["AUTO", "OFF", "Answer", "Guard", "Kind", "Pattern", "Permit", "Place", "Request", "guard_of"]

_Result = TypeVar("_Result")
_serials = itertools.count(1)


class Own(NamedTuple):
    """What this process counted alone. Replaced in one step: a signal handler that raises finds it done or not done.

    `until`: how far the hour was used by that. `owed`: seconds that no ledger knows. `lines`: those for the next round.
    `back`: permits of the ledger that are to go back.
    """

    until: float = 0.0
    owed: float = 0.0
    lines: bytes = b""
    back: tuple[Permit, ...] = ()

    def used(self, read: float, now: float) -> float:
        """Up to when the hour is used, where a ledger says `read`. What came back by the clock is not owed."""
        return min(max(read, now) + min(self.owed, max(self.until - now, 0.0)), now + LATEST)

    def without(self, settled: Own) -> Own:
        """What is left, and came since, when a ledger has that."""
        owed = self.owed - settled.owed  # below 0 when one of them went back meanwhile
        return Own(self.until, owed, self.lines.removeprefix(settled.lines), self.back[len(settled.back) :])


class Guard:
    """The permits of one cluster and principal. Any thread, signal handlers and destructors; never raises.

    No round waits longer than 50 ms for other processes, or 80 ms by the clock on a busy machine. No lock is held while
    it logs.
    """

    def __init__(self, identity: tuple[str, str] = ("", ""), place: Place = OFF) -> None:
        self._identity = identity
        self._ledger, self._keeps = Ledger(identity, place), place != OFF and SUPPORTED
        self._rounds: dict[int, weakref.ref[LedgerRound]] = {}
        self.renew()

    def renew(self) -> None:
        """In a child, which has granted nothing yet. A round of its parent is not its own."""
        for round_ in [reference() for reference in self._rounds.values()]:
            if round_ is not None:
                round_.close()
        self._own = Own()
        self._told: set[CallSite] = set()
        self._problem: str | None = None

    def ask(self, request: Request) -> Answer:
        """Decide at once about one native producer. Ask again after `retry_after` if it is refused."""
        forks.notice()
        known = "" if request.transactional_id is None else _hashed(request.transactional_id, self._identity)
        now = self._now()
        draft = Permit(next(_serials), request.kind, request.site, 0.0, 0.0, known=known)
        line = permit_log.granted(draft, now)  # before others wait for the lock
        answer = self._round(lambda round_: self._shared(round_, request, draft, line))
        if answer is None:
            answer = self._alone(request, draft, line)
        if self._problem and not self._is_inside():
            problem, self._problem = self._problem, ""
            with suppress(RuntimeError):  # the interpreter ends
                _thread.start_new_thread(_warn, (problem,))
        return self._explained(request, answer) if answer.over_limit else answer

    def room(self, request: Request, most: int) -> int:
        """How many permits like `request` would be granted in a row now, up to `most`. Takes and reserves none."""
        now = self._now()
        used = self._own.used(self._ledger.peek(now)[0], now.boot)
        return permits.room(used, request.kind, request.rate, now.boot, most)

    def give_back(self, permit: Permit) -> None:
        """Nothing was sent with `permit`, if it was counted at all. Once or again: it goes back once."""
        forks.notice()
        now, line = self._now().boot, permit_log.went_back(permit)

        def alone(own: Own) -> Own:
            if permit_log.is_in_use(permit, own.lines):  # no ledger knows of it
                until = permits.given_back(own.until, permit.after - permit.before, now - permit.at)
                return own._replace(until=until, owed=own.owed - own.until + until, lines=own.lines + line)
            return own if line in own.lines or not self._keeps else own._replace(back=(*own.back, permit))

        self._change(alone)
        self._round(self._settle)

    def note(self, permit: Permit, producer_id: int | None = None, ended: str | None = None) -> None:
        """Remember for people which producer ID came of `permit`, and how its native producer ended.

        `ended`: "closed", "collected" (garbage collection), "exit" (of the interpreter), "failed" (fatal error),
        "crashed" (by an exception) or "error" (given up after a record failed). Anything else is not noted.
        """
        forks.notice()
        if ended == "exit" and getattr(sys, "last_value", None) is not None:
            ended = "crashed"  # nobody caught the exception that ends the interpreter
        line = permit_log.noted(permit, producer_id, ended if ended in ENDS else None)
        self._change(lambda own: own._replace(lines=permit_log.latest(own.lines + line)))
        self._round(self._settle)

    def _shared(self, round_: LedgerRound, request: Request, draft: Permit, line: bytes) -> Answer:
        self._settle(round_)
        if draft.known and permit_log.knows(round_.lines(), draft.known):
            round_.write(round_.until, permit_log.used_again(draft.known))
            return Answer(draft._replace(known=""))
        answer = _decided(request, draft, round_.until, round_.now.boot, round_.count + 1)
        if answer.permit is None:
            return answer
        round_.write(answer.permit.after, line, counted=1)
        return answer._replace(over_limit=round_.count > request.rate)

    def _alone(self, request: Request, draft: Permit, line: bytes) -> Answer:
        """Decide by what can be read without a lock, and what this process counted."""
        if draft.known and permit_log.knows(self._lines(), draft.known):
            return Answer(draft._replace(known=""))
        now, answer = self._now(), Answer(None)
        read, _ = self._ledger.peek(now)

        def granted(own: Own) -> Own | None:
            nonlocal answer
            answer = _decided(request, draft, own.used(read, now.boot), now.boot, None)
            if (permit := answer.permit) is None:
                return None
            lines = permit_log.latest(own.lines + line)
            return Own(permit.after, own.owed + permit.after - permit.before, lines, own.back)

        own = self._change(granted)
        if own is None:
            return answer
        over = permit_log.count(own.lines) > request.rate or own.until - now.boot > permits.HOUR
        return answer._replace(over_limit=over)

    def _settle(self, round_: LedgerRound) -> None:
        """Add what this process counted alone, and what it has to say."""
        own, now = self._own, round_.now.boot
        if not (own.lines or own.back):
            return
        until, lines = own.used(round_.until, now), own.lines
        kept = round_.lines() if own.back else b""
        for permit in own.back:
            if permit_log.is_in_use(permit, kept + lines):
                until = permits.given_back(until, permit.after - permit.before, now - permit.at)
                lines += permit_log.went_back(permit)
        round_.write(until, lines, permit_log.count(lines))
        self._change(lambda later: later.without(own))

    def _explained(self, request: Request, answer: Answer) -> Answer:
        """With the figures: how many within the hour, by which line, in which pattern."""
        now = self._now()
        young, (read, count) = permit_log.records(self._lines(), now), self._ledger.peek(now)
        in_hour = permit_log.in_hour(young, self._own.used(read, now.boot) - now.boot, request.rate, count)
        if answer.permit is not None and in_hour <= request.rate:
            return Answer(answer.permit)
        told_before = request.site in self._told
        if request.kind is Kind.FIRST or in_hour > request.rate:
            self._told.add(request.site)  # a lane that is refused what is left for producers tells nobody
        recent = [record for record in young if record.ended != UNSENT]
        by_site = sum(record.site == request.site for record in recent)
        pattern = patterns.find(recent, request.site)
        return answer._replace(in_hour=in_hour, by_site=by_site, pattern=pattern, told_before=told_before)

    def _change(self, to: Callable[[Own], Own | None]) -> Own | None:
        """Replace what this process counted, unless `to` answers None, by what it answers. `to` may be called again.

        No lock: a signal handler or a destructor may come in the middle of a step and take one of its own.
        """
        while True:
            before = self._own
            after = to(before)
            # No call and no jump back between these two: no signal handler, and no other thread.
            if self._own is before:
                if after is not None:
                    self._own = after
                return after

    def _round(self, act: Callable[[LedgerRound], _Result]) -> _Result | None:
        """None without a ledger, where it cannot be locked or written, and inside a round of this thread."""
        if not self._keeps or self._is_inside():
            return None
        thread, round_, work = threading.get_ident(), None, forks.Work()
        try:
            with work.lock:  # a fork waits for it
                round_ = LedgerRound(self._ledger)
                self._rounds[thread] = weakref.ref(round_)
                with closing(round_):
                    round_.begin()
                    return act(round_)
        except (LedgerError, OSError, ValueError) as error:
            self._problem = str(error) if self._problem is None else self._problem
            return None
        except BaseException as error:
            round_ = None
            clear_frames(error.__traceback__)  # who keeps a time limit would keep the lock
            raise
        finally:
            self._rounds.pop(thread, None)

    def _is_inside(self) -> bool:
        """Whether a signal handler or a destructor has interrupted a round of this thread."""
        reference = self._rounds.get(threading.get_ident())
        round_ = None if reference is None else reference()
        return round_ is not None and not round_.closed

    def _now(self) -> Times:
        return permit_record.now() if self._keeps else Times(clock.monotonic(), clock.time())

    def _lines(self) -> bytes:
        """All that is said of permits, with what no ledger knows."""
        return self._ledger.lines() + self._own.lines


def _decided(request: Request, draft: Permit, used: float, now: float, number: int | None) -> Answer:
    """With a permit that is about to be counted, if it is granted."""
    after = permits.granted(used, request.kind, request.rate, now)
    if after is None and request.enforce:
        return Answer(None, permits.wait(used, request.kind, request.rate, now), over_limit=True)
    after = permits.counted(used, request.rate, now) if after is None else after
    return Answer(draft._replace(before=max(used, now), after=after, at=now, number=number))


def _hashed(transactional_id: str, identity: tuple[str, str]) -> str:
    """16 letters that differ between clusters and principals."""
    key = blake2b("\0".join(identity).encode(errors="surrogatepass"), digest_size=32).digest()
    return blake2b(transactional_id.encode(errors="surrogatepass"), digest_size=8, key=key).hexdigest()


def _warn(problem: str) -> None:
    """On a thread of its own: who asks may hold locks, which a log handler may wait for."""
    work = forks.Work()
    with work:  # a fork waits for it
        alone = "producer IDs (KIP-936) are counted by this process alone, until a ledger of this host can be used: %s"
        logger.warning(alone, problem)


_guards: dict[tuple[tuple[str, str], Place], Guard] = {}


def guard_of(identity: tuple[str, str], place: Place) -> Guard:
    """The guard for `identity` (cluster, principal) at `place`: the same object each time, in one process."""
    found = _guards.get((identity, place))
    return _guards.setdefault((identity, place), Guard(identity, place)) if found is None else found


def _in_child() -> None:
    for guard in list(_guards.values()):
        guard.renew()


forks.in_child(_in_child)
