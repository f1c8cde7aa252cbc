"""For how long the leaders in use remember this producer's ID (KIP-854): asked by a thread of its own, told once.

Nobody is asked before the native producer has lived for a minute, so that a crash loop asks nobody; then hourly, and
new leaders at once. What the thread for windows hears counts, too (see `windows`). Where statistics have told no leader
yet, the thread asks who leads, every five minutes: they are not read with safeproducer.mode=passthrough, and who takes
native producers over may end before they come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from safeproducer import clock
from safeproducer.announcements import Announcements
from safeproducer.delivery import Delivery
from safeproducer.own_settings import EXPIRY_MS
from safeproducer.pipeline.cluster.old_timestamps import OldTimestamps
from safeproducer.pipeline.process.flag import Flag
from safeproducer.pipeline.process.helper import Helper
from safeproducer.policy import expiry
from safeproducer.policy.expiry import Horizon, Told, Unsafe
from safeproducer.policy.never import NEVER

NOT_BEFORE = 60.0
"""Seconds that a native producer has lived before anybody is asked."""
_REFRESH = 3600.0
LEADERS_REFRESH = 300.0
"""Seconds, where statistics tell no leader: as often as librdkafka itself asks (topic.metadata.refresh.interval.ms)."""
_AFTER_FAILURE = 60.0
_LOOK_EVERY = 0.5


class Asks(Protocol):
    """Who can be asked; see Expirations. `told()`: (what a broker says, whether asking again soon is of no use)."""

    def leaders(self, topic: str) -> frozenset[int]: ...
    def told(self, node: int) -> tuple[Told, bool]: ...
    def takes_create_time(self, topic: str) -> bool: ...
    def close(self) -> None: ...


@dataclass(eq=False)
class Known:
    """What brokers have told. It goes over with native producers to their next owner.

    `since`: when the native producer was made. `due` and `topics_due`: when a broker, and who leads a topic, is asked
    for again. `leaders`: by topic, where statistics tell none. `warned`: of which horizons, in seconds.

    A thread that began to ask for the former owner may still write what it hears: each step is one of a dictionary.
    """

    since: float
    answers: dict[int, Told] = field(default_factory=dict)
    due: dict[int, float] = field(default_factory=dict)
    leaders: dict[str, frozenset[int]] = field(default_factory=dict)
    topics_due: dict[str, float] = field(default_factory=dict)
    warned: set[float] = field(default_factory=set)

    def learn(self, told: Told, lasts: bool) -> None:
        self.due[told.node] = clock.monotonic() + (_REFRESH if lasts else _AFTER_FAILURE)
        self.answers[told.node] = told

    def learn_leaders(self, topic: str, found: frozenset[int]) -> None:
        self.topics_due[topic] = clock.monotonic() + LEADERS_REFRESH
        self.leaders[topic] = found

    def put_off(self, nodes: Iterable[int], topics: Iterable[str] = ()) -> None:
        """They are asked again in a minute, whatever comes of it: the next owner shall not ask at once, too."""
        at = clock.monotonic() + _AFTER_FAILURE
        for node in nodes:
            self.due[node] = max(self.due.get(node, 0.0), at)
        for topic in topics:
            self.topics_due[topic] = max(self.topics_due.get(topic, 0.0), at)


class Horizons:
    """`look()` on the sender's thread; `heard()`, `notes()`, `stop()` and `join()` from any. It takes no lock.

    - `current`: None before anything is known, without idempotence, and with safeproducer.expiry=off.
    - `timestamps`: those that applications gave.
    - `leaders()`: the brokers that lead a partition of a topic in use, by statistics.
    - `topics()`: the topics in use.
    - `known`: what was known to the former owner of the native producer.
    """

    def __init__(
        self,
        delivery: Delivery,
        make: Callable[[Callable[[float], object]], Asks],
        leaders: Callable[[], set[int]],
        topics: Callable[[], Iterable[str]],
        announcements: Announcements,
        known: Known | None = None,
    ) -> None:
        own = delivery.own
        self._delivery = delivery
        self._make = make
        self._leaders = leaders
        self._topics = topics
        self._announcements = announcements
        self.current: Horizon | None = None
        self.timestamps = OldTimestamps()
        self.known = known or Known(clock.monotonic())
        self._wanted: tuple[set[int], list[str]] = set(), []
        self._too_old: dict[str, float] = {}
        """By topic that keeps such timestamps, the age of one, which the sender is to tell of."""
        self._look_at = 0.0 if delivery.idempotent and own.expiry != "off" else NEVER
        self._not_before = self.known.since + NOT_BEFORE if own.expiry_ms is None else NEVER
        self._helper = Helper("safeproducer-expiry", self._serve, announcements.trouble)
        self._stopped = Flag()
        if own.expiry_ms is not None and self._look_at != NEVER:
            self._set(expiry.given(own.expiry_ms / 1000, EXPIRY_MS))

    @property
    def unsafe(self) -> Unsafe | None:
        """Why a retry may outlive the horizon; None when it may not, or nothing is known.

        A leader forgets no ID with an open transaction.
        """
        if self.current is None or self._delivery.transactional:
            return None
        return expiry.unsafe(self._delivery.timeout, self._delivery.socket_timeout, self.current.seconds)

    def look(self, now: float) -> None:
        """Whether somebody has to be asked, and what follows from the answers."""
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_EVERY
        wanted, unknown, known = set[int](), list[str](), self.known
        if now >= self._not_before:
            leaders = self._leaders()
            if not leaders:
                topics = list(self._topics())
                unknown = [topic for topic in topics if known.topics_due.get(topic, 0.0) <= now]
                leaders = set().union(*(known.leaders.get(topic, ()) for topic in topics))
            wanted = {node for node in leaders if known.due.get(node, 0.0) <= now}
            self._judge(leaders)
        while self._too_old and self.current is not None:
            self._tell_of(*self._too_old.popitem(), self.current)
        old = self.current is not None and self.timestamps.too_old(self.current.seconds)
        if (wanted or unknown or old) and not self._stopped.is_set():
            self._wanted = wanted, unknown
            self._helper.start()

    def _judge(self, leaders: set[int]) -> None:
        answers = [told for node, told in self.known.answers.copy().items() if node in leaders]
        if answers and (found := expiry.horizon(answers, self._delivery.transactional)) != self.current:
            self._set(found)

    def _set(self, found: Horizon) -> None:
        self.current = found
        self.timestamps.age = found.limit / 2
        if (unsafe := self.unsafe) is not None and found.seconds not in self.known.warned:
            self.known.warned.add(found.seconds)
            sentence = f"{unsafe.sentence} ({found.said}). {unsafe.cure}. {self._meanwhile(found)}"
            self._announcements.once(f"expiry {found.seconds}", sentence)

    def _meanwhile(self, found: Horizon) -> str:
        own, delivery = self._delivery.own, self._delivery
        if own.expiry == "guard" and delivery.owns_timeout:
            return (
                f"Until then nothing is sent again {found.limit:g} s after it was handed over: it is reported as of "
                f"unknown outcome (safeproducer.expiry=guard)"
            )
        setting = f"safeproducer.expiry={own.expiry}" if delivery.owns_timeout else f"safeproducer.mode={own.mode}"
        return f"Until then retries go on, and may write twice ({setting})"

    def heard(self, told: Told) -> None:
        """What a broker said when it was asked for something else."""
        if self._not_before != NEVER:
            self.known.learn(told, lasts=True)

    def _serve(self) -> None:
        known, (wanted, unknown) = self.known, self._wanted
        known.put_off(wanted, unknown)
        asks = self._make(self._stopped.wait)
        try:
            for topic in unknown:
                if not self._stopped.is_set():
                    known.learn_leaders(topic, found := asks.leaders(topic))
                    wanted |= {node for node in found if known.due.get(node, 0.0) <= clock.monotonic()}
            for node in sorted(wanted):
                if not self._stopped.is_set():
                    known.learn(*asks.told(node))
            horizon = self.current
            for topic, age in ({} if horizon is None else self.timestamps.too_old(horizon.seconds)).items():
                if not self._stopped.is_set():
                    if create_time := asks.takes_create_time(topic):
                        self._too_old[topic] = age
                    self.timestamps.settle(topic, not create_time)
        except Exception as error:  # whatever the client raises
            self._put_off(error)
        finally:
            asks.close()

    def _put_off(self, error: Exception) -> None:
        self.known.put_off(*self._wanted)
        cause = f"{type(error).__name__}: {error}"
        self._announcements.trouble(
            "expiry", f"brokers cannot be asked for how long they remember a producer ID; again in a minute ({cause})"
        )
        self._stopped.wait(1.0)

    def _tell_of(self, topic: str, age: float, horizon: Horizon) -> None:
        self._announcements.once(
            f"timestamps {topic}",
            f"records for {topic} have timestamps of {age:.0f} s ago, and a leader counts the {horizon.seconds:g} s "
            f"for which it remembers a producer ID from them ({horizon.said}): it forgets the ID at its next look, and "
            f"a retry after that is written twice (KIP-854). Put the time of the event into a header or the value and "
            f"leave the timestamp out, or set message.timestamp.type=LogAppendTime on the topic",
        )

    def notes(self) -> list[str]:
        """For explain(): what is assumed, and what is not safe."""
        found, unsafe = self.current, self.unsafe
        notes = []
        if found is not None and found.unreadable:
            nodes = ", ".join(map(str, sorted(found.unreadable)))
            notes.append(
                f"For how long broker(s) {nodes} remember a producer ID could not be read "
                f"({next(iter(found.unreadable.values()))}): {found.said} (KIP-854). Grant DESCRIBE_CONFIGS on the "
                f"cluster, or say in {EXPIRY_MS} what it is."
            )
        if unsafe is not None:
            notes.append(f"Not safe: {unsafe.sentence}. {unsafe.cure}.")
        return notes

    def stop(self) -> None:
        self._stopped.set()

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended: at exit it must not be inside librdkafka."""
        self._helper.join(timeout)
