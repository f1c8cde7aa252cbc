"""Whether a producer may write yet: the owner of the permit for its first producer ID (KIP-936).

The permit is counted as long as the producer has it, and no longer. A signal handler may raise at any place: then a
permit may be counted that nobody has, which comes back by the clock. A step that is done twice changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

from safeproducer.errors import ProducerIdLimitError
from safeproducer.hooks import ProducerChurn, ProducerIdLimited
from safeproducer.kafka.statistics import Statistics
from safeproducer.policy import permits
from safeproducer.policy.decision import Hold
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.permits import Kind
from safeproducer.producer_ids.guard import Guard
from safeproducer.producer_ids.lane_permits import LanePermits, OwnPermit
from safeproducer.producer_ids.permit import Answer, Claim, churn_event, churn_sentence
from safeproducer.records import ProducerInfo
from safeproducer.runtime import clock, randomness

_ANOTHER_ASKS = 0.1
"""Seconds to wait for a thread that asks for the same producer. On a busy machine its rounds may last, and both ask."""
_SLICE = 0.1
"""Seconds that init_transactions() waits before it looks whether the producer was closed."""


class Tells(Protocol):
    """Logs, and calls hooks, on a thread where the application's code may run."""

    def producer_churn(self, event: ProducerChurn, sentence: str) -> None: ...
    def producer_id_limited(self, event: ProducerIdLimited) -> None: ...


class Terms(NamedTuple):
    """Who asks whom, and what follows from a refusal.

    `guard`: None without idempotence. `request`: for the first ID. `lanes`: of which kind additional lanes are.
    `policy`: safeproducer.producer.ids.policy. `may_hold`: whether records of this producer can wait in this process.
    `patience`: seconds for which init_transactions() waits when it was given no limit.
    """

    guard: Guard | None
    request: Claim
    lanes: Kind
    producer: ProducerInfo
    cluster: str
    policy: str
    may_hold: bool
    patience: float


class Gate:
    """Any thread, and signal handlers, `enter()`; the sender `look()`s; close(), garbage collection and exit `end()`.

    - `hold`: why all records of the producer wait, None while they may go; `ask_at`: when the sender asks again.
    - `opened_at`: when records that had waited began to go; 0 when none had to.
    - `used`: producer IDs that it has taken, 0 or 1.
    - `wrote`: statistics have shown a Produce request; `unsent_at`: when the last ones were made that showed none.

    Nobody waits here for long: a thread that finds another one asking goes on by itself after 0.1 s, and gives back the
    permit that is one too many. The lock is re-entrant, and the sender never takes it. It is held while the guard is
    asked and while nothing else is called.
    """

    ask_at = opened_at = unsent_at = 0.0
    wrote = False
    hold: Hold | None = None
    _telling = False
    """A hook that produces must not be told of that for ever."""
    _known_terms: Terms | None = None
    _own: OwnPermit | None = None
    _lanes: LanePermits | None = None
    # Made at the first question, for the constructor of a producer would pay for them. Several threads may ask it:
    # `setdefault` of the instance's dict is one step, and gives all of them the same.

    def __init__(self, guarded: bool, terms: Callable[[], Terms], tell: Tells) -> None:
        self._find_terms = terms
        self._tell = tell
        self._lock = threading.RLock()
        self._entered = not guarded

    @property
    def _terms(self) -> Terms:
        return self._known_terms or self.__dict__.setdefault("_known_terms", self._find_terms())

    @property
    def _request(self) -> Claim:
        return self._terms.request

    def _permit(self) -> OwnPermit | None:
        if self._own is None and (guard := self._terms.guard) is not None:
            self.__dict__.setdefault("_own", OwnPermit(guard, self._request))
        return self._own

    def taken_over(self) -> None:
        """What writes is what another producer of this process has left, which had its permit."""
        self._entered = True

    @property
    def used(self) -> int:
        return int(self._own is not None and self._own.permit is not None)

    @property
    def taken(self) -> int:
        """Producer IDs that it has taken, with those of its batch lanes."""
        return self.used + self.lane_permits().used

    @property
    def waits(self) -> bool:
        return self._terms.policy != "refuse"

    def enter(self) -> None:
        """Have the permit asked for, once. Raises ProducerIdLimitError; then the next call asks again."""
        if self._entered:
            return
        locked = self._lock.acquire(timeout=_ANOTHER_ASKS)
        try:
            answer = self._ask()
        finally:
            if locked:
                self._lock.release()
        if answer is None or not answer.over_limit:
            return
        sentence = self._tell_of(answer)
        if answer.permit is None and not self.used and self.hold is None:
            raise ProducerIdLimitError(sentence, answer.retry_after, self._request.site)

    def enter_by(self, timeout: float, lives: Callable[[], bool]) -> None:
        """enter() for transactions: wait up to `timeout` seconds for the permit if that is the policy.

        `lives()`: whether the producer is open. Raises ProducerIdLimitError, at once when the next permit comes later.
        """
        if self._request.transactional_id is None:
            return
        deadline = clock.monotonic() + (self._terms.patience if timeout < 0 else timeout)
        while lives():
            try:
                self.enter()
            except ProducerIdLimitError as limit:
                now = clock.monotonic()
                if not self.waits or now + limit.retry_after > deadline:
                    raise
                again_at = min(deadline, now + self._ask_again_in(limit.retry_after))
            else:
                return
            while lives() and (left := again_at - clock.monotonic()) > 0:
                clock.sleep(min(left, _SLICE))

    def look(self, now: float) -> bool:
        """Ask again when a permit may be there, for records that wait; whether each is to be looked at again.

        They may go from now on, or wait for longer than was known.
        """
        if self.hold is None or now < self.ask_at or self._own is None:
            return False
        answer = self._own.ask()
        if answer.permit is None:
            self._wait(answer)
        else:
            self.opened_at, self.hold = now, None
        return True

    def is_too_late(self, timeout: float | None, now: float) -> bool:
        """Whether a record that is accepted now, and has so many seconds, ends before the next permit is there."""
        until = None if self.hold is None else self.hold.until
        return timeout is not None and until is not None and until > now + timeout

    def lane_permits(self) -> LanePermits:
        return self._lanes or self.__dict__.setdefault("_lanes", self._permits_of_lanes())

    def _permits_of_lanes(self) -> LanePermits:
        request = self._request._replace(kind=self._terms.lanes, transactional_id=None)
        return LanePermits(self._terms.guard, request, self._tell_of_lane)

    def heard(self, found: Statistics) -> None:
        """Statistics of the native producer that the permit is for. The sender tells."""
        producer_id = found.producer_id
        if not self.wrote:
            requests = any(broker.produce_requests for broker in found.brokers.values())
            self.wrote = requests or any(entry.sent for entry in found.partitions.values())
            self.unsent_at = 0.0 if self.wrote else found.at
        if producer_id is not None and self._own is not None:
            self._own.note(producer_id)

    def end(self, how: str, unsent: bool) -> None:
        own = self._permit()  # it ends before it was asked for, too: nobody gets it later
        if own is not None:
            own.end(how, unsent)

    def _ask(self) -> Answer | None:
        """None if another thread has asked, or a call that a signal handler has ended."""
        own = self._permit()
        if own is None or self._entered or own.permit is not None:
            self._entered = True
            return None
        answer = own.ask()
        if answer.permit is not None:
            self._entered = True
        elif self.waits and self._terms.may_hold:
            self._wait(answer)
            self._entered = True
        return answer

    def _wait(self, answer: Answer) -> None:
        now = clock.monotonic()
        self.ask_at = now + self._ask_again_in(answer.retry_after)
        self.hold = Hold(now + answer.retry_after, HoldReason.PRODUCER_ID_LIMIT)

    def _ask_again_in(self, retry_after: float) -> float:
        return permits.ask_again_in(retry_after, self._request.rate, randomness.share())

    def _tell_of_lane(self, answer: Answer) -> None:
        # A lane may be refused what is left for producers: that is no churn.
        if not answer.told_before and answer.in_hour > self._request.rate and self._terms.policy != "off":
            churn = churn_event(answer, self._request, self._terms.cluster, self._terms.producer.principal)
            self._tell.producer_churn(churn, churn_sentence(churn, None))

    def _tell_of(self, answer: Answer) -> str:
        """Tell what is to be told; a sentence with all of it."""
        terms, request = self._terms, self._request
        churn = churn_event(answer, request, terms.cluster, terms.producer.principal)
        sentence = churn_sentence(churn, answer.retry_after if answer.permit is None else None)
        if terms.policy == "off" or self._telling:
            return sentence
        try:
            self._telling = True
            if not answer.told_before:
                self._tell.producer_churn(churn, sentence)
            if answer.permit is None:
                limited = ProducerIdLimited(terms.producer, terms.policy, answer.retry_after, churn)
                self._tell.producer_id_limited(limited)
        finally:
            self._telling = False
        return sentence
