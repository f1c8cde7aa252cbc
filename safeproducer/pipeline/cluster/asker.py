"""Asks brokers what native producers do not tell: one thread and one admin client for all questions of a producer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from safeproducer.pipeline.cluster.cluster_view import next_step
from safeproducer.policy.types import NEVER
from safeproducer.runtime import clock, forks, randomness
from safeproducer.runtime.threads import BackgroundThread, InterruptSafeEvent, Trouble

if TYPE_CHECKING:
    from tenacity import RetryCallState

    from safeproducer.kafka.admin import Admin

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0  # seconds after a question that failed; each pause is twice the one before
_KEPT_FOR, _LINGERS = 60.0, 1.0
"""Seconds: while a question comes within them, the thread and the admin client stay, and after an answer."""
_LOOK_EVERY = 0.5


class Question(NamedTuple):
    """`what` is asked of a broker, None for any, about a topic."""

    what: str
    node: int | None
    topic: str


Ask = Callable[["Admin", Question], float | None]
"""Asks, and takes note of the answer; in how many seconds to ask again, None after a pause because it failed."""


class _Asked(NamedTuple):
    """When it is due again, at which step it was asked last, and how often it has failed since it was answered."""

    due: float = 0.0
    step: int = -1
    failed: RetryCallState | None = None


_FRESH = _Asked()


@dataclass(eq=False)
class Asker(BackgroundThread):
    """`want()` on the sender's thread, `ask()` on this one.

    - `make()` makes an admin client, which is closed when there is nothing to ask for a while.
    - `answered()` is called after each question: the memory of the cluster may have changed.
    - `alive`: whether there is still a producer to ask for; the thread ends with it.
    - `trouble` is told of what the client raises.
    """

    _make: Callable[[], Admin]
    _answered: Callable[[], object]
    _alive: Callable[[], bool]
    _trouble: Trouble = lambda kind, what: None
    _wanted: dict[Question, tuple[Ask, float, int]] = field(default_factory=dict)
    """The one that asks, until when this is wanted, and since which step an older answer is of no use."""
    _asked: dict[Question, _Asked] = field(default_factory=dict)
    _bell: InterruptSafeEvent = field(default_factory=InterruptSafeEvent)
    _stopped: bool = False
    _admin: Admin | None = None

    def __post_init__(self) -> None:
        super().__init__("safeproducer-asker", self._serve, self._trouble)

    def want(self, question: Question, ask: Ask, now: float, since: int = 0, for_seconds: float = _KEPT_FOR) -> None:
        """Have this asked when it is due, within so many seconds; at once if the last answer is of before `since`."""
        self._wanted[question] = ask, now + for_seconds, since
        if self._due(question, since) <= now and not self._stopped:
            self.start()
            self._bell.set()

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Let the admin client use these from the next connection on; what it is made of has them already."""
        if (admin := self._admin) is not None:
            admin.set_sasl_credentials(username, password)

    def _due(self, question: Question, since: int) -> float:
        asked = self._asked.get(question, _FRESH)
        return 0.0 if since > asked.step else asked.due

    def next(self, now: float) -> tuple[Question | None, float]:
        """The question that has been due for longest, None if none is; when the next one is due."""
        wanted = [(question, since) for question, (_, until, since) in self._wanted.copy().items() if until >= now]
        at, first = min([(self._due(*one), one[0]) for one in wanted], default=(NEVER, None), key=itemgetter(0))
        return (first if at <= now else None), at

    def _serve(self) -> None:
        stays_until = 0.0
        try:
            while not self._stopped and self._alive():
                now = clock.monotonic()
                question, due = self.next(now)
                if question is not None:
                    self.ask(question)
                    stays_until = clock.monotonic() + _LINGERS
                elif due > now + _KEPT_FOR and now >= stays_until:
                    return
                else:
                    self._bell.wait(min(due - now, _LOOK_EVERY))
                    self._bell.clear()
        finally:
            self._admin = None  # without a reference the admin client ends

    def ask(self, question: Question) -> None:
        """Ask, and note when to ask again."""
        step, failed, asked = next_step(), None, self._wanted[question]
        try:
            self._admin = admin = self._admin or self._make()
            again = asked[0](admin, question)
        except Exception as error:  # whatever the client raises, and what it reads from brokers
            again, (what, node, topic) = None, question
            whom = "the cluster" if node is None else f"broker {node}"
            cause = f"it is asked again later ({type(error).__name__}: {error})"
            self._trouble(f"{what} {type(error).__name__}", f"{whom} cannot be asked {what} {topic}; {cause}")
        if again is None:
            failed, again = _after_failure(self._asked.get(question, _FRESH).failed)
        self._asked[question] = _Asked(clock.monotonic() + again, step, failed)
        if again == NEVER:  # what was wanted meanwhile, or is from now on, is asked anew
            self._asked.pop(question, None)
            if self._wanted.get(question) is asked:
                self._wanted.pop(question, None)
        self._answered()

    def stop(self) -> None:
        self._stopped = True
        self._bell.set()


def _after_failure(before: RetryCallState | None) -> tuple[RetryCallState, float]:
    """The state of one question that has failed once more, and for how long to pause."""
    with forks.loading.lock:
        from tenacity import RetryCallState, Retrying, wait_exponential  # noqa: PLC0415 - most producers need it never

    state = before or RetryCallState(Retrying(), None, (), {})
    pause = wait_exponential(multiplier=_FIRST_PAUSE, max=_LONGEST_PAUSE)(state)
    state.attempt_number += 1
    return state, pause * (1 - randomness.share() / 4)  # jitter of our own: that of tenacity uses up the application's
