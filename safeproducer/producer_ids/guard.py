"""Whom a producer asks before it takes a producer ID (KIP-936).

A guard decides in a round of the ledger. Where there is no ledger, or it cannot be locked in time, the guard decides by
what can be read, and counts in this process. Its next round adds that.
"""

from __future__ import annotations

import _thread
import itertools
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from hashlib import blake2b
from traceback import clear_frames
from typing import NamedTuple, TypeAlias, TypeVar

from safeproducer.policy import permits
from safeproducer.policy.permits import Kind
from safeproducer.producer_ids import patterns, permit_log, permit_record
from safeproducer.producer_ids.ledger import LATEST, Ledger, LedgerRound
from safeproducer.producer_ids.ledger_places import AUTO, OFF, SUPPORTED, Place
from safeproducer.producer_ids.patterns import Pattern
from safeproducer.producer_ids.permit import Answer, Claim, Permit
from safeproducer.producer_ids.permit_record import Times
from safeproducer.records import CallSite
from safeproducer.runtime import clock, forks
from safeproducer.runtime.log import logger

__all__ = ["AUTO", "OFF", "Answer", "Claim", "Guard", "Kind", "Pattern", "Permit", "Place", "guard_of"]

_Result = TypeVar("_Result")
Hour: TypeAlias = "LedgerRound | Alone"
_serials = itertools.count(1)
_guards: dict[tuple[tuple[str, str], Place], Guard] = {}


class Own(NamedTuple):
    """The count of this process alone. Replaced in one step: a signal handler that raises finds it done or not done.

    `until`: how far the hour was used by that. `owed`: seconds that no ledger knows, below 0 when some are to go back.
    `lines`: those for the next round.
    """

    until: float = 0.0
    owed: float = 0.0
    lines: bytes = b""

    def used(self, read: float, now: float) -> float:
        """Up to when the hour is used, where a ledger says `read`. What came back by the clock is not owed."""
        return min(max(read, now) + min(self.owed, max(self.until - now, 0.0)), now + LATEST)

    def without(self, settled: Own) -> Own:
        """All that came since, when a ledger has that."""
        return Own(self.until, self.owed - settled.owed, self.lines.removeprefix(settled.lines))


class Alone:
    """In place of a round: it decides by what can be read without a lock, and by what this process counted.

    `after`: what it has counted when this is done.
    """

    count: int | None = None

    def __init__(self, own: Own, ledger: Ledger, now: Times) -> None:
        self.own = self.after = own
        self.now = now
        self._ledger = ledger
        self.until = own.used(ledger.peek(now), now.boot)

    def lines(self) -> bytes:
        return self._ledger.lines() + self.own.lines

    def write(self, until: float, lines: bytes, counted: int = 0) -> None:
        owed = self.own.owed + until - self.until
        self.after = Own(until, owed, permit_log.latest(self.own.lines + lines))


class Guard:
    """The permits of one cluster and principal. Any thread, signal handlers and destructors; never raises.

    A round waits 50 ms at most for other processes, or 80 ms by a busy machine's clock. It logs without a lock.
    """

    def __init__(self, identity: tuple[str, str] = ("", ""), place: Place = OFF) -> None:
        self._identity = identity
        self._ledger, self._keeps = Ledger(identity, place), place != OFF and SUPPORTED
        self.renew()

    def renew(self) -> None:
        """In a child, which has granted nothing yet."""
        self._own = Own()
        self._told: set[CallSite] = set()
        self._problem: str | None = None

    def ask(self, request: Claim) -> Answer:
        """Decide at once about one native producer. Ask again after `retry_after` if it is refused."""
        forks.notice()
        known = "" if request.transactional_id is None else _hashed(request.transactional_id, self._identity)
        draft = Permit(next(_serials), request.kind, request.site, 0.0, 0.0, known=known)
        line = permit_log.granted(draft, self._now())  # before others wait for the lock
        answer = self._act(lambda hour: _decided(hour, request, draft, line))
        if self._problem:
            problem, self._problem = self._problem, ""
            with suppress(RuntimeError):  # the interpreter ends
                _thread.start_new_thread(_warn, (problem,))
        return self._explained(request, answer) if answer.over_limit else answer

    def room(self, request: Claim, most: int) -> int:
        """How many permits like `request` would be granted in a row now, up to `most`. Takes and reserves none."""
        alone = self._alone()
        return permits.room(alone.until, request.kind, request.rate, alone.now.boot, most)

    def give_back(self, permit: Permit) -> None:
        """Nothing was sent with `permit`, if it was counted at all. Once or again: it goes back once."""
        forks.notice()
        self._act(lambda hour: _went_back(hour, permit))

    def note(self, permit: Permit, producer_id: int | None = None, ended: str | None = None) -> None:
        """Remember for people which producer ID came of `permit`, and how its native producer ended.

        `ended`: "closed", "collected" (garbage collection), "exit" (of the interpreter), "failed" (fatal error),
        "crashed" (by an exception) or "error" (given up after a record failed).
        """
        forks.notice()
        if ended == "exit" and getattr(sys, "last_value", None) is not None:
            ended = "crashed"  # nobody caught the exception that ends the interpreter
        line = permit_log.noted(permit, producer_id, ended)
        self._act(lambda hour: hour.write(hour.until, line))

    def _act(self, act: Callable[[Hour], _Result]) -> _Result:
        """In a round of the ledger, or alone where there is none or it cannot be locked or written."""
        if self._keeps:
            round_ = LedgerRound(self._ledger)
            try:
                with round_.lock, closing(round_):
                    round_.begin()
                    self._settle(round_)
                    return act(round_)
            except (OSError, ValueError) as error:
                self._problem = str(error) if self._problem is None else self._problem
            except BaseException as error:
                del round_
                clear_frames(error.__traceback__)  # who keeps a time limit would keep the lock
                raise
        while True:
            alone = self._alone()
            result = act(alone)
            if self._replaced(alone.own, alone.after):
                return result

    def _settle(self, round_: LedgerRound) -> None:
        """Add what this process counted alone, and what it has to say."""
        if (own := self._own).lines:
            until = own.used(round_.until, round_.now.boot)
            round_.write(until, own.lines, permit_log.count(own.lines))
            while not self._replaced(later := self._own, later.without(own)):
                pass

    def _replaced(self, own: Own, by: Own) -> bool:
        """Whether this process's count was still `own`, and is `by` now.

        No lock: a signal handler or a destructor may come in the middle of a step and take one of its own.
        """
        # No call and no jump back between these two: no signal handler, and no other thread.
        if self._own is own:
            self._own = by
            return True
        return False

    def _explained(self, request: Claim, answer: Answer) -> Answer:
        """With the figures: how many within the hour, by which line, in which pattern."""
        alone = self._alone()
        recent = permit_log.records(alone.lines(), alone.now)
        in_hour = permit_log.in_hour(recent, alone.until - alone.now.boot, request.rate)
        if answer.permit is not None and in_hour <= request.rate:
            return Answer(answer.permit)
        told_before = request.site in self._told
        if request.kind is Kind.FIRST or in_hour > request.rate:
            self._told.add(request.site)  # a lane that is refused what is left for producers tells nobody
        by_site = sum(record.site == request.site for record in recent)
        pattern = patterns.find(recent, request.site)
        return answer._replace(in_hour=in_hour, by_site=by_site, pattern=pattern, told_before=told_before)

    def _alone(self) -> Alone:
        return Alone(self._own, self._ledger, self._now())

    def _now(self) -> Times:
        return permit_record.now() if self._keeps else Times(clock.monotonic(), clock.time())


def _decided(hour: Hour, request: Claim, draft: Permit, line: bytes) -> Answer:
    """With a permit, which is counted unless its transactional ID is known."""
    if draft.known and permit_log.knows(hour.lines(), draft.known):
        return Answer(draft._replace(known=""))
    used, now = hour.until, hour.now.boot
    after = permits.granted(used, request.kind, request.rate, now)
    if after is None and request.enforce:
        return Answer(None, permits.wait(used, request.kind, request.rate, now), over_limit=True)
    after = permits.counted(used, request.rate, now) if after is None else after
    number = None if hour.count is None else hour.count + 1
    hour.write(after, line, counted=1)
    permit = draft._replace(before=max(used, now), after=after, at=now, number=number)
    return Answer(permit, over_limit=number is None or number > request.rate)


def _went_back(hour: Hour, permit: Permit) -> None:
    if permit_log.is_in_use(permit, hour.lines()):
        until = permits.given_back(hour.until, permit.after - permit.before, hour.now.boot - permit.at)
        hour.write(until, permit_log.went_back(permit))


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


def guard_of(identity: tuple[str, str], place: Place) -> Guard:
    """The guard for `identity` (cluster, principal) at `place`: the same object each time, in one process."""
    found = _guards.get((identity, place))
    return _guards.setdefault((identity, place), Guard(identity, place)) if found is None else found


def _in_child() -> None:
    for guard in list(_guards.values()):
        guard.renew()


forks.in_child(_in_child)
