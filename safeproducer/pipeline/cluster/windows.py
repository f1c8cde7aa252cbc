"""What the leaders of a producer's partitions remember (KIP-1269), asked by a thread of its own, never by produce().

One question for each leader and topic, whatever the number of lanes and partitions; asked anew while it is used, so
that a lowered value is known before long, and at once when the leader changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from safeproducer import clock
from safeproducer.pipeline.process.flag import Flag
from safeproducer.pipeline.process.helper import Helper, Trouble
from safeproducer.policy.metadata import NO_EPOCH, PartitionInfo
from safeproducer.policy.never import NEVER
from safeproducer.policy.topic_partition import TopicPartition
from safeproducer.policy.window import Announcement, Leader, Source, Window
from safeproducer.policy.window import Windows as WindowPolicy

REFRESH = 30.0
"""Seconds after which an announcement that is in use is asked for again."""
_AFTER_FAILURE = 5.0
_LONGEST_PAUSE = 60.0
_IDLE = 0.5

Question = tuple[int, str]  # (broker, topic)


@dataclass(frozen=True, slots=True)
class _Asked:
    """About whom, when somebody needed it last, when it is asked next, and what was answered to which question."""

    tps: set[TopicPartition] = field(default_factory=set)
    used: float = 0.0
    due: float = 0.0
    answer: tuple[Announcement, float] | None = None


class Asks(Protocol):
    """Who can be asked; see Discovery."""

    def ask(self, node: int, topic: str) -> Announcement: ...
    def set_sasl_credentials(self, username: str, password: str) -> None: ...


class Windows:
    """`budget()` and `update()` on the sender's thread, which shares a lock with the one that asks; `known()`, `stop()`
    and `join()` from any. `changed(tp, before, after)` runs outside the lock.

    - `fixed`: safeproducer.window when it is a number; then nobody is asked.
    - `alive`: whether there is still a producer to ask for; the thread ends with it.
    - `refresh`: seconds after which an announcement is asked for again; believed for twice as long.
    - `trouble`: is told when nobody can be asked.
    """

    def __init__(
        self,
        fixed: int | None,
        refresh: float,
        make: Callable[[Callable[[float], object]], Asks] | None,
        changed: Callable[[TopicPartition, Window, Window], None],
        wake: Callable[[float], None],
        alive: Callable[[], bool],
        trouble: Trouble = lambda kind, what: None,
    ) -> None:
        self._fixed = None if fixed is None else Window(fixed, Source.SETTING, None, "safeproducer.window says so")
        self._refresh = refresh
        self._make = make
        self._changed = changed
        self._wake = wake
        self._alive = alive
        self._policy = WindowPolicy(max_age=2 * refresh)
        self._lock = threading.RLock()
        self._questions: dict[Question, _Asked] = {}
        self._bell = Flag()
        self._stopped = Flag()
        self._trouble = trouble
        self._helper = Helper("safeproducer-windows", self._serve, trouble)
        self._asks: Asks | None = None
        self._pause = _AFTER_FAILURE

    def budget(self, tp: TopicPartition, node: int | None, now: float) -> Window:
        """How many batches of this partition, led by `node` as far as is known, may be unresolved at once."""
        if self._fixed is not None:
            return self._fixed
        with self._lock:
            known = self._policy.leader(tp)
            if known.node != node is not None:
                self._policy.led_by(tp, Leader(node, None))
                known = self._policy.leader(tp)
                # About its topic, when another partition was there to ask for.
                if (asked := self._questions.get((node, tp[0]))) is not None and asked.answer is not None:
                    self._policy.announced(tp, known, *asked.answer)
            if known.node is not None:
                self._want((known.node, tp[0]), tp, now)
            return self._policy.window(tp, now)

    def known(self, now: float) -> dict[TopicPartition, Window]:
        """The windows of all partitions that were asked for."""
        return {tp: self._policy.window(tp, now) for tp in sorted(self._tps())}  # no lock: a handler may come in here

    def _tps(self) -> set[TopicPartition]:
        return set().union(*[asked.tps for asked in tuple(self._questions.values())])

    def update(self, info: Callable[[TopicPartition], PartitionInfo], lost: set[int], now: float) -> None:
        """Who leads a partition since which epoch, and which brokers are not connected, as is known now."""
        if self._fixed is not None:
            return
        changes = []
        with self._lock:
            broke = self._policy.broke(lost)
            for tp in self._tps():
                leader, epoch, _ = info(tp)
                if leader is None:
                    continue
                before = self._policy.window(tp, now)
                smaller = self._policy.led_by(tp, Leader(leader, None if epoch == NO_EPOCH else epoch))
                if leader in broke:
                    smaller |= self._policy.reset(tp, f"the connection to broker {leader}, its leader, broke")
                if smaller:
                    changes.append((tp, before, self._policy.window(tp, now)))
                    question = (leader, tp[0])
                    asked = self._questions.get(question, _Asked())
                    self._questions[question] = replace(asked, answer=None, due=0.0)
                    self._want(question, tp, now)
        for change in changes:
            self._changed(*change)
            self._bell.set()

    def _want(self, question: Question, tp: TopicPartition, now: float) -> None:
        asked = self._questions.get(question, _Asked())
        asked.tps.add(tp)
        due = 0.0 if asked.due == NEVER else asked.due
        self._questions[question] = replace(asked, used=now, due=due)
        if due <= now:
            if self._make is not None and not self._stopped.is_set():
                self._helper.start()
            self._bell.set()

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Let who asks use these from the next connection on; what it is made of has them already."""
        if (asks := self._asks) is not None:
            asks.set_sasl_credentials(username, password)

    def _serve(self) -> None:
        assert self._make is not None  # noqa: S101 - or the thread would not have been started
        while not self._stopped.is_set() and self._alive():
            question = self._next(clock.monotonic())
            if question is None:
                self._bell.wait(_IDLE)
                self._bell.clear()
                continue
            try:
                self._asks = self._asks or self._make(self._stopped.wait)
                self.ask(self._asks, question)
                self._pause = _AFTER_FAILURE
            except Exception as error:  # whatever the client raises, and what it reads from brokers
                self._put_off(question, error)

    def _put_off(self, question: Question, error: Exception) -> None:
        node, topic = question
        cause = f"{type(error).__name__}: {error}"
        self._trouble(
            f"windows {type(error).__name__}",
            f"broker {node} cannot be asked how many batches it remembers for {topic}, so 5 of them may be under way; "
            f"it is asked again later ({cause})",
        )
        with self._lock:
            if (asked := self._questions.get(question)) is not None and asked.due != NEVER:
                self._questions[question] = replace(asked, due=clock.monotonic() + self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _next(self, now: float) -> Question | None:
        with self._lock:
            for question, asked in tuple(self._questions.items()):
                if asked.due <= now:
                    if now - asked.used <= self._refresh:
                        return question
                    # Nobody needs it any more; the next one who does asks at once.
                    self._questions[question] = replace(asked, due=NEVER)
            return None

    def ask(self, asks: Asks, question: Question) -> None:
        """Ask one leader, and take note of the answer for the partitions that it still leads in the same epoch."""
        node, topic = question
        at = clock.monotonic()
        with self._lock:
            asked = {tp: self._policy.leader(tp) for tp in self._questions.get(question, _Asked()).tps}
        said = asks.ask(node, topic)
        changes = []
        with self._lock:
            for tp, leader in asked.items():
                if leader.node != node:
                    continue
                before = self._policy.window(tp, at)
                self._policy.announced(tp, leader, said, at)
                after = self._policy.window(tp, at)
                if after.size != before.size:
                    changes.append((tp, before, after))
            entry = self._questions.get(question, _Asked())
            still = {tp for tp in entry.tps if self._policy.leader(tp).node == node}
            # An epoch that was learnt meanwhile makes the answer useless, though the same broker leads.
            useless = any(self._policy.leader(tp) != asked.get(tp) for tp in still)
            pause = 0.0 if useless else self._refresh if said.value is not None else _AFTER_FAILURE
            self._questions[question] = replace(entry, tps=still, answer=(said, at), due=at + pause)
            if not still:
                del self._questions[question]
        for change in changes:
            self._changed(*change)
        self._wake(0.0)

    def stop(self) -> None:
        self._stopped.set()
        self._bell.set()

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended: at exit it must not be inside librdkafka."""
        self._helper.join(timeout)
