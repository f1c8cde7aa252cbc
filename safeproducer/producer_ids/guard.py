"""Whom a producer asks before it takes a producer ID (KIP-936)."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass

from safeproducer import clock, forks
from safeproducer.policy import permits
from safeproducer.policy.permits import Kind
from safeproducer.producer_ids.patterns import Pattern
from safeproducer.producer_ids.permit import Answer, Permit, Request
from safeproducer.producer_ids.place import AUTO, OFF, Place
from safeproducer.records import CallSite

__all__ = ["AUTO", "OFF", "Answer", "Guard", "Kind", "Pattern", "Permit", "Place", "Request", "guard_of"]

_KEPT = 256
"""Grants that are remembered, for people."""


@dataclass(slots=True)
class _Grant:
    """One permit that was counted: what people want to know of it."""

    at: float
    permit: Permit
    unsent: bool = False


class Guard:
    """The permits of one cluster and principal. Any thread, signal handlers and destructors; never raises."""

    def __init__(self) -> None:
        self._serials = itertools.count(1)
        self._begin()

    def _begin(self) -> None:
        self._lock = forks.Work()
        self._used_until = 0.0
        self._grants: deque[_Grant] = deque(maxlen=_KEPT)
        self._transactional: set[str] = set()
        self._told: set[CallSite] = set()

    def ask(self, request: Request) -> Answer:
        """Decide at once about one native producer. Call it again after `retry_after` if it is refused."""
        with self._lock:
            now = clock.monotonic()
            if request.transactional_id is not None and request.transactional_id in self._transactional:
                return Answer(self._permit(request, now, now))
            until = permits.granted(self._used_until, request.kind, request.rate, now)
            if until is None and request.enforce:
                retry_after = permits.wait(self._used_until, request.kind, request.rate, now)
                return self._over(request, None, retry_after, now)
            if until is None:
                until = permits.counted(self._used_until, request.rate, now)
            permit = self._permit(request, max(self._used_until, now), until)
            self._used_until = until
            self._grants.append(_Grant(now, permit))
            if request.transactional_id is not None:
                self._transactional.add(request.transactional_id)
            if len(self._recent(now)) > request.rate:
                return self._over(request, permit, 0.0, now)
            return Answer(permit)

    def room(self, request: Request, most: int) -> int:
        """How many permits like `request` would be granted in a row now, up to `most`. Takes and reserves none."""
        with self._lock:
            return permits.room(self._used_until, request.kind, request.rate, clock.monotonic(), most)

    def give_back(self, permit: Permit) -> None:
        """Nothing was sent with `permit`, which is used up by this: call it once."""
        with self._lock:
            self._used_until = permits.given_back(self._used_until, permit.before, permit.after, clock.monotonic())
            for grant in self._grants:
                if grant.permit is permit:
                    grant.unsent = True

    def note(self, permit: Permit, producer_id: int | None = None, ended: str | None = None) -> None:
        """Remember for people which producer ID came of `permit`, and how its native producer ended.

        `ended`: "closed", "collected" (garbage collection), "exit" (of the interpreter) or "failed" (fatal error).
        """

    def _permit(self, request: Request, before: float, after: float) -> Permit:
        return Permit(next(self._serials), request.kind, request.site, before, after)

    def _recent(self, now: float) -> list[_Grant]:
        return [grant for grant in self._grants if now - grant.at < permits.HOUR and not grant.unsent]

    def _over(self, request: Request, permit: Permit | None, retry_after: float, now: float) -> Answer:
        recent = self._recent(now)
        in_hour = max(len(recent), permits.in_hour(self._used_until, request.rate, now))
        by_site = sum(grant.permit.site == request.site for grant in recent)
        told_before = request.site in self._told
        self._told.add(request.site)
        return Answer(permit, retry_after, True, in_hour, by_site, None, told_before)


_guards: dict[tuple[tuple[str, str], Place], Guard] = {}


def guard_of(identity: tuple[str, str], place: Place) -> Guard:
    """The guard for `identity` (cluster, principal) at `place`: the same object each time, in one process."""
    return _guards.get((identity, place)) or _guards.setdefault((identity, place), Guard())


def _begin_anew() -> None:
    for guard in list(_guards.values()):
        guard._begin()


forks.in_child(_begin_anew)
